"""How similar the sentences of a batch are: by a frozen guide encoder, or by the trained model itself."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from os import PathLike

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_instance
from st_extras.encoders.distributed import gather_rows
from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap
from st_extras.functional import cosine_scores, unit_rows, unit_scores
from st_extras.losses.parts.gradient_cache import mini_batches

logger = logging.getLogger(__name__)

START = "start"
"""The complementary model that is a copy of the trained one as it is when the loss is made."""

Similarities = Callable[[Sequence[Features] | None, Tensor], Tensor]
"""(the untouched columns, the trained model's cosines (B, world * B)) -> cosines to compare with a threshold."""


def self_similarities(columns: Sequence[Features] | None, cosines: Tensor) -> Tensor:
    """Return the trained model's own cosines, as constants."""
    return cosines.detach()


class GuideSimilarities(nn.Module):
    """The guide's cosines of the first column's sentences with the last column's, each sentence encoded once.

    Args:
        guide: a :class:`~st_extras.encoders.FrozenEncoder` or an :class:`~st_extras.encoders.EmbeddingTable`.
        model: the trained model, whose tokenizer shows a sentence that a table does not have.
        gather_across_devices: compare with the sentences of all processes.

    Raises:
        ValueError: if a table was computed with another vocabulary.
    """

    def __init__(
        self, guide: FrozenEncoder | EmbeddingTable, model: nn.Module, *, gather_across_devices: bool = False
    ) -> None:
        super().__init__()
        self.guide = guide
        self.gather_across_devices = gather_across_devices
        self._options = {}
        if isinstance(guide, EmbeddingTable):
            tokenizer = unwrap(model).tokenizer
            guide.check_tokenizer(tokenizer)
            self._options = {"decode": tokenizer.decode}

    def forward(self, columns: Sequence[Features] | None, cosines: Tensor) -> Tensor:
        """Return (B, world * B) cosines; ``cosines``, the trained model's, are not used.

        Raises:
            ValueError: if ``columns`` is None.
        """
        return cosine_scores(*self.embed(_given(columns)))

    def embed(self, columns: Sequence[Features], mini_batch_size: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the guide's embeddings of the sentences, (B, D), and of their candidates, (world * B, D).

        With ``mini_batch_size``, the guide encodes that many sentences at a time.
        """
        embeddings = [
            torch.cat([self.guide(part, **self._options) for part in mini_batches(column, mini_batch_size)])
            for column in columns
        ]
        candidates, _ = gather_rows(embeddings[-1], self.gather_across_devices)
        return embeddings[0], candidates


def similarities_of_rows(
    similarities: Similarities, columns: Sequence[Features] | None, mini_batch_size: int
) -> Callable[[Tensor, int], Tensor]:
    """Return a function of the trained model's cosines of some rows, (b, world * B), and the first row's index.

    It returns what ``similarities`` does for those rows, with a guide's embeddings made here, once.

    Raises:
        ValueError: if there is a guide and ``columns`` is None.
    """
    if not isinstance(similarities, GuideSimilarities):
        return lambda cosines, begin: similarities(columns, cosines)
    sentences, candidates = (unit_rows(x) for x in similarities.embed(_given(columns), mini_batch_size))
    return lambda cosines, begin: unit_scores(sentences[begin : begin + len(cosines)], candidates)


def _given(columns: Sequence[Features] | None) -> Sequence[Features]:
    if columns is None:
        raise ValueError("sentence_features is None: the complementary model needs the tokenized columns.")
    return columns


def make_similarities(
    model: SentenceTransformer,
    complementary_model: SentenceTransformer | str | PathLike[str] | None,
    complementary_table: EmbeddingTable | None,
    *,
    gather_across_devices: bool = False,
) -> Similarities | None:
    """Return the similarities of a complementary model, of "start", of "self" or of a table.

    None if there is none of them, with a warning: then no negative is left out. A folder that is named "start" or
    "self" is given as a Path, or as "./start".

    Raises:
        ValueError: if both a model and a table are given, or one of them is something else.
    """
    check_instance("complementary_table", complementary_table, EmbeddingTable, or_none=True)
    if complementary_model is not None and complementary_table is not None:
        raise ValueError("complementary_model and complementary_table are two forms of one guide: give one, not both.")
    if isinstance(complementary_model, str) and complementary_model == "self":
        return self_similarities
    guide: FrozenEncoder | EmbeddingTable
    if isinstance(complementary_model, str) and complementary_model == START:
        guide = FrozenEncoder(frozen_copy(model), model)
        guide.name = START
    elif complementary_model is not None:
        guide = FrozenEncoder(complementary_model, model)
    elif complementary_table is not None:
        guide = complementary_table
    else:
        logger.warning(
            "DCLR without a complementary model does not debias: no negative is left out (the paper's ablation "
            "w/o instance weighting). To weight them, set complementary_model to the path or hub id of an encoder, "
            'to "start", a frozen copy of the model as it is now, or to "self".'
        )
        return None
    return GuideSimilarities(guide, model, gather_across_devices=gather_across_devices)


def frozen_copy(model: nn.Module) -> SentenceTransformer:
    """Return a deep copy of the encoder as it is, in evaluation mode and without gradients.

    Adapters are copied together with the layers that hold them. Frozen weights are copied too: they may be trained
    later.
    """
    return copy.deepcopy(unwrap(model)).eval().requires_grad_(False)


def describe_similarities(similarities: Similarities | None) -> str | None:
    """Return what the similarities come from, for the model card."""
    if isinstance(similarities, GuideSimilarities):
        return similarities.guide.name
    return None if similarities is None else "self"
