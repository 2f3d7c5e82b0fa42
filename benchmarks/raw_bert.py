"""A raw BERT for pre-training: the random start, its masked language modelling objective, and the checkpoint.

An encoder that starts at random spends most of a short pre-training on what can be counted. ``start_words`` sets

* the input embeddings to a truncated SVD of positive pointwise mutual information (Levy et al., 2015,
  https://aclanthology.org/Q15-1016): PPMI[i, j] = max(0, ln(n_ij N / (n_i m_j))), with m_j proportional to n_j^0.75, of
  tokens at most WINDOW apart; row i is U_i sqrt(S), scaled to the length of a random row;
* the output bias to ln(p(token)).

Tokens that the text does not hold keep their random rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sentence_transformers import SentenceTransformer
from sklearn.utils.extmath import randomized_svd
from torch import Tensor, nn
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from benchmarks.records import weights_hash
from st_extras.encoders import load_encoder
from st_extras.encoders.forward import encode_tokens
from st_extras.encoders.rows import Features
from st_extras.losses.parts.masked_lm import MaskedLM
from st_extras.samples.encoder import packaged_minilm

COUNTED = 300_000  # sentences, from the first
WINDOW = 5
SMOOTHING = 0.75
LEAST = 2  # pairs that stand together less often are left out
_AT_ONCE = 50_000  # sentences


class MaskedLMLoss(nn.Module):
    """BERT's objective on one column of sentences, with logits at the masked positions only.

    Args:
        model: the SentenceTransformer to train.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.masked_lm = MaskedLM(model)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        (sentence,) = sentence_features
        corrupted, drawn = self.masked_lm.corrupt(self.model, sentence)
        tokens = encode_tokens(self.model, corrupted).tokens[drawn]  # (N, D)
        words: Any = self.model.transformers_model.get_input_embeddings()  # type: ignore[union-attr]
        value: Tensor = self.masked_lm(tokens, sentence["input_ids"][drawn], words.weight)
        return value


def start_encoder(folder: Path, *, layers: int, width: int, max_length: int) -> SentenceTransformer:
    """Make a random BERT with a language modelling head, save it to ``folder`` and load it from there.

    Args:
        folder: where the checkpoint goes.
        layers: number of layers.
        width: hidden size; one attention head for each 64.
        max_length: longest input in tokens.
    """
    tokenizer = AutoTokenizer.from_pretrained(packaged_minilm(), model_max_length=max_length)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(width // 64, 1),
        intermediate_size=4 * width,
        max_position_embeddings=max_length,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_encoder(folder, pooling="mean", max_seq_length=max_length)


def export(loss: MaskedLMLoss, folder: Path) -> str:
    """Write encoder and head as one ``BertForMaskedLM`` with its tokenizer, and return the sha256 of the weights."""
    encoder: Any = loss.model.transformers_model
    full = BertForMaskedLM(encoder.config)
    own = {f"bert.{name}": value for name, value in encoder.state_dict().items()}
    head = loss.masked_lm.head.state_dict() | {"cls.predictions.bias": loss.masked_lm.bias}
    known = full.state_dict()
    tied = {"cls.predictions.decoder.weight": own["bert.embeddings.word_embeddings.weight"]}
    tied["cls.predictions.decoder.bias"] = loss.masked_lm.bias
    full.load_state_dict({name: value for name, value in (own | head | tied).items() if name in known})
    full.save_pretrained(folder)
    loss.model.tokenizer.save_pretrained(folder)
    return weights_hash(folder)


def cooccurrences(sentences: Sequence[Sequence[int]], size: int, window: int = WINDOW) -> csr_matrix:
    """Count how often two tokens stand at most ``window`` apart in a sentence, (size, size), symmetric."""
    lengths = np.array([len(row) for row in sentences])
    tokens = np.array([token for row in sentences for token in row], dtype=np.int64)
    of_sentence = np.repeat(np.arange(len(lengths)), lengths)
    counts = csr_matrix((size, size))
    for distance in range(1, window + 1):
        together = of_sentence[distance:] == of_sentence[:-distance]
        left, right = tokens[:-distance][together], tokens[distance:][together]
        counts = counts + csr_matrix((np.ones(len(left)), (left, right)), shape=(size, size))
    return (counts + counts.T).tocsr()


def ppmi(counts: csr_matrix) -> csr_matrix:
    """Return the positive pointwise mutual information of (V, V) counts; entries that are 0 are not stored."""
    total = counts.sum()
    rows = np.asarray(counts.sum(axis=1)).ravel()
    columns = np.asarray(counts.sum(axis=0)).ravel() ** SMOOTHING
    columns = columns / columns.sum() * total
    found = counts.tocoo()
    values = np.log(found.data * total / (rows[found.row] * columns[found.col]))
    kept = values > 0
    return csr_matrix((values[kept], (found.row[kept], found.col[kept])), shape=counts.shape)


def word_vectors(matrix: csr_matrix, width: int, seed: int) -> NDArray[Any]:
    """Return rows of length 1, (V, width), of U sqrt(S); an empty row of the matrix stays zero."""
    left, values, _ = randomized_svd(matrix, width, n_iter=3, random_state=seed)
    vectors = left * np.sqrt(values)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    empty = np.diff(matrix.indptr)[:, None] == 0
    found: NDArray[Any] = np.where(empty, 0, vectors / np.maximum(lengths, 1e-12))
    return found


def start_words(loss: MaskedLMLoss, sentences: Sequence[str], seed: int) -> None:
    """Set input embeddings and output bias of a random encoder from COUNTED sentences; nothing global is drawn."""
    model: SentenceTransformer = loss.model
    transformer: Any = model.transformers_model
    weight = transformer.get_input_embeddings().weight
    size, width = weight.shape
    counts, alone = csr_matrix((size, size)), np.zeros(size)
    for start in range(0, min(len(sentences), COUNTED), _AT_ONCE):
        part = list(sentences[start : min(start + _AT_ONCE, COUNTED)])
        ids = model.tokenizer(part, add_special_tokens=False, truncation=True)["input_ids"]
        counts = counts + cooccurrences(ids, size)
        alone += np.bincount([token for row in ids for token in row], minlength=size)
    counts.data[counts.data < LEAST] = 0
    counts.eliminate_zeros()
    vectors = word_vectors(ppmi(counts), width, seed)
    seen = torch.from_numpy(vectors.any(axis=1))
    length = float(weight.detach().norm(dim=1).mean())
    with torch.no_grad():
        weight[seen] = torch.from_numpy(vectors).to(weight)[seen] * length
        loss.masked_lm.bias.copy_(torch.from_numpy(np.log((alone + 1) / (alone + 1).sum())))
