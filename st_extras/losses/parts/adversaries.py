"""Learned adversaries: vectors that are negatives of a contrastive loss and climb that loss (AdCSE, eq. 5 and 7).

Source: Li et al., 2022, https://doi.org/10.1007/978-3-031-00129-1_11.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.util import get_world_size
from torch import Tensor, nn

from st_extras.checks import check_choice, check_interval, check_temperature, check_weight
from st_extras.encoders.distributed import gather_rows, require_synchronised, sum_over_processes
from st_extras.functional import (
    anchor_pull,
    cosine_ascent_direction,
    cosine_scores,
    full_precision,
    mean_angle,
    unit_rows,
    weighted_info_nce,
)
from st_extras.random_source import RandomSource


def check_shapes(queries: Tensor, keys: Tensor, adversaries: Tensor) -> None:
    """Refuse (B, D) queries and keys that do not fit each other or the (M, D) adversaries.

    Raises:
        ValueError: if the dimensions or the numbers of rows differ.
    """
    sizes = {queries.size(-1), keys.size(-1), adversaries.size(-1)}
    if len(sizes) > 1 or len(queries) != len(keys):
        raise ValueError(
            f"AdCSELoss was made for embeddings of {adversaries.size(-1)} dimensions, got queries "
            f"{tuple(queries.shape)} and keys {tuple(keys.shape)}: make the loss after the model is complete."
        )


def adversarial_info_nce(
    queries: Tensor,
    keys: Tensor,
    adversaries: Tensor,
    *,
    temperature: float,
    in_batch_negatives: bool = True,
    offset: int = 0,
) -> tuple[Tensor, Tensor]:
    """Compute eq. 5: InfoNCE with learned vectors as further negatives.

    Args:
        queries: (B, D).
        keys: (K, D); the positive of query i is key ``i + offset``.
        adversaries: (M, D).
        temperature: tau.
        in_batch_negatives: use the other keys as negatives too.
        offset: index of row 0's key (keys gathered across processes).

    Returns:
        The loss, (), and the logits of its softmax, (B, K + M), detached: -inf where a key is not a negative.
    """
    negatives = adversary_scores(queries, adversaries, temperature)
    return contrast_with(cosine_scores(queries, keys, temperature), negatives, in_batch_negatives, offset)


def adversary_scores(queries: Tensor, adversaries: Tensor, temperature: float = 1.0) -> Tensor:
    """Return cosines of queries, (B, D), and adversaries, (M, D), divided by the temperature: (B, M)."""
    return cosine_scores(queries, adversaries.to(full_precision(queries).dtype), temperature)


def contrast_with(
    key_scores: Tensor, negatives: Tensor, in_batch_negatives: bool, offset: int
) -> tuple[Tensor, Tensor]:
    """Return what :func:`adversarial_info_nce` does, of the scores of keys, (B, K), and of adversaries, (B, M)."""
    scores, keys = torch.cat([key_scores, negatives], dim=1), key_scores.size(1)
    weights = None
    if not in_batch_negatives:
        weights = torch.ones_like(scores)
        weights[:, :keys] = 0
        weights.diagonal(offset=offset).fill_(1)
    loss = weighted_info_nce(scores, weights, offset=offset)
    return loss, scores.detach() if weights is None else scores.detach() + weights.log()


def adversary_shares(logits: Tensor, count: int, sharpness: float = 1.0) -> Tensor:
    """Return the share of the softmax that each adversary takes at each query, (B, M).

    Args:
        logits: (B, K + M), those of :func:`adversarial_info_nce`.
        count: M.
        sharpness: factor of the logits: their temperature divided by that of the softmax.
    """
    scaled = logits if sharpness == 1 else logits * sharpness
    return scaled.softmax(dim=1)[:, logits.size(1) - count :]


@torch.no_grad()
def mean_similarity(anchors: Tensor, adversaries: Tensor) -> Tensor:
    """Return the mean cosine, (), of B anchors and M adversaries: are they hard negatives?"""
    return adversary_scores(anchors, adversaries).mean()


class Climb:
    """What a step of the adversaries takes from a batch, mini-batch after mini-batch.

    Args:
        adversaries: (M, D).
        sharpness: temperature of the loss divided by that of the loss that the adversaries climb.

    Attributes:
        count: number of anchors.
        pull: (M, D), see :func:`~st_extras.functional.anchor_pull`, by the shares at the climb's temperature.
        share: mean share of the loss's softmax that the adversaries take, ().
        similarity: mean cosine of anchors and adversaries, ().
    """

    def __init__(self, adversaries: Tensor, sharpness: float = 1.0) -> None:
        self._adversaries = adversaries
        self._sharpness = sharpness
        self.count = 0
        self.pull = self.share = self.similarity = adversaries.new_zeros(())

    @torch.no_grad()
    def add(self, anchors: Tensor, logits: Tensor) -> None:
        """Add anchors, (b, D), with the logits of the loss's softmax at each of them, (b, K + M)."""
        shares = climbing = adversary_shares(logits, len(self._adversaries))
        if self._sharpness != 1:
            climbing = adversary_shares(logits, len(self._adversaries), self._sharpness)
        pull, share = anchor_pull(anchors, climbing), shares.sum(dim=1).mean()
        similarity, part = mean_similarity(anchors, self._adversaries), len(anchors) / (self.count + len(anchors))
        self.pull = self.pull + pull if self.count else pull
        self.share = torch.lerp(self.share, share, part) if self.count else share
        self.similarity = torch.lerp(self.similarity, similarity, part) if self.count else similarity
        self.count += len(anchors)


