"""Encoders that are asked and never trained: a frozen model, or a table of what it said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from st_extras.encoders import unwrap
from st_extras.rows import Features


class FrozenEncoder(nn.Module):
    """A SentenceTransformer that is asked and never trained: eval mode, no gradients.

    It follows the loss to another device or dtype, but is no registered child: the optimizer does not see it and
    checkpoints do not hold it.

    Args:
        model: a SentenceTransformer or the path or hub id of one.
        trained_model: the model whose features it will be given; where the tokenizers differ, or the frozen
            encoder takes shorter inputs, the texts are recovered by decoding.
    """

    def __init__(self, model: SentenceTransformer | str | PathLike[str], trained_model: nn.Module) -> None:
        super().__init__()
        trained = unwrap(trained_model)
        if isinstance(model, SentenceTransformer):
            frozen = model
            if frozen is trained:
                raise ValueError('complementary_model is the trained model itself: pass "self" for self-weighting.')
        else:
            frozen = SentenceTransformer(str(model), device=str(trained.device))
        for role, candidate in (("model", trained), ("complementary_model", frozen)):
            if not isinstance(candidate.tokenizer, PreTrainedTokenizerBase):
                raise ValueError(f"{role} has no transformers tokenizer ({type(candidate.tokenizer).__name__}).")
        self._hidden = [frozen]
        self._decode: Callable[..., list[str]] = trained.tokenizer.batch_decode
        self.must_retokenize = frozen.tokenizer.get_vocab() != trained.tokenizer.get_vocab() or (
            (frozen.max_seq_length or 0) < (trained.max_seq_length or 0)
        )

    @property
    def encoder(self) -> SentenceTransformer:
        """The frozen model."""
        return self._hidden[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FrozenEncoder:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.encoder._apply(fn)
        return self

    def forward(self, features: Features) -> Tensor:
        """(B, D) embeddings of the features' sentences.

        Raises:
            ValueError: the features lie on another device.
        """
        device = features["input_ids"].device
        if self.encoder.device != device:
            raise ValueError(
                f"complementary_model is on {self.encoder.device}, the batch on {device}: move the loss with "
                f".to({str(device)!r}) (the Trainer does) or the complementary model itself."
            )
        self.encoder.eval()
        with torch.no_grad():
            if self.must_retokenize:
                texts = self._decode(features["input_ids"], skip_special_tokens=True)
                features = batch_to_device(self.encoder.preprocess(texts), device)
            embeddings: Tensor = self.encoder(dict(features))["sentence_embedding"]
        return embeddings


class EmbeddingTable(nn.Module):
    """Embeddings of the training sentences, computed once and found by their token ids.

    A loss sees no text, so the key of a sentence is its un-padded token ids as the trained model's tokenizer
    (with its max_seq_length and prompt) gives them. Make one with :meth:`compute`.

    Args:
        keys: the token ids of each sentence.
        embeddings: (N, D), row i belongs to ``keys[i]``; stored normalised, in float32.
    """

    def __init__(self, keys: Sequence[Sequence[int]], embeddings: Tensor) -> None:
        super().__init__()
        if len(keys) != len(embeddings) or len(keys) == 0:
            raise ValueError(f"keys and embeddings must be of one length > 0, got {len(keys)} and {len(embeddings)}.")
        if not bool(torch.isfinite(embeddings).all()):
            raise ValueError("embeddings contain NaN or infinity.")
        self._index = {tuple(key): row for row, key in enumerate(keys)}
        self._hidden = [F.normalize(embeddings.detach().float(), dim=-1)]

    @property
    def embeddings(self) -> Tensor:
        """(N, D), normalised."""
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
        """Encode the distinct sentences with the complementary model.

        Args:
            model: the model to be trained: its tokenizer and max_seq_length make the keys.
            complementary_model: the frozen encoder, or its path or hub id.
            sentences: all training texts (both columns of pairs).
            prompt: the prompt that training puts before the sentences, if any.
            batch_size: for both encoders.
            show_progress_bar: whether to show one.
        """
        texts = list(dict.fromkeys(sentences))
        if not texts:
            raise ValueError("sentences is empty: there is nothing to compute a table of.")
        if not isinstance(complementary_model, SentenceTransformer):
            complementary_model = SentenceTransformer(str(complementary_model), device=str(model.device))
        keys: list[list[int]] = []
        for start in range(0, len(texts), batch_size):
            keys.extend(_token_keys(model.preprocess(texts[start : start + batch_size], prompt=prompt)))
        embeddings = complementary_model.encode(
            texts, batch_size=batch_size, show_progress_bar=show_progress_bar, convert_to_tensor=True
        )
        return cls(keys, embeddings.to(model.device))

    def forward(self, features: Features, decode: Callable[[list[int]], str] = str) -> Tensor:
        """(B, D) stored embeddings of the features' sentences.

        Raises:
            ValueError: a sentence is not in the table; ``decode`` turns its ids into text for the message.
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
        """Write the table as one safetensors file."""
        lengths = torch.tensor([len(key) for key in self._index])
        ids = torch.tensor([token for key in self._index for token in key])
        kept = self.embeddings.cpu()[torch.tensor(list(self._index.values()))].contiguous()
        save_file({"embeddings": kept, "ids": ids, "lengths": lengths}, str(path))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> EmbeddingTable:
        """Read a table that :meth:`save` wrote."""
        if not Path(path).is_file():
            raise ValueError(f"complementary_table: there is no file {str(path)!r}.")
        stored = load_file(str(path))
        keys = [part.tolist() for part in torch.split(stored["ids"], stored["lengths"].tolist())]
        table = cls(keys, stored["embeddings"])
        table._hidden = [stored["embeddings"]]  # normalised when saved: to the bit what it was
        return table


def _token_keys(features: Features) -> list[list[int]]:
    """The un-padded token ids of each row."""
    pairs = zip(features["input_ids"].tolist(), features["attention_mask"].tolist(), strict=True)
    return [[token for token, kept in zip(ids, mask, strict=True) if kept] for ids, mask in pairs]
