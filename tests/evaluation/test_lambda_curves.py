"""The largest eigenvalue and the correlation over RepAL's weights, against the model set to each of them."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from st_extras.evaluation.lambda_curves import eigenvalue_curve, lambda_surface, largest_eigenvalue
from st_extras.modules import RepALPostProcessor
from tests.evaluation.test_redundancy import PAIRS, model_cosine

pytest.importorskip("jieba")


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
        cosines = [model_cosine(model, x, y) for x, y in pairs]
        assert point.largest_eigenvalue == pytest.approx(largest_eigenvalue(refined), rel=1e-4)
        assert point.spearman == pytest.approx(spearmanr(cosines, scores).statistic, abs=1e-6)
    assert curve[0].largest_eigenvalue > curve[1].largest_eigenvalue


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


def test_errors(still_encoder):
    for model in (still_encoder, RepALPostProcessor.attach(still_encoder, lambda_1=0, lambda_2=0)):
        with pytest.raises(ValueError, match="fitted RepALPostProcessor"):
            eigenvalue_curve(model, PAIRS, [1, 2, 3, 4], [0.0])
        with pytest.raises(ValueError, match="fitted RepALPostProcessor"):
            lambda_surface(model, PAIRS, [1, 2, 3, 4])
    with pytest.raises(ValueError, match="got 4 pairs, 4 scores, 1 distinct"):
        lambda_surface(still_encoder, PAIRS, [1, 1, 1, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": ["ab"] * 4}, "pairs must hold pairs of sentences"),
        ({"scores": ["1", "2", "3", "4"]}, "scores must be finite numbers, got '1'"),
        ({"scores": [1.0, 2.0, 3.0, float("nan")]}, "scores must be finite numbers, got nan"),
        ({"scores": [1.0, 2.0]}, "got 4 pairs, 2 scores"),
        ({"lambda_2_grid": [float("nan")]}, "lambda_2_grid must be"),
        ({"lambda_2_grid": []}, "lambda_2_grid must hold at least one weight"),
        ({"lambda_2_grid": ["1"]}, "lambda_2_grid must be"),
        ({"batch_size": 0}, "batch_size must be"),
    ],
)
def test_wrong_arguments_are_named(still_encoder, sentences, options, message):
    model = RepALPostProcessor.attach(still_encoder, lambda_1=0.1, lambda_2=0.1, corpus=sentences)
    given = {"pairs": PAIRS, "scores": [1.0, 2.0, 3.0, 4.0], "lambda_2_grid": [0.0, 1.0], **options}
    for function in (lambda_surface, eigenvalue_curve):
        with pytest.raises(ValueError, match=message):
            function(model, **given)


def test_the_eigenvalue_of_what_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="embeddings must be finite"):
        largest_eigenvalue(torch.tensor([[1.0, torch.nan]]))
