"""The baselines by plain loops on texts small enough to follow, and the command that records them."""

import math

import pytest
from sentence_transformers import SentenceTransformer

from benchmarks import word_baselines
from tests.helpers import cosine

TEXT = ["a cat sat on the mat", "the dog ran in the park", "the old man read a red book"]
FIRST = ["a cat sat on the mat", "the dog and the cat", "xyz"]
SECOND = ["the cat ran in the park", "a red book", "a cat"]


def tfidf_by_loops(text: list[str], first: str, second: str) -> float:
    """Cosine of two texts: (1 + ln tf) (1 + ln((1 + N) / (1 + df))) for every word that the text holds."""
    words = {word for line in text for word in line.split() if len(word) > 1}
    weight = {word: 1 + math.log((1 + len(text)) / (1 + sum(word in line.split() for line in text))) for word in words}

    def vector(line: str) -> dict[str, float]:
        found = [word for word in line.split() if word in words]
        return {word: (1 + math.log(found.count(word))) * weight[word] for word in found}

    left, right = vector(first), vector(second)
    length = math.sqrt(sum(x * x for x in left.values()) * sum(x * x for x in right.values()))
    return sum(left[word] * right.get(word, 0.0) for word in left) / length if length else 0.0


def test_tfidf_is_that_of_plain_loops():
    found = word_baselines.tfidf_cosines(word_baselines.TFIDF["words"], TEXT)(FIRST, SECOND)
    assert found == pytest.approx([tfidf_by_loops(TEXT, *pair) for pair in zip(FIRST, SECOND, strict=True)], abs=1e-6)
    assert found[0] > 0
    assert found[2] == 0  # "xyz" is not in the text


def pooled_by_loops(encoder: SentenceTransformer, text: str, weights: dict[int, float]) -> list[float]:
    """Weighted mean of the input embeddings of a text's tokens, without special tokens."""
    table = encoder.transformers_model.get_input_embeddings().weight.detach()  # type: ignore[union-attr]
    ids = encoder.tokenizer(text, add_special_tokens=False)["input_ids"]
    total = sum(weights[token] for token in ids)
    return [sum(weights[t] * float(table[t, d]) for t in ids) / total for d in range(table.shape[1])]


def embeddings_of(encoder: SentenceTransformer) -> word_baselines.InputEmbeddings:
    table = encoder.transformers_model.get_input_embeddings().weight  # type: ignore[union-attr]
    return word_baselines.InputEmbeddings(encoder.tokenizer, table.detach().double().numpy())


def test_means_of_input_embeddings_are_those_of_plain_loops(encoder):
    embeddings = embeddings_of(encoder)
    ids = [token for line in TEXT for token in encoder.tokenizer(line, add_special_tokens=False)["input_ids"]]
    even = dict.fromkeys(range(len(embeddings.weights)), 1.0)
    sif = {token: 1e-3 / (1e-3 + ids.count(token) / len(ids)) for token in even}
    for cosines, weights in (
        (word_baselines.mean_cosines(embeddings), even),
        (word_baselines.sif_cosines(embeddings, TEXT, removed=False), sif),
    ):
        expected = [
            cosine(pooled_by_loops(encoder, one, weights), pooled_by_loops(encoder, other, weights))
            for one, other in zip(FIRST, SECOND, strict=True)
        ]
        assert cosines(FIRST, SECOND) == pytest.approx(expected, abs=1e-6)
    assert sif[ids[0]] < 0.1 < sif[max(even)]
