"""Baselines that train nothing: texts as TF-IDF, and means of an encoder's input embeddings.

Nothing here reads a sentence as more than a bag of its parts. Every row is scored on STS-B dev and on the seven sets:

* TF-IDF of words, and of characters 3-5 within words, fitted on a text;
* the plain mean of the embeddings of a text's tokens before the first layer, special tokens left out;
* SIF (Arora et al., 2017): the same with a weight of a / (a + p(token)) and p counted on a text; and without the first
  principal direction of 20,000 of that text's sentences.

Each is fitted on Wikipedia's sentences and on the unlabeled sentences of the STS sets, which the methods train on and
which hold the test sentences. An encoder that is not there is left out, with a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.records import run_once
from benchmarks.statistics import rank_correlation
from benchmarks.studies import BASELINE_TEXTS, PRETRAINED, Options, chosen, is_there
from benchmarks.texts import DEV
from st_extras.encoders import load_encoder
from st_extras.evaluation import SEVEN_STS, STSDataset, load_sts
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import read_sentences

Array = NDArray[np.float64]
Cosines = Callable[[Sequence[str], Sequence[str]], Array]
"""The cosine of each pair, (N,), of N first sentences and N second ones."""
Fit = Callable[[], Cosines]

TFIDF: dict[str, dict[str, Any]] = {
    "words": {"analyzer": "word", "sublinear_tf": True},
    "characters": {"analyzer": "char_wb", "ngram_range": (3, 5), "sublinear_tf": True},
}
"""Options of TfidfVectorizer."""

FITTED = 100_000  # sentences that TF-IDF and the counts are fitted on, from the first
DIRECTIONS = 20_000  # sentences that the first direction is computed on
A = 1e-3  # SIF's a
_TINY = 1e-12


class InputEmbeddings:
    """The embeddings of an encoder's tokens before its first layer, and its tokenizer.

    Args:
        tokenizer: the encoder's.
        weights: (V, D), a row for each token.
    """

    def __init__(self, tokenizer: Any, weights: Array) -> None:
        self.tokenizer = tokenizer
        self.weights = weights

    def bags(self, texts: Sequence[str]) -> csr_matrix:
        """Return how often each text holds each token, (N, V), without special tokens."""
        ids = self.tokenizer(list(texts), add_special_tokens=False, truncation=False)["input_ids"]
        rows = np.repeat(np.arange(len(ids)), [len(row) for row in ids])
        columns = np.array([token for row in ids for token in row], dtype=np.int64)
        return csr_matrix((np.ones(len(columns)), (rows, columns)), shape=(len(ids), len(self.weights)))

    def pooled(self, texts: Sequence[str], token_weights: Array) -> Array:
        """Return the weighted means of the token embeddings, (N, D); ``token_weights`` has a weight for each token."""
        bags = self.bags(texts).multiply(token_weights[None]).tocsr()
        return np.asarray(bags @ self.weights) / np.maximum(np.asarray(bags.sum(axis=1)), _TINY)


def sif_weights(counts: Array, a: float = A) -> Array:
    """Return a / (a + p) for each token, (V,), with p the token's share of ``counts``, (V,)."""
    return a / (a + counts / counts.sum())


def first_direction(vectors: Array) -> Array:
    """Return the unit vector, (D,), along which (N, D) vectors are longest, their mean not taken away."""
    direction: Array = np.linalg.eigh(vectors.T @ vectors)[1][:, -1]
    return direction


def cosines_of(embed: Callable[[Sequence[str]], Array]) -> Cosines:
    """Return the cosine of pairs whose sentences ``embed`` turns into (N, D) vectors; that of a zero vector is 0."""

    def cosines(first: Sequence[str], second: Sequence[str]) -> Array:
        left, right = embed(first), embed(second)
        lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        found: Array = (left * right).sum(axis=1) / np.maximum(lengths, _TINY)
        return found

    return cosines


def tfidf_cosines(options: dict[str, Any], text: Sequence[str]) -> Cosines:
    """Fit TF-IDF on a text. Parts that the text does not hold do not count."""
    vectorizer = TfidfVectorizer(**options, dtype=np.float32).fit(text)

    def cosines(first: Sequence[str], second: Sequence[str]) -> Array:
        left, right = vectorizer.transform(first), vectorizer.transform(second)  # rows of length 1
        return np.asarray(left.multiply(right).sum(axis=1), dtype=np.float64).ravel()

    return cosines


