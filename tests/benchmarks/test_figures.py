"""The analyses behind the figures of the papers, against their equations as plain loops."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks.figures.attention import attention_received
from benchmarks.figures.cosine_levels import cosine_by_level, level_separation
from benchmarks.figures.frequency_bias import drawn_tokens, frequency_bias
from benchmarks.figures.lambda_curves import lambda_surface
from benchmarks.figures.redundancy import redundancy_overlap_ratio, without_word, word_importance
from st_extras.modules import RepALPostProcessor
from tests.helpers import cosine

pytest.importorskip("jieba")
pytest.importorskip("matplotlib").use("Agg")


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


WORDS_IN_PIECES = "the cats sat on a mat"  # cats: two pieces, cat and ##s


def test_shares_equal_the_sum_over_pieces(encoder):
    words, shares = attention_received(encoder, WORDS_IN_PIECES, layer=0)
    assert words == ["[CLS]", "the", "cats", "sat", "on", "a", "mat", "[SEP]"]
    inner = encoder.transformers_model
    inner.eval()
    inner.set_attn_implementation("eager")
    ids = encoder.tokenizer(WORDS_IN_PIECES, return_tensors="pt")
    weights = inner(**ids, output_attentions=True).attentions[0][0].detach()  # (heads, L, L)
    tokens = encoder.tokenizer.convert_ids_to_tokens(ids["input_ids"][0])
    assert tokens[2:4] == ["cat", "##s"]
    heads, length, _ = weights.shape
    received = [
        sum(float(weights[h, q, k]) for h in range(heads) for q in range(length)) / heads / length
        for k in range(length)
    ]
    expected = [*received[:2], received[2] + received[3], *received[4:]]
    assert shares == pytest.approx(expected, abs=1e-6)
    assert sum(shares) == pytest.approx(1.0)


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


def test_surface_is_the_spearman_correlation_of_every_pair_of_weights(still_encoder, sentences):
    pairs, scores = list(zip(sentences[:4], sentences[4:], strict=True)), [1.0, 3.0, 2.0, 0.5]
    model = RepALPostProcessor.attach(still_encoder, lambda_1=0.3, lambda_2=0.2, corpus=sentences)
    lambda_1, lambda_2 = [0.0, 0.5], [0.0, 0.7, 1.4]
    surface = lambda_surface(model, pairs, scores, lambda_1_grid=lambda_1, lambda_2_grid=lambda_2)
    assert (model[2].lambda_1, model[2].lambda_2) == (0.3, 0.2)
    assert surface.shape == (2, 3)
    assert len(np.unique(surface.round(6))) > 1
    for i, j in np.ndindex(2, 3):
        model[2].lambda_1, model[2].lambda_2 = lambda_1[i], lambda_2[j]
        expected = spearmanr([model_cosine(model, x, y) for x, y in pairs], scores).statistic
        assert surface[i, j] == pytest.approx(expected, abs=1e-6)
    assert model[2].tune(pairs, scores).spearman == lambda_surface(model, pairs, scores).max()
