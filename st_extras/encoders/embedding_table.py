"""A guide's embeddings of the training sentences, computed once and looked up by their token ids."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from os import PathLike

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from tqdm.auto import trange

from st_extras.checks import check_count, check_rows
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.encoders.rows import Features, token_rows
from st_extras.encoders.structure import keep_modes
from st_extras.functional import unit_rows
from st_extras.text.corpus import iterate_sentences


class EmbeddingTable(nn.Module):
    """A guide's embeddings of the training sentences, computed once and looked up by their token ids.

    A loss does not see texts, so the key of a sentence is its unpadded token ids, as the trained model's tokenizer
    gives them with its max_seq_length and prompt. Use :meth:`compute` to make a table. It is held in memory: a million
    sentences in 384 dimensions take 1.5 GB and their keys.

    Args:
        keys: token ids of each of the N sentences; of equal ones, the last counts.
        embeddings: (N, D), row i belongs to ``keys[i]``; stored normalised, in float32.

    Raises:
        ValueError: if ``keys`` is empty or of another length than ``embeddings``, or these are not finite (N, D)
            floating-point numbers.
    """

    def __init__(self, keys: Sequence[Sequence[int]], embeddings: Tensor) -> None:
        super().__init__()
        embeddings = check_rows("embeddings", embeddings)
        if len(keys) != len(embeddings):
            raise ValueError(f"embeddings must be as many as keys, got {len(embeddings)} for {len(keys)}.")
        self.embeddings = unit_rows(embeddings.detach().float()).cpu()  # in float32 before their length is taken
        self._rows = {tuple(key): row for row, key in enumerate(keys)}

    @property
    def name(self) -> str:
        """The size, for the model card."""
        return f"EmbeddingTable of {len(self)} sentences, {self.embeddings.size(1)} dimensions"

    def __len__(self) -> int:
        return len(self._rows)

    @classmethod
    def compute(
        cls,
        model: SentenceTransformer,
        complementary_model: SentenceTransformer | str | PathLike[str],
        sentences: Iterable[str],
        *,
        prompt: str | None = None,
        batch_size: int = 64,
        show_progress_bar: bool = True,
    ) -> EmbeddingTable:
        """Encode the different sentences as a :class:`~st_extras.encoders.FrozenEncoder` does in training.

        Args:
            model: the model to be trained: its tokenizer and max_seq_length make the keys.
            complementary_model: the guide, or its path or hub id.
            sentences: all training texts (both columns of pairs), or a data set with a column of them; read once.
            prompt: the prompt that training puts before the sentences, if any.
            batch_size: sentences per call, for tokenizing and encoding.
            show_progress_bar: show a progress bar.

        Raises:
            ValueError: if there are no sentences, one is not a string, or ``batch_size`` is not a whole number >= 1.
        """
        batch_size = check_count("batch_size", batch_size, at_least=1)
        texts = sorted(dict.fromkeys(iterate_sentences(sentences)), key=len)  # texts of one length need no padding
        if not texts:
            raise ValueError("sentences must hold at least one sentence, got none.")
        keys: list[list[int]] = []
        embeddings: list[Tensor] = []
        given = complementary_model
        if isinstance(complementary_model, SentenceTransformer):
            complementary_model = copy.copy(complementary_model)  # as the model itself may not be a guide
        with keep_modes(given) if isinstance(given, SentenceTransformer) else nullcontext():  # a guide is in eval mode
            guide = FrozenEncoder(complementary_model, model)
            for start in trange(0, len(texts), batch_size, desc="Embedding", disable=not show_progress_bar):
                features = model.preprocess(texts[start : start + batch_size], prompt=prompt)
                keys += token_rows(features)
                embeddings.append(guide(batch_to_device(features, guide.encoder.device)).float().cpu())
        return cls(keys, torch.cat(embeddings))

    def forward(self, features: Features, decode: Callable[[list[int]], str] = str) -> Tensor:
        """Return the stored (B, D) embeddings of the features' sentences.

        Raises:
            ValueError: if a sentence is not in the table; ``decode`` turns its ids into text for the message.
        """
        keys = token_rows(features)
        rows = [self._rows.get(tuple(key)) for key in keys]
        if None in rows:
            raise ValueError(
                f"complementary_table has no embedding for {decode(keys[rows.index(None)])!r}: compute it over all "
                "training sentences, with the same tokenizer, max_seq_length and prompt."
            )
        return self.embeddings[torch.tensor(rows)].to(features["input_ids"].device)
