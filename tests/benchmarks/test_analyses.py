"""The analyses behind the figures of the papers, against their equations as plain loops."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks.analyses import eigenvalue_curve, redundancy_overlap_ratio, without_word, word_importance
from benchmarks.frequency_bias import drawn_tokens, frequency_bias
from benchmarks.trained_spaces import cosine_by_level, level_separation
from st_extras.modules import RepALPostProcessor
from tests.helpers import cosine

pytest.importorskip("jieba")

PAIRS = [
    ("the cat sat on the mat", "a dog ran in the park"),
    ("a woman and a man", "the old man read a red book"),
    ("children play", "he cooks soup with fresh carrots"),
    ("in to with", "a cat"),
]


def model_cosine(model, first, second):
    return cosine(model.encode(first), model.encode(second))


def test_importance_is_equation_4(still_encoder, sentences):
    model = RepALPostProcessor.attach(still_encoder, lambda_1=0.5, lambda_2=0.8, corpus=sentences)
    words = [["the", "cat"], ["man"], [], ["to"]]
    assert without_word("The cat saw the other: the", "the") == "cat saw other:"
    found = word_importance(model, PAIRS, words)
    assert [len(values) for values in found] == [2, 1, 0, 1]
    for (x, y), own, values in zip(PAIRS, words, found, strict=True):
        for word, value in zip(own, values, strict=True):
            expected = model_cosine(model, x, y) - model_cosine(model, without_word(x, word), y)
            assert value == pytest.approx(expected, abs=1e-5)
    assert abs(found[0][0]) > 1e-4


def test_overlap_is_equation_5(still_encoder):
    total = []
    for x, y in PAIRS:
        words = list(dict.fromkeys(x.split()))
        values = word_importance(still_encoder, [(x, y)], [words])[0]
        top = [word for _, word in sorted(zip(values, words, strict=True), key=lambda item: -item[0])][:3]
        # jieba's stop words, and words of one letter, are never keywords
        trivial = {"the", "on", "a", "and", "in", "to", "with"}
        total.append(len(set(top) & trivial) / len(top))
    ratio = redundancy_overlap_ratio(still_encoder, PAIRS, top=3)
    assert ratio == pytest.approx(np.mean(total))
    assert 0 < ratio < 1
    assert redundancy_overlap_ratio(still_encoder, PAIRS[3:]) == 1
    assert redundancy_overlap_ratio(still_encoder, [("children play", "a"), ("", "b"), ("...", "c")]) == 0


def test_cosine_by_level_equals_the_loop():
    cosines = [0.1, 0.3, 0.5, 0.4, 0.9, 0.8, 0.7]
    scores = [0.0, 0.9, 1.0, 2.5, 4.0, 5.0, 4.9]
    table = cosine_by_level(cosines, scores)
    assert [level.count for level in table] == [2, 1, 1, 0, 3]
    assert [level.name for level in table] == ["0-1", "1-2", "2-3", "3-4", "4-5"]
    assert table[0].mean == pytest.approx(0.2)
    assert table[0].variance == pytest.approx(0.01)
    assert table[4].mean == pytest.approx(0.8)
    assert table[4].variance == pytest.approx(0.02 / 3)
    assert math.isnan(table[3].mean)
    assert math.isnan(table[3].variance)
    mean = sum(cosines) / 7
    between = 2 * (0.2 - mean) ** 2 + (0.5 - mean) ** 2 + (0.4 - mean) ** 2 + 3 * (0.8 - mean) ** 2
    assert level_separation(table) == pytest.approx(between / sum((c - mean) ** 2 for c in cosines))


def test_distances_of_tokens_by_hand(encoder, sentences, frequency_table):
    metrics = frequency_bias(encoder, sentences, frequency_table, neighbors=2)
    rare = frequency_table.labels().bool()
    embeddings, types = drawn_tokens(encoder, sentences, rare, 1000, 5)
    low = rare[types]
    assert low.sum() == (~low).sum() == 20  # as many of both, though the text has 30 high ones
    scale = math.sqrt(sum(sum(x * x for x in row) for row in embeddings.tolist()) / len(embeddings))
    centre = embeddings.mean(dim=0)
    for name, group in (("low", low), ("high", ~low)):
        distances = [((row - centre) / scale).norm().item() for row in embeddings[group]]
        assert metrics[f"{name}_centre_distance"] == pytest.approx(sum(distances) / len(distances), rel=1e-4)
        assert metrics[f"{name}_neighbour_distance"] > 0
    assert 0 <= metrics["probe_accuracy"] <= 1


def test_the_curve_of_the_corpus_term_as_loops(still_encoder, sentences):
    pairs, scores = list(zip(sentences[:4], sentences[4:], strict=True)), [1.0, 3.0, 2.0, 0.5]
    model = RepALPostProcessor.attach(still_encoder, lambda_1=0.3, lambda_2=0.2, corpus=sentences)
    grid = [0.0, 0.7, 1.4]
    largest, spearman = eigenvalue_curve(model, pairs, scores, grid)
    assert model[2].lambda_2 == 0.2
    assert len(set(largest.round(6))) == 3
    assert len(set(spearman.round(6))) > 1
    for place, model[2].lambda_2 in enumerate(grid):
        expected = spearmanr([model_cosine(model, x, y) for x, y in pairs], scores).statistic
        assert spearman[place] == pytest.approx(expected, abs=1e-6)
        rows = model.encode([text for pair in pairs for text in pair]).astype(float)
        moment = sum(np.outer(row, row) for row in rows) / len(rows)
        assert largest[place] == pytest.approx(np.linalg.eigvalsh(moment)[-1], rel=1e-4)
