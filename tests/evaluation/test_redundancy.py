import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from st_extras.evaluation.redundancy import (
    TRIVIAL_WORDS,
    eigenvalue_curve,
    lambda_surface,
    largest_eigenvalue,
    redundancy_overlap_ratio,
    trivial_word_importance,
    without_word,
    word_importance,
)
from st_extras.modules import RepALPostProcessor

pytest.importorskip("jieba")

PAIRS = [
    ("the cat sat on the mat", "a dog ran in the park"),
    ("a woman and a man", "the old man read a red book"),
    ("children play", "he cooks soup with fresh carrots"),
    ("in to with", "a cat"),
]


def cosine(model, first, second):
    a, b = model.encode(first).astype(np.float64), model.encode(second).astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def test_a_word_is_deleted_wherever_it_stands():
    assert without_word("The cat saw the other: the", "the") == "cat saw other:"
    assert without_word("a woman and a man", "man") == "a woman and a"


@pytest.mark.parametrize("with_repal", [False, True])
@pytest.mark.parametrize("delete_from", ["first", "both"])
def test_importance_is_equation_4(still_encoder, sentences, with_repal, delete_from):
    model = still_encoder
    if with_repal:
        model = RepALPostProcessor.attach(model, lambda_1=0.5, lambda_2=0.8, corpus=sentences)
    words = [["the", "cat"], ["man"], [], ["to"]]
    found = word_importance(model, PAIRS, words, delete_from=delete_from)
    assert [len(values) for values in found] == [2, 1, 0, 1]
    for (x, y), own, values in zip(PAIRS, words, found, strict=True):
        for word, value in zip(own, values, strict=True):
            other = without_word(y, word) if delete_from == "both" else y
            expected = cosine(model, x, y) - cosine(model, without_word(x, word), other)
            assert value == pytest.approx(expected, abs=1e-5)
    assert abs(found[0][0]) > 1e-4


def test_the_footnote_matters_only_where_both_have_the_word(still_encoder):
    first = word_importance(still_encoder, PAIRS, [["the"], ["man"], ["play"], ["to"]])
    both = word_importance(still_encoder, PAIRS, [["the"], ["man"], ["play"], ["to"]], delete_from="both")
    assert first[0] != both[0]
    assert first[1] != both[1]
    assert first[2:] == both[2:]


def test_the_table_of_trivial_words(still_encoder):
    table = trivial_word_importance(still_encoder, PAIRS)
    assert list(table) == [word for word in TRIVIAL_WORDS if word != "some"]
    single = word_importance(still_encoder, PAIRS, [["the"], ["a", "and"], [], ["in", "to", "with"]])
    assert table["the"] == pytest.approx(100 * single[0][0])
    assert table["and"] == pytest.approx(100 * single[1][1])
    twice = trivial_word_importance(still_encoder, [PAIRS[0], ("The end", "a cat")], ["the"])
    other = word_importance(still_encoder, [("The end", "a cat")], [["the"]])
    assert twice["the"] == pytest.approx(100 * (single[0][0] + other[0][0]) / 2)


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
    assert redundancy_overlap_ratio(still_encoder, PAIRS, keywords=lambda text: [(0, len(text))]) == 0


def test_the_largest_eigenvalue_is_uncentred():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(30, 5, generator=generator) + 3
    matrix = sum(torch.outer(v, v).double() for v in vectors) / 30
    assert largest_eigenvalue(vectors) == pytest.approx(float(torch.linalg.eigvalsh(matrix).max()), rel=1e-6)
    assert largest_eigenvalue(vectors) > 2 * largest_eigenvalue(vectors - vectors.mean(dim=0))
    for bad in (torch.zeros(3), torch.zeros(0, 4)):
        with pytest.raises(ValueError, match="embeddings"):
            largest_eigenvalue(bad)


def test_the_curve_of_the_missing_figure(still_encoder, sentences):
    model = RepALPostProcessor.attach(still_encoder, lambda_1=0.3, lambda_2=1.0, corpus=sentences)
    pairs = list(zip(sentences[:4], sentences[4:], strict=True))
    scores = [1.0, 3.0, 0.0, 2.0]
    curve = eigenvalue_curve(model, pairs, scores, [0.0, 1.0, 2.0])
    assert [point.lambda_2 for point in curve] == [0.0, 1.0, 2.0]
    for point in curve:
        model[2].lambda_2 = point.lambda_2
        refined = torch.tensor(model.encode([t for pair in zip(*pairs, strict=True) for t in pair]))
        cosines = [cosine(model, x, y) for x, y in pairs]
        assert point.largest_eigenvalue == pytest.approx(largest_eigenvalue(refined), rel=1e-4)
        assert point.spearman == pytest.approx(spearmanr(cosines, scores).statistic, abs=1e-6)
    assert curve[0].largest_eigenvalue > curve[1].largest_eigenvalue


def test_surface_is_the_spearman_correlation_of_every_pair_of_weights(still_encoder, sentences):
    pairs, scores = list(zip(sentences[:4], sentences[4:], strict=True)), [1.0, 3.0, 2.0, 0.5]
    model = RepALPostProcessor.attach(still_encoder, lambda_1=0.3, lambda_2=0.2, corpus=sentences)
    one, two = [0.0, 0.5], [0.0, 0.7, 1.4]
    surface = lambda_surface(model, pairs, scores, lambda_1_grid=one, lambda_2_grid=two)
    assert (model[2].lambda_1, model[2].lambda_2) == (0.3, 0.2)
    assert surface.shape == (2, 3)
    assert len(np.unique(surface.round(6))) > 1
    for i, j in np.ndindex(2, 3):
        model[2].lambda_1, model[2].lambda_2 = one[i], two[j]
        expected = spearmanr([cosine(model, x, y) for x, y in pairs], scores).statistic
        assert surface[i, j] == pytest.approx(expected, abs=1e-6)
    assert model[2].tune(pairs, scores).spearman == lambda_surface(model, pairs, scores).max()


def test_errors(still_encoder):
    with pytest.raises(ValueError, match=r"delete_from .* got 'second'"):
        word_importance(still_encoder, PAIRS, [[]] * 4, delete_from="second")
    with pytest.raises(ValueError, match="got 1 for 4 pairs"):
        word_importance(still_encoder, PAIRS, [[]])
    with pytest.raises(ValueError, match="top must be at least 1; got 0"):
        redundancy_overlap_ratio(still_encoder, PAIRS, top=0)
    with pytest.raises(ValueError, match="got none"):
        redundancy_overlap_ratio(still_encoder, [("", "a")])
    for model in (still_encoder, RepALPostProcessor.attach(still_encoder, lambda_1=0, lambda_2=0)):
        with pytest.raises(ValueError, match="fitted RepALPostProcessor"):
            eigenvalue_curve(model, PAIRS, [1, 2, 3, 4], [0.0])
        with pytest.raises(ValueError, match="fitted RepALPostProcessor"):
            lambda_surface(model, PAIRS, [1, 2, 3, 4])
    with pytest.raises(ValueError, match="got 4 pairs, 4 scores, 1 distinct"):
        lambda_surface(still_encoder, PAIRS, [1, 1, 1, 1])
    assert word_importance(still_encoder, [], []) == []
