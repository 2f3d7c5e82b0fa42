"""Noise negatives that are moved towards the anchors of a batch (DCLR, eq. 2-4).

Source: Zhou et al., 2022, https://aclanthology.org/2022.acl-long.423.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from st_extras.checks import check_choice, check_count, check_interval
from st_extras.functional import cosine_ascent_direction, mean_angle, unit_rows
from st_extras.random_source import RandomSource


class NoiseNegatives(nn.Module):
    """Draws noise vectors, the same negatives for all anchors of a batch, and moves them towards the anchors.

    Args:
        ratio: k, vectors per anchor: K = round(k B). 0: none.
        steps: t, gradient-ascent steps. 0: random noise.
        norm: "gaussian": as drawn; "unit": normalized to length 1, also after every step.
        temperature: tau of the ascent.
        generator: torch.Generator of the draws, on the anchors' device. None: one is made from torch's seed.

    Attributes:
        config: the settings, for the model card.
        step_size: beta, the length of a step, the paper's.
        angle: mean angle in degrees by which the ascent turned the last training batch's noise; NaN before (0-dim).
    """

    step_size = 1e-3

    def __init__(
        self,
        *,
        ratio: float,
        steps: int,
        norm: str,
        temperature: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.ratio = check_interval("noise_ratio", ratio, 0, 1000)
        self.steps = check_count("noise_steps", steps, at_most=1000)
        self.is_unit = check_choice("noise_norm", norm, ("gaussian", "unit")) == "unit"
        self.config = {"noise_ratio": self.ratio, "noise_steps": self.steps, "noise_norm": norm}
        self.temperature = temperature
        self.source = RandomSource(generator)
        self.angle = torch.tensor(torch.nan)

    def forward(self, anchors: Sequence[Tensor]) -> Tensor:
        """Return K = round(k B) noise vectors, (K, D), as constants, for B anchors in mini-batches."""
        count, dimension, device = round(self.ratio * sum(map(len, anchors))), anchors[0].size(1), anchors[0].device
        dtype = torch.promote_types(anchors[0].dtype, torch.float32)
        if count == 0:
            return torch.empty(0, dimension, dtype=dtype, device=device)
        drawn = torch.randn(count, dimension, generator=self.source.on(device), device=device, dtype=dtype)
        start = F.normalize(drawn, dim=-1) if self.is_unit else drawn  # sigma = 1
        with torch.no_grad():
            noise = self.refine(start, anchors)
        if torch.is_grad_enabled():
            self.angle = mean_angle(start, noise)
        return noise

    def refine(self, noise: Tensor, anchors: Sequence[Tensor]) -> Tensor:
        """Move noise negatives up the batch mean of L_U by normalised gradient ascent (eq. 2-4).

        n_j += beta * g_j / |g_j|, with g_j the gradient of mean_i logsumexp_j(cos(h_i, n_j)/tau): the
        positive's term of L_U does not depend on the noise. A vector with zero gradient stays where it is.

        Args:
            noise: (K, D).
            anchors: in mini-batches, (b, D) each, constants here; the (b, K) similarities of one are held at a time.

        Returns:
            (K, D), without gradients.
        """
        batches = [unit_rows(batch.detach()) for batch in anchors]
        for _ in range(self.steps):
            units = unit_rows(noise)
            with torch.autocast(noise.device.type, enabled=False):
                # sum_i p_ij h_i/|h_i|, p the softmax over the noise
                pull = sum((batch @ units.T / self.temperature).softmax(dim=1).T @ batch for batch in batches)  # (K, D)
            ascent = F.normalize(cosine_ascent_direction(noise, cast(Tensor, pull)), dim=-1)
            noise = noise + self.step_size * ascent
            if self.is_unit:
                noise = F.normalize(noise, dim=-1)
        return noise

    @property
    def instruments(self) -> dict[str, Tensor]:
        """The figures to log; none without noise."""
        return {"noise_angle": self.angle} if self.ratio else {}
