"""Noise negatives that are moved towards the anchors of a batch (DCLR, eq. 2-4).

Source: Zhou et al., 2022, https://aclanthology.org/2022.acl-long.423.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from st_extras.checks import check_choice, check_count, check_interval, check_temperature, check_weight
from st_extras.functional import cosine_ascent_direction, mean_angle, unit_rows
from st_extras.random_source import RandomSource


class NoiseNegatives(nn.Module):
    """Draws noise vectors, the same negatives for all anchors of a batch, and moves them towards the anchors.

    Args:
        noise_ratio: k, vectors per anchor: K = round(k B). 0: none.
        noise_std: sigma of the Gaussian.
        noise_steps: t, gradient-ascent steps. 0: random noise.
        noise_step_size: beta, the length of a step.
        noise_norm: "gaussian": as drawn; "unit": normalized to length 1, also after every step.
        noise_temperature: tau_u of the ascent.
        generator: torch.Generator of the draws, on the anchors' device. None: one is made from torch's seed.

    Attributes:
        config: the settings, for the model card.
        angle: mean angle in degrees by which the ascent turned the last training batch's noise; NaN before (0-dim).
    """

    def __init__(
        self,
        *,
        noise_ratio: float,
        noise_std: float,
        noise_steps: int,
        noise_step_size: float,
        noise_norm: str,
        noise_temperature: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = {
            "noise_ratio": check_interval("noise_ratio", noise_ratio, 0, 1000),
            "noise_std": check_interval("noise_std", noise_std, 1e-6, 1e6),
            "noise_steps": check_count("noise_steps", noise_steps, at_most=1000),
            "noise_step_size": check_weight("noise_step_size", noise_step_size),
            "noise_norm": check_choice("noise_norm", noise_norm, ("gaussian", "unit")),
            "noise_temperature": check_temperature("noise_temperature", noise_temperature),
        }
        self.ratio, self.unit_norm = self.config["noise_ratio"], noise_norm == "unit"
        if self.unit_norm and noise_std != 1:
            raise ValueError(
                f'noise_std must be 1 with noise_norm="unit", which sets all norms to 1, got {noise_std!r}.'
            )
        self.source = RandomSource(generator)
        self.angle = torch.tensor(torch.nan)

    def forward(self, anchors: Sequence[Tensor]) -> Tensor:
        """Return K = round(noise_ratio * B) noise vectors, (K, D), as constants, for B anchors in mini-batches."""
        count, dimension, device = round(self.ratio * sum(map(len, anchors))), anchors[0].size(1), anchors[0].device
        dtype = torch.promote_types(anchors[0].dtype, torch.float32)
        if count == 0:
            return torch.empty(0, dimension, dtype=dtype, device=device)
        drawn = torch.randn(count, dimension, generator=self.source.on(device), device=device, dtype=dtype)
        start = F.normalize(drawn, dim=-1) if self.unit_norm else drawn * self.config["noise_std"]
        with torch.no_grad():
            noise = self.refine(start, anchors)
        if torch.is_grad_enabled():
            self.angle = mean_angle(start, noise)
        return noise

    def refine(self, noise: Tensor, anchors: Sequence[Tensor]) -> Tensor:
        """Move noise negatives up the batch mean of L_U by normalised gradient ascent (eq. 2-4).

        n_j += noise_step_size * g_j / |g_j|, with g_j the gradient of mean_i logsumexp_j(cos(h_i, n_j)/tau_u): the
        positive's term of L_U does not depend on the noise. A vector with zero gradient stays where it is.

        Args:
            noise: (K, D).
            anchors: in mini-batches, (b, D) each, constants here; the (b, K) similarities of one are held at a time.

        Returns:
            (K, D), without gradients.
        """
        batches, temperature = [unit_rows(batch.detach()) for batch in anchors], self.config["noise_temperature"]
        for _ in range(self.config["noise_steps"]):
            units = unit_rows(noise)
            with torch.autocast(noise.device.type, enabled=False):
                # sum_i p_ij h_i/|h_i|, p the softmax over the noise
                pull = sum((batch @ units.T / temperature).softmax(dim=1).T @ batch for batch in batches)  # (K, D)
            ascent = F.normalize(cosine_ascent_direction(noise, cast(Tensor, pull)), dim=-1)
            noise = noise + self.config["noise_step_size"] * ascent
            if self.unit_norm:
                noise = F.normalize(noise, dim=-1)
        return noise

    @property
    def instruments(self) -> dict[str, Tensor]:
        """The figures to log; none without noise."""
        return {"noise_angle": self.angle} if self.ratio else {}
