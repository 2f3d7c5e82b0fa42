"""Frozen guide encoders: a model, or a table of its embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from operator import index
from os import PathLike
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_count, check_instance, shown
from st_extras.encoders.loading import load_encoder
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap
from st_extras.encoders.table_file import read_table_file, write_table_file
from st_extras.text.corpus import iterate_sentences
from st_extras.text.vocabularies import vocabulary, vocabulary_hash


class FrozenEncoder(nn.Module):
    """A guide: a SentenceTransformer in evaluation mode, without gradients.

    It follows the loss to another device or dtype, but is not a registered submodule: the optimizer does not see it,
    and checkpoints do not contain it.

    Args:
        model: a SentenceTransformer or the path or hub id of one.
        trained_model: the model whose features it will be given. If the tokenizers differ, or the guide takes shorter
            inputs, the texts are recovered by decoding.

    Raises:
        ValueError: if the guide is the trained model, or one of the two has no tokenizer of the transformers library.
    """

    def __init__(self, model: SentenceTransformer | str | PathLike[str], trained_model: nn.Module) -> None:
        super().__init__()
        trained = unwrap(trained_model)
        if model is trained:
            raise ValueError('complementary_model is the trained model itself: pass "self" for self-weighting.')
        frozen = _guide(model, trained)
        for role, candidate in (("model", trained), ("complementary_model", frozen)):
            if not isinstance(candidate.tokenizer, PreTrainedTokenizerBase):
                raise ValueError(
                    f"{role} must have a transformers tokenizer, got {type(candidate.tokenizer).__name__}."
                )
        self._hidden = [frozen]  # in a list, so that nn.Module does not register it
        self._decode: Callable[..., list[str]] = trained.tokenizer.batch_decode
        self.must_retokenize = frozen.tokenizer.get_vocab() != trained.tokenizer.get_vocab() or (
            (frozen.max_seq_length or inf) < (trained.max_seq_length or inf)  # None: no limit
        )

    @property
    def encoder(self) -> SentenceTransformer:
        """The guide."""
        return self._hidden[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FrozenEncoder:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.encoder._apply(fn)
        return self

    def forward(self, features: Features) -> Tensor:
        """Return (B, D) embeddings of the features' sentences.

        Raises:
            ValueError: if the features are on another device.
        """
        device = features["input_ids"].device
        if self.encoder.device != device:
            raise ValueError(
                f"complementary_model is on {self.encoder.device} and the batch on {device}: move the loss with "
                f".to({str(device)!r}), as the Trainer does, or the complementary model itself."
            )
        self.encoder.eval()
        with torch.no_grad():
            if self.must_retokenize:
                texts = self._decode(features["input_ids"], skip_special_tokens=True)
                features = batch_to_device(self.encoder.preprocess(texts), device)
            embeddings: Tensor = self.encoder(dict(features))["sentence_embedding"]
        return embeddings


class EmbeddingTable(nn.Module):
    """A guide's embeddings of the training sentences, computed once and looked up by their token ids.

    A loss does not see texts, so the key of a sentence is its unpadded token ids, as the trained model's tokenizer
    gives them with its max_seq_length and prompt. Use :meth:`compute` to make a table.

    Args:
        keys: token ids of each of the N sentences.
        embeddings: (N, D), row i belongs to ``keys[i]``; stored normalised, in float32.
        vocabulary: hash of the vocabulary that the ids belong to, which :meth:`check_tokenizer` compares. None: not
            known.

    Raises:
        ValueError: if ``keys`` is empty, not token ids or of another length than ``embeddings``, or these are not
            finite (N, D) floating-point numbers.
    """

    def __init__(self, keys: Sequence[Sequence[int]], embeddings: Tensor, vocabulary: str | None = None) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        check_instance("keys", keys, Sequence)
        check_instance("embeddings", embeddings, Tensor)
        if embeddings.ndim != 2 or not embeddings.is_floating_point():
            raise ValueError(
                f"embeddings must be (N, D) floating-point numbers, got {embeddings.dtype} of shape "
                f"{tuple(embeddings.shape)}."
            )
        if len(keys) != len(embeddings) or len(keys) == 0:
            raise ValueError(
                f"keys and embeddings must have the same length > 0, got {len(keys)} and {len(embeddings)}."
            )
        if not bool(torch.isfinite(embeddings).all()):
            raise ValueError("embeddings must be finite, got NaN or infinity.")
        try:
            self._index = {tuple(map(index, key)): row for row, key in enumerate(keys)}
        except TypeError as error:
            raise ValueError(f"keys must be the token ids of each sentence, got {shown(keys)}.") from error
        self._hidden = [  # in a list, so that nn.Module does not register it
            F.normalize(embeddings.detach().float(), dim=-1)
        ]

    @property
    def embeddings(self) -> Tensor:
        """All embeddings, (N, D), normalised."""
        return self._hidden[0]

    def __len__(self) -> int:
        return len(self._index)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> EmbeddingTable:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._hidden[0] = fn(self._hidden[0])
        return self

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
        """Encode the distinct sentences with the guide.

        Args:
            model: the model to be trained: its tokenizer and max_seq_length make the keys.
            complementary_model: the guide, or its path or hub id.
            sentences: all training texts (both columns of pairs), or a data set with a column of them.
            prompt: the prompt that training puts before the sentences, if any.
            batch_size: sentences per call, for tokenizing and encoding.
            show_progress_bar: show encode's progress bar.

        Raises:
            ValueError: if there are no sentences, one is not a string, or ``batch_size`` is not a whole number >= 1.
        """
        texts = list(dict.fromkeys(iterate_sentences(sentences)))
        if not texts:
            raise ValueError("sentences must hold at least one sentence, got none.")
        batch_size = check_count("batch_size", batch_size, at_least=1)
        guide = _guide(complementary_model, model)
        keys: list[list[int]] = []
        for start in range(0, len(texts), batch_size):
            keys.extend(_token_keys(model.preprocess(texts[start : start + batch_size], prompt=prompt)))
        embeddings = guide.encode(
            texts, batch_size=batch_size, show_progress_bar=show_progress_bar, convert_to_tensor=True
        )
        return cls(keys, embeddings.to(model.device), _vocabulary(model.tokenizer))

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
        rows = []
        for key in _token_keys(features):
            row = self._index.get(tuple(key))
            if row is None:
                raise ValueError(
                    f"complementary_table has no embedding for {decode(key)!r}: compute it over all training "
                    "sentences, with the same tokenizer, max_seq_length and prompt."
                )
            rows.append(row)
        return self.embeddings[torch.tensor(rows, device=self.embeddings.device)]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the table as one safetensors file, which replaces one of that name once it is complete.

        Raises:
            ValueError: if the file's folder does not exist.
        """
        rows = torch.tensor(list(self._index.values()))
        write_table_file(path, list(self._index), self.embeddings.cpu()[rows], self.vocabulary)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> EmbeddingTable:
        """Read a table that :meth:`save` wrote.

        Raises:
            ValueError: if there is no such file, or it is damaged or another one; the message names it.
        """
        keys, embeddings, vocabulary = read_table_file(path)
        table = cls(keys, embeddings, vocabulary)
        table._hidden = [embeddings]  # already normalised: bit-equal to the saved table
        return table


def _guide(
    complementary_model: SentenceTransformer | str | PathLike[str], trained: SentenceTransformer
) -> SentenceTransformer:
    """Return the guide, loaded to the trained model's device if it is a path or hub id.

    Raises:
        ValueError: if it is neither an encoder nor a path of one, or cannot be loaded.
    """
    if isinstance(complementary_model, SentenceTransformer):
        return complementary_model
    if not isinstance(complementary_model, str | PathLike):
        raise ValueError(
            "complementary_model must be a SentenceTransformer or its path or hub id, got "
            f"{shown(complementary_model)}."
        )
    return load_encoder(complementary_model, device=str(trained.device))


def _vocabulary(tokenizer: Any) -> str | None:
    """Return the hash of a tokenizer's vocabulary; None if it is not one of the transformers library."""
    known = isinstance(tokenizer, PreTrainedTokenizerBase)
    return vocabulary_hash(vocabulary(tokenizer)) if known else None


def _token_keys(features: Features) -> list[list[int]]:
    """Return the unpadded token ids of each row."""
    pairs = zip(features["input_ids"].tolist(), features["attention_mask"].tolist(), strict=True)
    return [[token for token, kept in zip(ids, mask, strict=True) if kept] for ids, mask in pairs]