@torch.no_grad()
def ascend(
    adversaries: Tensor,
    velocity: Tensor,
    pull: Tensor,
    count: int,
    *,
    temperature: float,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Move the adversaries, in place, one step of SGD with momentum and weight decay UP the loss (eq. 7).

    The gradient is in closed form, and averaged over the processes of a multi-process run.

    Args:
        adversaries: (M, D).
        velocity: (M, D), the momentum of earlier steps.
        pull: (M, D), see :func:`~st_extras.functional.anchor_pull`, of each adversary's share of the softmax at each
            anchor.
        count: B, number of anchors.
        temperature: tau of that softmax.
        learning_rate: alpha.
        momentum: mu.
        weight_decay: lambda.
    """
    gradient = cosine_ascent_direction(adversaries, pull) / (temperature * count)
    gradient = sum_over_processes(gradient) / get_world_size()
    velocity.mul_(momentum).add_(weight_decay * adversaries - gradient)
    adversaries.sub_(velocity, alpha=learning_rate)


class Adversaries(nn.Module):
    """Draws the adversaries, keeps them with their velocity, and lets them climb.

    Args:
        count: M.
        dimension: D.
        device: where they are kept.
        start: "random": drawn from N(0, I); "features": each is then replaced, once, by a key of the first batches.
        learning_rate: alpha.
        momentum: mu.
        weight_decay: lambda.
        temperature: tau of the loss.
        climbed_temperature: tau of the loss that they climb. None: ``temperature``.
        generator: draws them, on the device. None: one is made from torch's seed.

    Attributes:
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

    def __init__(
        self,
        count: int,
        dimension: int,
        device: torch.device,
        *,
        start: str,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        temperature: float,
        climbed_temperature: float | None,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.start = check_choice("adversary_start", start, ("random", "features"))
        self.learning_rate = check_weight("adversary_learning_rate", learning_rate)
        self.momentum = check_interval("adversary_momentum", momentum, 0, 1, high_included=False)
        self.weight_decay = check_weight("adversary_weight_decay", weight_decay)
        self.temperature = temperature
        if climbed_temperature is not None:
            climbed_temperature = check_temperature("adversary_temperature", climbed_temperature)
        self.climbed_temperature = climbed_temperature
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

    def new_climb(self) -> Climb:
        """Return what collects a step's anchors."""
        return Climb(self.vectors, self.temperature / (self.climbed_temperature or self.temperature))

    def climb(self, step: Climb, keys: Tensor) -> None:
        """Take a step; then replace those that are still to be drawn from features, by the batch's keys, (B, D).

        Raises:
            ValueError: if nothing keeps several processes' adversaries equal.
        """
        require_synchronised(self)
        self.share, self.similarity = step.share, step.similarity
        ascend(
            self.vectors,
            self.velocity,
            step.pull,
            step.count,
            temperature=self.climbed_temperature or self.temperature,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )
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

    @property
    def config(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {
            "num_adversaries": len(self),
            "adversary_start": self.start,
            "adversary_learning_rate": self.learning_rate,
            "adversary_momentum": self.momentum,
            "adversary_weight_decay": self.weight_decay,
            "adversary_temperature": self.climbed_temperature,
        }
