"""Who tells how similar the sentences of a batch are: a frozen guide encoder, a table of its embeddings, or the model.

The trained model itself needs no guide: "self" stands for its own detached embeddings.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_instance
from st_extras.encoders.distributed import gather_rows
from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.fingerprint import PROBES, EncoderFingerprint
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap
from st_extras.functional import unit_rows

logger = logging.getLogger(__name__)

START = "start"
"""The complementary model that is a copy of the trained one as it is when the loss is made."""


class Guide(nn.Module):
    """A frozen encoder or a table of its embeddings, each sentence of a batch encoded once.

    Args:
        source: a :class:`~st_extras.encoders.FrozenEncoder` or an :class:`~st_extras.encoders.EmbeddingTable`.
        model: the trained model, whose tokenizer shows a sentence that a table does not have.
        gather_across_devices: compare with the sentences of all processes.

    The embeddings of a few texts by an encoder are part of the state: a training does not resume with another guide.

    Raises:
        ValueError: if a table was computed with another vocabulary.
    """

    def __init__(
        self, source: FrozenEncoder | EmbeddingTable, model: nn.Module, *, gather_across_devices: bool = False
    ) -> None:
        super().__init__()
        self.source = source
        self.gather_across_devices = gather_across_devices
        self._options: dict[str, Any] = {}
        if isinstance(source, EmbeddingTable):
            tokenizer = unwrap(model).tokenizer
            source.check_tokenizer(tokenizer)
            self._options = {"decode": tokenizer.decode}

    def get_extra_state(self) -> Tensor:
        """Return the guide's embeddings of the probe texts, (P, D) in float32; empty for a table."""
        if isinstance(self.source, EmbeddingTable):
            return torch.zeros(0, 0)
        found = self.source.encoder.encode(list(PROBES), convert_to_tensor=True, show_progress_bar=False)
        return found.float().cpu()

    def set_extra_state(self, state: Tensor) -> None:
        """Compare the guide with that of a checkpoint.

        Raises:
            ValueError: if it embeds the probe texts otherwise.
        """
        own = self.get_extra_state()
        if own.shape == state.shape and not own.numel():
            return
        difference = EncoderFingerprint("", "", own).difference(EncoderFingerprint("", "", state))
        if difference is not None:
            raise ValueError(
                "complementary_model must be the one that the training began with, got another encoder than the "
                f"checkpoint's: {difference}. With complementary_model={START!r}, make the loss from the encoder that "
                "the training started from."
            )

    def forward(self, columns: Sequence[Sequence[Features]] | None) -> tuple[Tensor, Tensor]:
        """Return the sentences' embeddings, (B, D), and their candidates', (world * B, D), all of length 1.

        Args:
            columns: the untouched columns in mini-batches; the candidates are those of the last one.

        Raises:
            ValueError: if there are none.
        """
        if columns is None:
            raise ValueError("sentence_features is None: the complementary model needs the tokenized columns.")
        embeddings = [torch.cat([self.source(part, **self._options) for part in column]) for column in columns]
        candidates, _ = gather_rows(embeddings[-1], self.gather_across_devices)
        return unit_rows(embeddings[0]), unit_rows(candidates)


def make_guide(
    model: SentenceTransformer,
    complementary_model: SentenceTransformer | str | PathLike[str] | None,
    complementary_table: EmbeddingTable | None,
    *,
    gather_across_devices: bool = False,
) -> Guide | str | None:
    """Return the guide of a complementary model, of "start" or of a table; "self" as it is.

    None if there is none of them, as in the recipe; the log then says that no negative is left out. A folder that is
    named "start" or "self" is given as a Path, or as "./start".

    Raises:
        ValueError: if both a model and a table are given, or one of them is something else.
    """
    check_instance("complementary_table", complementary_table, EmbeddingTable, or_none=True)
    if complementary_model is not None and complementary_table is not None:
        raise ValueError("complementary_model and complementary_table are two forms of one guide: give one, not both.")
    if isinstance(complementary_model, str) and complementary_model == "self":
        return "self"
    source: FrozenEncoder | EmbeddingTable
    if isinstance(complementary_model, str) and complementary_model == START:
        # adapters are copied with their layers, and frozen weights too: they may be trained later
        source = FrozenEncoder(copy.deepcopy(unwrap(model)).eval().requires_grad_(False), model)
        source.name = START
    elif complementary_model is not None:
        source = FrozenEncoder(complementary_model, model)
    elif complementary_table is not None:
        source = complementary_table
    else:
        logger.info(
            "DCLR without a complementary model does not debias: no negative is left out (the paper's ablation "
            "w/o instance weighting). To weight them, set complementary_model to the path or hub id of an encoder, "
            'to "start", a frozen copy of the model as it is now, or to "self".'
        )
        return None
    return Guide(source, model, gather_across_devices=gather_across_devices)