def mean_cosines(embeddings: InputEmbeddings) -> Cosines:
    """Return the cosines of plain means."""
    even = np.ones(len(embeddings.weights))
    return cosines_of(lambda texts: embeddings.pooled(texts, even))


def sif_cosines(embeddings: InputEmbeddings, text: Sequence[str], *, removed: bool) -> Cosines:
    """Count a text and return the cosines of SIF's means; with ``removed``, without the text's first direction."""
    weights = sif_weights(np.asarray(embeddings.bags(text).sum(axis=0)).ravel())
    if not removed:
        return cosines_of(lambda texts: embeddings.pooled(texts, weights))
    direction = first_direction(embeddings.pooled(text[:DIRECTIONS], weights))

    def embed(texts: Sequence[str]) -> Array:
        vectors = embeddings.pooled(texts, weights)
        return vectors - np.outer(vectors @ direction, direction)

    return cosines_of(embed)


def score(cosines: Cosines, dev: STSDataset, tests: Sequence[STSDataset]) -> dict[str, Any]:
    """Return Spearman times 100 on dev and on each test set, and the average of these."""
    of_dev, *scores = (
        100 * rank_correlation(pairs.scores, cosines(pairs.sentences1, pairs.sentences2)) for pairs in (dev, *tests)
    )
    names = [pairs.name for pairs in tests]
    return {"dev": of_dev, "scores": dict(zip(names, scores, strict=True)), "average": float(np.mean(scores))}


def embeddings_of(model: SentenceTransformer) -> InputEmbeddings:
    """Return the input embeddings of an encoder."""
    transformer: Any = model.transformers_model
    weights = transformer.get_input_embeddings().weight.detach().double().cpu().numpy()
    return InputEmbeddings(model.tokenizer, weights)


def input_embeddings(name: str) -> InputEmbeddings | None:
    """Return those of "minilm" (its first layers share them), "own" or "better"; None, and a line: it is not there."""
    if not is_there(name):
        return None
    return embeddings_of(load_encoder(PRETRAINED.get(name) or packaged_minilm(), pooling="mean"))


def fitted_baseline(kind: str, model: SentenceTransformer, text: Sequence[str]) -> Cosines:
    """Fit a baseline on a text: a name in TFIDF, "sif", or "sif_removed" (without its first direction)."""
    if kind in TFIDF:
        return tfidf_cosines(TFIDF[kind], text)
    return sif_cosines(embeddings_of(model), text, removed=kind == "sif_removed")


def rows(encoders: Sequence[str], texts: dict[str, Sequence[str]]) -> Iterator[tuple[str, str, str, Fit]]:
    """Yield encoder ("" for none), kind, text ("" for none) of every row, and a function that fits it."""
    for kind, options in TFIDF.items():
        for name, text in texts.items():
            yield "", kind, name, partial(tfidf_cosines, options, text)
    for encoder in encoders:
        embeddings = input_embeddings(encoder)
        if embeddings is None:
            continue
        yield encoder, "mean", "", partial(mean_cosines, embeddings)
        for name, text in texts.items():
            yield encoder, "sif", name, partial(sif_cosines, embeddings, text, removed=False)
            yield encoder, "sif_removed", name, partial(sif_cosines, embeddings, text, removed=True)


def run(study: dict[str, Any], options: Options) -> None:
    """Score each baseline that has no record."""
    dev, *tests = [load_sts(name, options.data) for name in (DEV, *SEVEN_STS)]
    texts = {name: read_sentences(options.data / file, limit=FITTED) for name, file in BASELINE_TEXTS.items()}
    for encoder, kind, text, fit in rows(chosen(options.encoders, ["minilm", *PRETRAINED], "--encoders"), texts):
        row = {"encoder": encoder, "kind": kind, "text": text, "sentences": len(texts.get(text, ()))}
        name = "-".join(part for part in (encoder, kind, text) if part)
        record = run_once(
            study["name"], name, lambda row=row, fit=fit: row | score(fit(), dev, tests), root=options.root
        )
        if record is not None:
            print(f"{name}: dev {record['dev']:.2f}, seven sets {record['average']:.2f}", flush=True)
