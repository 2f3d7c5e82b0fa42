"""Learned adversaries: negatives of a contrastive loss that ascend this loss themselves (AdCSE, eq. 5 and 7).

Source: Li et al., 2022, https://doi.org/10.1007/978-3-031-00129-1_11.
"""

from __future__ import annotations

import torch
from sentence_transformers.util import get_world_size
from torch import Tensor, nn

from st_extras.checks import check_choice, check_weight
from st_extras.encoders.distributed import gather_rows, require_synchronised, sum_over_processes
from st_extras.functional import anchor_pull, cosine_ascent_direction, mean_angle, unit_rows
from st_extras.random_source import RandomSource


class Ascent:
    """Sums over a batch's anchors that a step of the adversaries needs, added up mini-batch by mini-batch.

    Args:
        adversaries: the adversaries.

    Attributes:
        count: number of anchors so far.
        pull: (M, D), see :func:`~st_extras.functional.anchor_pull`.
        share: sum over the anchors of the share of the loss's softmax that the adversaries take, ().
        logits: sum over the anchors of the mean cosine with the adversaries, divided by the loss's temperature, ().
    """

    def __init__(self, adversaries: Adversaries) -> None:
        self._adversaries = adversaries
        self.count = 0
        self.pull = self.share = self.logits = torch.zeros((), device=adversaries.vectors.device)

    @torch.no_grad()
    def add(self, anchors: Tensor, logits: Tensor) -> None:
        """Add the anchors of a mini-batch.

        Args:
            anchors: (b, D).
            logits: (b, K + M), of the loss's softmax over K candidates and, last, the M adversaries.
        """
        candidates = logits.size(1) - len(self._adversaries)  # K
        shares = logits.softmax(dim=1)[:, candidates:]  # (b, M)
        self.pull = self.pull + anchor_pull(anchors, shares)
        self.share = self.share + shares.sum()
        self.logits = self.logits + logits[:, candidates:].mean(dim=1).sum()
        self.count += len(anchors)


class Adversaries(nn.Module):
    """The adversaries and their optimizer: SGD with momentum and weight decay, up the loss.

    Args:
        count: M.
        dimension: D.
        device: where they are kept.
        start: "random": drawn from N(0, I); "features": each is also replaced, once, by a key of the first batches.
        learning_rate: alpha.
        temperature: tau of the loss.
        generator: torch.Generator that draws them, on the device. None: one is made from torch's seed.

    Attributes:
        config: the settings, for the model card.
        momentum: mu, the authors'.
        weight_decay: lambda, the authors'.
        vectors: (M, D), the adversaries.
        velocity: (M, D), the momentum of earlier steps.
        origins: (M, D), each adversary as it was drawn.
        drawn: number of those drawn from features, (); only with that start.
        similarity: mean cosine with the anchors of the last step; NaN before (0-dim).
        share: mean share of the softmax that they took in it; NaN before (0-dim).
    """

    vectors: Tensor
    velocity: Tensor
    origins: Tensor
    drawn: Tensor
    momentum = 0.9
    weight_decay = 1e-4

    def __init__(
        self,
        count: int,
        dimension: int,
        device: torch.device,
        *,
        start: str,
        learning_rate: float,
        temperature: float,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.config = {
            "num_adversaries": count,
            "adversary_start": check_choice("adversary_start", start, ("random", "features")),
            "adversary_learning_rate": check_weight("adversary_learning_rate", learning_rate),
        }
        self.temperature = temperature
        vectors = torch.randn(count, dimension, device=device, generator=RandomSource(generator).on(device))
        self.register_buffer("vectors", vectors)
        self.register_buffer("velocity", torch.zeros_like(vectors))
        self.register_buffer("origins", vectors.clone())
        self._draws = start == "features"
        if self._draws:
            self.register_buffer("drawn", torch.zeros((), dtype=torch.long, device=device))
        self.similarity = self.share = torch.tensor(torch.nan)

    def __len__(self) -> int:
        return len(self.vectors)

    def step(self, ascent: Ascent, keys: Tensor) -> None:
        """Take a step of SGD with momentum and weight decay UP the loss (eq. 7), in place.

        The gradient is in closed form, and averaged over the processes of a multi-process run.

        Args:
            ascent: the sums over the batch's anchors.
            keys: (B, D), which then replace adversaries that are still to be drawn from features.

        Raises:
            ValueError: if nothing keeps several processes' adversaries equal.
        """
        require_synchronised(self)  # while gradients are enabled
        with torch.no_grad():
            self.share, self.similarity = ascent.share / ascent.count, ascent.logits * self.temperature / ascent.count
            gradient = cosine_ascent_direction(self.vectors, ascent.pull) / (self.temperature * ascent.count)
            gradient = sum_over_processes(gradient) / get_world_size()
            self.velocity.mul_(self.momentum).add_(self.weight_decay * self.vectors - gradient)
            self.vectors.sub_(self.velocity, alpha=self.config["adversary_learning_rate"])
        if self._draws:
            self._draw(keys)

    @torch.no_grad()
    def _draw(self, keys: Tensor) -> None:
        features, _ = gather_rows(unit_rows(keys), across_devices=True)  # all processes have the same adversaries
        first = int(self.drawn)  # waits for the device, in the first steps only
        new = features[: len(self) - first]
        rows = slice(first, first + len(new))
        for vectors in (self.vectors, self.origins):
            vectors[rows] = new.to(vectors.dtype)
        self.velocity[rows] = 0
        self.drawn += len(new)
        self._draws = rows.stop < len(self)

    @property
    def angle(self) -> Tensor:
        """Mean angle in degrees by which they have turned since each was drawn; NaN before the first step (0-dim)."""
        return self.share if bool(self.share.isnan()) else mean_angle(self.origins, self.vectors)

    @property
    def instruments(self) -> dict[str, Tensor]:
        """The figures to log; none without adversaries."""
        if not len(self):
            return {}
        return {"adversary_similarity": self.similarity, "adversary_share": self.share, "adversary_angle": self.angle}
