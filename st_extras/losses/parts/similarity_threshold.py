"""From what cosine on two sentences are too similar to be negatives: a given one, or one that a share of pairs reach.

Source: phi of eq. 5 in Zhou et al., 2022, https://aclanthology.org/2022.acl-long.423; as a share it is ours.
"""

from __future__ import annotations

import torch
from sentence_transformers.util import get_world_size
from torch import Tensor, nn

from st_extras.checks import check_fraction, check_interval
from st_extras.encoders.distributed import gather_rows, sum_over_processes

PAPERS = 0.9
_MOST_PAIRS = 2**24
"""Most pairs of a batch whose quantile is taken, those of 4,096 sentences: torch.quantile takes no more."""
_ROUNDING = 1e-6
"""Cosines this close count as equal: without it, rounding would decide about sentences that are all alike."""


def share_quantile(cosines: Tensor, own: Tensor, share: float) -> Tensor:
    """Return the cosine that a share of the pairs reach: their (1 - share) quantile, interpolated linearly.

    Args:
        cosines: (R, K), of R sentences with the K candidates of a batch.
        own: (R,), the column of each row's own candidate, which is left out.
        share: in (0, 1).

    Returns:
        (), NaN if there are fewer than three candidates: a single pair has no quantiles.
    """
    count = cosines.size(1)
    if count < 3:
        return cosines.new_full((), torch.nan)
    is_own = own.unsqueeze(1) == torch.arange(count, device=cosines.device)
    return cosines.masked_fill(is_own, torch.nan).nanquantile(1 - share)


class SimilarityThreshold(nn.Module):
    """phi: given, or the mean over the training batches so far of the cosine that a share of each batch's pairs reach.

    The batches of a shuffled text are random pairs of it. A batch counts once, however often the loss runs on it, and
    only with gradients; without, it gets the phi so far, or its own if there is none yet. Batches of fewer than three
    sentences do not count. As long as no batch has counted, nothing in them is too similar.

    Args:
        threshold: phi, in (-1, 1]. None: 0.9, unless there is a share.
        masked_share: share of the pairs that are at or above phi, in (0, 1). In place of ``threshold``.
        gather_across_devices: take the pairs of all processes together. Otherwise, phi is the mean over them.
        device: where the state of a share is kept.

    Raises:
        ValueError: if one of them is out of range, or both are given.
    """

    mean: Tensor
    batches: Tensor

    def __init__(
        self,
        threshold: float | None,
        masked_share: float | None,
        *,
        gather_across_devices: bool = False,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.given = None
        self.share = None if masked_share is None else check_fraction("masked_share", masked_share)
        if threshold is not None:
            self.given = check_interval("threshold", threshold, -1, 1, low_included=False)
        if self.given is not None and self.share is not None:
            raise ValueError(
                "threshold and masked_share are two ways to set phi: give one of them, got "
                f"threshold={self.given} and masked_share={self.share}."
            )
        self.gather_across_devices = gather_across_devices
        if self.share is None:
            self.given = PAPERS if self.given is None else self.given
        else:  # not a sum, which half precision, if the loss is cast to it, could not add up
            self.register_buffer("mean", torch.zeros((), device=device))
            self.register_buffer("batches", torch.zeros((), dtype=torch.long, device=device))

    def forward(self, cosines: Tensor, *, first: bool = True) -> float | Tensor:
        """Return phi for a batch, whose pairs at or above it are too similar; () if it is that of a share.

        Args:
            cosines: (R, world * B), the guide's, of the first R of this process's B sentences with all candidates. Of
                these rows, ``most_rows`` are used.
            first: whether the loss has not run on this batch before.
        """
        if self.share is None:
            return self.value
        found = self._of_batch(cosines[: self.most_rows(cosines.size(1))], self.share)
        if torch.is_grad_enabled() and first:
            self._count(found)
        phi = torch.where(self.batches > 0, self.mean, found) - _ROUNDING
        return phi.nan_to_num(nan=torch.inf)

    def most_rows(self, candidates: int) -> int:
        """Return how many of a process's sentences are compared with all candidates to find phi: B up to 4,096."""
        processes = get_world_size() if self.gather_across_devices else 1
        return max(1, _MOST_PAIRS // (candidates * processes))

    def _of_batch(self, cosines: Tensor, share: float) -> Tensor:
        every, _ = gather_rows(cosines, self.gather_across_devices)  # (processes * R, world * B)
        row = torch.arange(len(every), device=cosines.device)
        processes = len(every) // len(cosines)
        own = row // len(cosines) * (cosines.size(1) // processes) + row % len(cosines)
        return share_quantile(every, own, share)

    def _count(self, found: Tensor) -> None:
        if not self.gather_across_devices:
            found = sum_over_processes(found.clone()) / get_world_size()
        counts = found.isfinite()
        self.batches += counts
        self.mean += torch.where(counts, (found - self.mean) / self.batches.clamp(min=1), 0.0).to(self.mean.dtype)

    @property
    def value(self) -> float | Tensor:
        """phi: a number if it was given; that of a share is a 0-dim tensor, NaN before the first training batch."""
        if self.given is not None:
            return self.given
        return torch.where(self.batches > 0, self.mean, torch.nan)

    @property
    def config(self) -> dict[str, float | None]:
        """The settings, for the model card."""
        return {"threshold": self.given, "masked_share": self.share}
