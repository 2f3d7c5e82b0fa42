"""Which pairs of a batch are negatives: those that a guide finds less similar than a threshold (DCLR, eq. 5).

Source: Zhou et al., 2022, https://aclanthology.org/2022.acl-long.423; a threshold that a share of pairs sets is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import get_world_size
from torch import Tensor, nn

from st_extras.checks import check_fraction, check_interval
from st_extras.encoders.distributed import gather_rows, sum_over_processes
from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap
from st_extras.functional import unit_rows, unit_scores
from st_extras.losses.parts.guide import Guide, make_guide

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


class InstanceWeights(nn.Module):
    """alpha: 0 for a pair at or above the threshold phi, else 1, some rows of a batch at a time.

    With ``masked_share``, phi is the mean over the training batches so far of the cosine that this share of a batch's
    pairs reach. The batches of a shuffled text are random pairs of it. A batch counts once, however often the loss runs
    on it, and only with gradients; without, it gets the phi so far, or its own if there is none yet. Batches of fewer
    than three sentences do not count. As long as no batch has counted, nothing in them is too similar.

    Args:
        model: the trained model.
        complementary_model: the guide, see :func:`~st_extras.losses.parts.guide.make_guide`.
        complementary_table: a table of its embeddings.
        threshold: phi, in (-1, 1]. None: 0.9, unless there is a share.
        masked_share: share of the pairs that are at or above phi, in (0, 1). In place of ``threshold``.
        gather_across_devices: compare with the sentences of all processes, and find phi in the pairs of all of them.
            Otherwise, phi is the mean over the processes.

    Attributes:
        guide: the guide, "self" for the trained model's own embeddings, or None: there are no weights.
        masked_negatives: share of the in-batch negatives with weight 0 in the last training step; NaN before (0-dim).
        anchors_without_negatives: number of anchors that had no negative of another weight there either (0-dim).

    Raises:
        ValueError: if the guide is not what it must be, phi is out of range, or a share is given beside it or without
            a guide.
    """

    mean: Tensor
    batches: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        complementary_model: SentenceTransformer | str | PathLike[str] | None,
        complementary_table: EmbeddingTable | None,
        *,
        threshold: float | None,
        masked_share: float | None,
        gather_across_devices: bool,
    ) -> None:
        super().__init__()
        self.given, self.share = threshold, masked_share
        if threshold is not None:
            self.given = check_interval("threshold", threshold, -1, 1, low_included=False)
        elif masked_share is None:
            self.given = PAPERS
        if masked_share is not None:  # not a sum, which half precision, if the loss is cast to it, could not add up
            self.share, device = check_fraction("masked_share", masked_share), unwrap(model).device
            self.register_buffer("mean", torch.zeros((), device=device))
            self.register_buffer("batches", torch.zeros((), dtype=torch.long, device=device))
            if threshold is not None:
                raise ValueError(
                    "threshold and masked_share are two ways to set phi: give one of them, got "
                    f"threshold={self.given} and masked_share={self.share}."
                )
            if complementary_model is None and complementary_table is None:
                raise ValueError(
                    f"masked_share needs a guide, got masked_share={masked_share} without one: set complementary_model,"
                    ' to "start" if you have no better encoder, or complementary_table.'
                )
        self.gather_across_devices = gather_across_devices
        self.guide = make_guide(
            model, complementary_model, complementary_table, gather_across_devices=gather_across_devices
        )
        self.masked_negatives = torch.tensor(torch.nan)
        self.anchors_without_negatives = torch.tensor(0)

    def forward(
        self, anchors: Tensor, candidates: Tensor, columns: Sequence[Sequence[Features]] | None, *, first: bool
    ) -> Callable[[int, int], Tensor] | None:
        """Return what gives the weights of the anchors from one index to another, (b, world * B); None without a guide.

        Args:
            anchors: the trained model's, (B, D).
            candidates: its candidates, (world * B, D), of length 1.
            columns: the untouched columns in mini-batches.
            first: whether the loss has not run on this batch before.
        """
        if self.guide is None:
            return None
        if isinstance(self.guide, Guide):
            sentences, others = self.guide(columns)
        else:
            sentences, others = unit_rows(anchors.detach()), candidates.detach()
        phi = self.phi(sentences, others, first=first)
        return lambda begin, end: (unit_scores(sentences[begin:end], others) < phi).to(candidates.dtype)

    def phi(self, sentences: Tensor, candidates: Tensor, *, first: bool = True) -> float | Tensor:
        """Return phi for a batch; () if it is that of a share.

        Args:
            sentences: (B, D), the guide's, of length 1, of this process.
            candidates: (world * B, D), those they are compared with.
            first: whether the loss has not run on this batch before.
        """
        if self.given is not None:
            return self.given
        found = self._of_batch(unit_scores(sentences[: self.most_rows(len(candidates))], candidates))
        if torch.is_grad_enabled() and first:
            self._count(found)
        return (torch.where(self.batches > 0, self.mean, found) - _ROUNDING).nan_to_num(nan=torch.inf)

    def most_rows(self, candidates: int) -> int:
        """Return how many of a process's sentences are compared with all candidates to find phi: B up to 4,096."""
        processes = get_world_size() if self.gather_across_devices else 1
        return max(1, _MOST_PAIRS // (candidates * processes))

    def _of_batch(self, cosines: Tensor) -> Tensor:
        every, _ = gather_rows(cosines, self.gather_across_devices)  # (processes * R, world * B)
        row = torch.arange(len(every), device=cosines.device)
        processes = len(every) // len(cosines)
        own = row // len(cosines) * (cosines.size(1) // processes) + row % len(cosines)
        return share_quantile(every, own, cast(float, self.share))

    def _count(self, found: Tensor) -> None:
        if not self.gather_across_devices:
            found = sum_over_processes(found.clone()) / get_world_size()
        counts = found.isfinite()
        self.batches += counts
        self.mean += torch.where(counts, (found - self.mean) / self.batches.clamp(min=1), 0.0).to(self.mean.dtype)

    def measure(self, negatives: Tensor, candidates: int, *, others: bool) -> None:
        """Remember what a training step has left of the ``candidates - 1`` negatives of each anchor.

        Args:
            negatives: (B,), see ``count_negatives``.
            candidates: number of candidates, world * B.
            others: whether the denominator has other terms than these negatives.
        """
        self.masked_negatives = 1 - negatives.mean() / (candidates - 1 or torch.nan)
        if not others:
            self.anchors_without_negatives = (negatives == 0).sum()

    @property
    def instruments(self) -> dict[str, Tensor]:
        """Phi if it is found, and the share of masked negatives; NaN before the first step."""
        phi = {} if self.share is None else {"threshold": torch.where(self.batches > 0, self.mean, torch.nan)}
        return phi if self.guide is None else phi | {"masked_negatives": self.masked_negatives}

    @property
    def config(self) -> dict[str, Any]:
        """The settings, for the model card."""
        name = self.guide.source.name if isinstance(self.guide, Guide) else self.guide
        return {"complementary": name, "threshold": self.given, "masked_share": self.share}


def count_negatives(weights: Tensor, offset: int) -> Tensor:
    """Return how many in-batch negatives each anchor has, (b,), of the weights (b, K) of candidates."""
    return weights.sum(dim=1) - weights.diagonal(offset=offset)
