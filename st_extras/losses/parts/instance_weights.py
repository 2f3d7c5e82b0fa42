"""DCLR's instance weights: pairs of a batch that a guide finds too similar are not negatives (eq. 5).

The guide is a frozen encoder, or a table of its embeddings; or "self", the trained model's own detached embeddings.

Zhou et al., 2022, https://aclanthology.org/2022.acl-long.423; finding the threshold by a share of the pairs is ours.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import get_world_size
from torch import Tensor, nn

from st_extras.checks import check_fraction, check_instance, check_interval
from st_extras.encoders.distributed import gather_rows, sum_over_processes
from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap
from st_extras.functional import unit_rows, unit_scores

logger = logging.getLogger(__name__)

START = "start"
"""Names the guide that is a frozen copy of the trained model, made with the loss."""
DEFAULT_THRESHOLD = 0.9
"""The paper's."""
_MOST_PAIRS = 2**24
"""Most pairs that torch.quantile takes, those of 4,096 sentences."""
_ROUNDING = 1e-6
"""Cosines this close count as equal: otherwise rounding would decide between sentences that are all alike."""


class Guide(nn.Module):
    """Embeds the sentences of a batch, each once, with a frozen encoder or a table of its embeddings.

    A frozen encoder's embeddings of a few probe texts are part of the state, so that a training cannot resume with
    another guide.

    Args:
        encoder: a :class:`~st_extras.encoders.FrozenEncoder` or an :class:`~st_extras.encoders.EmbeddingTable`.
        model: the trained model, whose tokenizer decodes a sentence that a table lacks, for the message.
        gather_across_devices: compare with the sentences of all processes.
    """

    def __init__(
        self, encoder: FrozenEncoder | EmbeddingTable, model: nn.Module, *, gather_across_devices: bool = False
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.gather_across_devices = gather_across_devices
        self._options: dict[str, Any] = {}
        if isinstance(encoder, EmbeddingTable):
            self._options = {"decode": unwrap(model).tokenizer.decode}

    def get_extra_state(self) -> Tensor:
        """Return the guide's embeddings of the probe texts, (P, D) in float32; empty for a table."""
        if isinstance(self.encoder, EmbeddingTable):
            return torch.zeros(0, 0)
        return EncoderFingerprint.of(self.encoder.encoder).probes

    def set_extra_state(self, state: Tensor) -> None:
        """Compare the guide with that of a checkpoint.

        Raises:
            ValueError: if the guide's embeddings of the probe texts differ.
        """
        if isinstance(self.encoder, EmbeddingTable):
            difference = "a table here" if state.numel() else None
        else:
            own = EncoderFingerprint.of(self.encoder.encoder)
            difference = own.difference(replace(own, probes=state))
        if difference is not None:
            raise ValueError(
                "complementary_model must be the encoder that the checkpoint was trained with, got another one: "
                f"{difference}. With complementary_model={START!r}, make the loss from the base model of that "
                "training."
            )

    def forward(self, columns: Sequence[Sequence[Features]] | None) -> tuple[Tensor, Tensor]:
        """Return the embeddings of the sentences, (B, D), and of the candidates, (world * B, D), all of length 1.

        Args:
            columns: the tokenized columns, as they were before augmentation, in mini-batches. The candidates are the
                sentences of the last column.

        Raises:
            ValueError: if ``columns`` is None.
        """
        if columns is None:
            raise ValueError("sentence_features must be the tokenized columns, for the guide, got None.")
        embeddings = [torch.cat([self.encoder(part, **self._options) for part in column]) for column in columns]
        candidates, _ = gather_rows(embeddings[-1], self.gather_across_devices)
        return unit_rows(embeddings[0]), unit_rows(candidates)


def make_guide(
    model: SentenceTransformer,
    complementary_model: SentenceTransformer | str | PathLike[str] | None,
    complementary_table: EmbeddingTable | None,
    *,
    gather_across_devices: bool = False,
) -> Guide | str | None:
    """Return the guide that DCLR's arguments name.

    Args:
        model: the trained model.
        complementary_model: an encoder, its path or hub id; "start" for a frozen copy of ``model``; "self", which is
            returned unchanged. A folder named "start" or "self" is given as a Path, or as "./start".
        complementary_table: a table of the guide's embeddings.
        gather_across_devices: compare with the sentences of all processes.

    Returns:
        The guide; None if there is neither a model nor a table, and then the log says that no negative is left out.

    Raises:
        ValueError: if both a model and a table are given, or one of them is something else.
    """
    check_instance("complementary_table", complementary_table, EmbeddingTable, or_none=True)
    if complementary_model is not None and complementary_table is not None:
        raise ValueError("complementary_table must be None with a complementary_model, got both: give one of them.")
    if isinstance(complementary_model, str) and complementary_model == "self":
        return "self"
    encoder: FrozenEncoder | EmbeddingTable
    if isinstance(complementary_model, str) and complementary_model == START:
        # frozen weights and adapters are copied as well: they may be trained later
        encoder = FrozenEncoder(copy.deepcopy(unwrap(model)).eval().requires_grad_(False), model)
        encoder.name = START
    elif complementary_model is not None:
        encoder = FrozenEncoder(complementary_model, model)
    elif complementary_table is not None:
        encoder = complementary_table
    else:
        logger.info(
            "DCLR without a guide does not debias: no negative is left out (the paper's ablation "
            "w/o instance weighting). To weight them, set complementary_model to the path or hub id of an encoder, "
            'to "start", a frozen copy of the model before training, or to "self".'
        )
        return None
    return Guide(encoder, model, gather_across_devices=gather_across_devices)


def share_quantile(cosines: Tensor, own: Tensor, share: float) -> Tensor:
    """Return the cosine that this share of the pairs reaches: their (1 - share) quantile, interpolated linearly.

    Args:
        cosines: (R, K), of R sentences and the K candidates of a batch.
        own: (R,), the column of each sentence's own candidate, which is left out.
        share: in (0, 1).

    Returns:
        (), NaN for fewer than three candidates, as a single pair has no quantiles.
    """
    count = cosines.size(1)
    if count < 3:
        return cosines.new_full((), torch.nan)
    is_own = own.unsqueeze(1) == torch.arange(count, device=cosines.device)
    return cosines.masked_fill(is_own, torch.nan).nanquantile(1 - share)


class InstanceWeights(nn.Module):
    """Weighs the negatives of a batch (alpha): 0 for a pair at least as similar as the threshold phi, otherwise 1.

    With ``masked_share``, phi is estimated: the cosine that this share of a batch's pairs reaches, averaged over the
    training batches so far (in a shuffled corpus, batches are random pairs of it). A batch counts while gradients are
    enabled; otherwise it gets the estimate so far, or its own if there is none yet. It counts once: MatryoshkaLoss runs
    the loss for every dimension, and a cosine equal to the last one does not count again. With the guide "self", whose
    cosines differ from dimension to dimension, each dimension counts, and phi is the mean over all of them. Batches of
    fewer than three sentences do not count, and nothing in them is masked before the first batch has counted.

    Args:
        model: the trained model.
        complementary_model: the guide, see :func:`make_guide`.
        complementary_table: a table of its embeddings.
        threshold: phi, in (-1, 1]. None: 0.9, unless ``masked_share`` is given.
        masked_share: instead of ``threshold``, the share of the pairs at or above phi, in (0, 1).
        gather_across_devices: compare with the sentences of all processes, and estimate phi from all these pairs.
            Otherwise, phi is the mean of the processes' estimates.

    Attributes:
        guide: the guide, "self" for the trained model's own embeddings, or None: all weights are 1.
        masked_negatives: share of the in-batch negatives with weight 0 in the last training step; NaN before (0-dim).
        anchors_without_negatives: number of anchors all of whose in-batch negatives had weight 0 in it (0-dim).

    Raises:
        ValueError: if the guide is of another type, phi is out of range, or a share is given together with a threshold
            or without a guide.
    """

    mean: Tensor
    last: Tensor
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
        self.threshold, self.share = threshold, masked_share
        if threshold is not None:
            self.threshold = check_interval("threshold", threshold, -1, 1, low_included=False)
        elif masked_share is None:
            self.threshold = DEFAULT_THRESHOLD
        if masked_share is not None:  # a mean, not a sum: the loss may be cast to half precision, which cannot add up
            self.share, device = check_fraction("masked_share", masked_share), unwrap(model).device
            self.register_buffer("mean", torch.zeros((), device=device))
            self.register_buffer("last", torch.full((), 2.0, device=device))  # no cosine: none has counted
            self.register_buffer("batches", torch.zeros((), dtype=torch.long, device=device))
            if threshold is not None:
                raise ValueError(
                    f"threshold must be None with masked_share={self.share}, which finds it, got {threshold}: give "
                    "one of them."
                )
            if complementary_model is None and complementary_table is None:
                raise ValueError(
                    f"masked_share needs a guide, got {masked_share} without one: set complementary_model "
                    '(to "start" if you have no better encoder) or complementary_table.'
                )
        self.gather_across_devices = gather_across_devices
        self.guide = make_guide(
            model, complementary_model, complementary_table, gather_across_devices=gather_across_devices
        )
        self.masked_negatives = torch.tensor(torch.nan)
        self.anchors_without_negatives = torch.tensor(0)

    def forward(
        self,
        anchors: Tensor,
        candidates: Tensor,
        columns: Sequence[Sequence[Features]] | None,
    ) -> Callable[[int, int], Tensor]:
        """Return a function: (begin, end) -> the weights of these anchors' pairs with all candidates.

        They are (end - begin, world * B), by the guide that there must be: never those of the whole batch at a time.

        Args:
            anchors: (B, D), the trained model's.
            candidates: (world * B, D), the trained model's, of length 1.
            columns: the tokenized columns in mini-batches, which the guide embeds.
        """
        if isinstance(self.guide, Guide):
            sentences, others = self.guide(columns)
        else:
            sentences, others = unit_rows(anchors.detach()), candidates.detach()
        phi = self.phi(sentences, others)
        return lambda begin, end: (unit_scores(sentences[begin:end], others) < phi).to(candidates.dtype)

    def phi(self, sentences: Tensor, candidates: Tensor) -> float | Tensor:
        """Return phi for a batch, a tensor () if it is estimated.

        Args:
            sentences: (B, D), the guide's embeddings of this process's sentences, of length 1.
            candidates: (world * B, D), the guide's embeddings of the candidates, of length 1.
        """
        if self.threshold is not None:
            return self.threshold
        estimate = self._batch_quantile(unit_scores(sentences[: self.most_rows(len(candidates))], candidates))
        if torch.is_grad_enabled():
            self._count(estimate)
        return (torch.where(self.batches > 0, self.mean, estimate) - _ROUNDING).nan_to_num(nan=torch.inf)

    def most_rows(self, candidates: int) -> int:
        """Return how many of a process's sentences are compared with all candidates to estimate phi: at most 4,096."""
        processes = get_world_size() if self.gather_across_devices else 1
        return max(1, _MOST_PAIRS // (candidates * processes))

    def _batch_quantile(self, cosines: Tensor) -> Tensor:
        every, _ = gather_rows(cosines, self.gather_across_devices)  # (processes * R, world * B)
        row = torch.arange(len(every), device=cosines.device)
        processes = len(every) // len(cosines)
        own = row // len(cosines) * (cosines.size(1) // processes) + row % len(cosines)
        return share_quantile(every, own, cast(float, self.share))

    def _count(self, estimate: Tensor) -> None:
        if not self.gather_across_devices:
            estimate = sum_over_processes(estimate.clone()) / get_world_size()
        counts = estimate.isfinite() & (estimate != self.last)
        self.last.copy_(torch.where(counts, estimate, self.last))
        self.batches += counts
        self.mean += torch.where(counts, (estimate - self.mean) / self.batches.clamp(min=1), 0.0).to(self.mean.dtype)

    def record(self, negatives: Tensor, candidates: int) -> None:
        """Keep what a training step has left of the negatives, for the instruments.

        Args:
            negatives: (B,), the number of in-batch negatives with weight 1 of each anchor.
            candidates: number of candidates of each anchor.
        """
        self.masked_negatives = 1 - negatives.mean() / (candidates - 1 or torch.nan)
        self.anchors_without_negatives = (negatives == 0).sum()

    @property
    def instruments(self) -> dict[str, Tensor]:
        """Phi if it is estimated, and the share of masked negatives; NaN before the first step."""
        phi = {} if self.share is None else {"threshold": torch.where(self.batches > 0, self.mean, torch.nan)}
        return phi if self.guide is None else phi | {"masked_negatives": self.masked_negatives}

    @property
    def config(self) -> dict[str, Any]:
        """The settings, for the model card."""
        name = self.guide.encoder.name if isinstance(self.guide, Guide) else self.guide
        return {"complementary": name, "threshold": self.threshold, "masked_share": self.share}
