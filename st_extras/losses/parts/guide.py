"""DCLR's guide: a frozen encoder, or a table of its embeddings, that decides which sentences of a batch are similar.

The trained model can be its own guide: "self" stands for its detached embeddings, and needs no :class:`Guide`.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_instance
from st_extras.encoders.distributed import gather_rows
from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.fingerprint import EncoderFingerprint
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap
from st_extras.functional import unit_rows

logger = logging.getLogger(__name__)

START = "start"
"""Names the complementary model that is a frozen copy of the trained model, made with the loss."""


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
            raise ValueError("sentence_features must be the tokenized columns, for the complementary model, got None.")
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
        complementary_table: a table of the complementary model's embeddings.
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
            "DCLR without a complementary model does not debias: no negative is left out (the paper's ablation "
            "w/o instance weighting). To weight them, set complementary_model to the path or hub id of an encoder, "
            'to "start", a frozen copy of the model before training, or to "self".'
        )
        return None
    return Guide(encoder, model, gather_across_devices=gather_across_devices)
