"""A guide's embeddings of the training sentences, computed once and looked up by their token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import index
from os import PathLike
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_rows
from st_extras.encoders.frozen import TextGuide
from st_extras.encoders.rows import Features, token_rows
from st_extras.files import digest
from st_extras.functional import unit_rows
from st_extras.text.corpus import iterate_sentences
from st_extras.text.frequency import vocabulary

_CHUNK = 16_384  # sentences that are read and embedded together


class EmbeddingTable(nn.Module):
    """A guide's embeddings of the training sentences, computed once and looked up by their token ids.

    A loss does not see texts, so the key of a sentence is its unpadded token ids, as the trained model's tokenizer
    gives them with its max_seq_length and prompt. Use :meth:`compute` to make a table. It is held in memory: a million
    sentences in 384 dimensions take 1.5 GB and their keys.

    Args:
        keys: token ids of each of the N sentences; of equal ones, the first counts.
        embeddings: (N, D), row i belongs to ``keys[i]``; stored normalised, in float32.
        vocabulary: hash of the vocabulary that the ids belong to, which :meth:`check_tokenizer` compares. None: not
            known.

    Attributes:
        embeddings: (M, D) of the M different keys, normalised, in float32.

    Raises:
        ValueError: if ``keys`` is empty, not token ids or of another length than ``embeddings``, or these are not
            finite (N, D) floating-point numbers.
    """

    def __init__(self, keys: Sequence[Sequence[int]], embeddings: Tensor, vocabulary: str | None = None) -> None:
        super().__init__()
        embeddings = check_rows("embeddings", embeddings)
        if len(keys) != len(embeddings):
            raise ValueError(f"embeddings must be as many as keys, got {len(embeddings)} for {len(keys)}.")
        first: list[int] = []
        self._rows: dict[tuple[int, ...], int] = {}
        for number, key in enumerate(keys):
            if self._rows.setdefault(tuple(map(index, key)), len(first)) == len(first):
                first.append(number)
        self.embeddings = unit_rows(embeddings.detach().float()[first]).cpu()  # in float32 before their length is taken
        self.vocabulary = vocabulary

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
        encode_options: Mapping[str, Any] | None = None,
    ) -> EmbeddingTable:
        """Encode the distinct sentences with the guide; of sentences with equal token ids, the first counts.

        Of a text that the model's max_seq_length cuts, a guide of the same vocabulary sees what is left, as it does in
        training without a table.

        Args:
            model: the model to be trained: its tokenizer and max_seq_length make the keys.
            complementary_model: the guide, or its path or hub id.
            sentences: all training texts (both columns of pairs), or a data set with a column of them; read once.
            prompt: the prompt that training puts before the sentences, if any.
            batch_size: sentences per call, for tokenizing and encoding.
            show_progress_bar: show a progress bar.
            encode_options: device, pool and chunk_size for the guide's ``encode``: ``{"device": ["cuda:0", "cuda:1"]}``
                encodes in one process a device.

        Raises:
            ValueError: if there are no sentences, one is not a string, ``batch_size`` is not a whole number >= 1,
                ``prompt`` is not text, or an option is another one.
        """
        stream, found = iterate_sentences(sentences), dict[tuple[int, ...], Tensor]()
        with (
            TextGuide.open(complementary_model, model, prompt, batch_size, encode_options) as guide,
            tqdm(unit=" sentences", desc="Embedding", disable=not show_progress_bar) as bar,
        ):
            while chunk := list(islice(stream, _CHUNK)):
                texts: dict[tuple[int, ...], str] = {}
                for key, text in zip(guide.keys(chunk), chunk, strict=True):
                    if tuple(key) not in found:
                        texts.setdefault(tuple(key), text)
                if texts:
                    embeddings = guide.embed(list(texts.values()), list(map(list, texts)))
                    found |= zip(texts, embeddings.cpu(), strict=True)
                bar.update(len(chunk))
        if not found:
            raise ValueError("sentences must hold at least one sentence, got none.")
        return cls(list(found), torch.stack(list(found.values())), _vocabulary(model.tokenizer))

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Refuse a tokenizer with another vocabulary than the one that made the keys.

        Raises:
            ValueError: if both vocabularies are known and differ.
        """
        other = _vocabulary(tokenizer)
        if self.vocabulary is not None and other is not None and self.vocabulary != other:
            raise ValueError(
                "complementary_table must be computed with the trained model's tokenizer, got a table of another "
                "vocabulary: compute it again with EmbeddingTable.compute(model, ...)."
            )

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


def _vocabulary(tokenizer: Any) -> str | None:
    """Return the hash of a tokenizer's vocabulary; None if it is not one of the transformers library."""
    known = isinstance(tokenizer, PreTrainedTokenizerBase)
    return digest(map(repr, vocabulary(tokenizer))) if known else None
