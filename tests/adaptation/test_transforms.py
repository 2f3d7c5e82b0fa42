"""Linear transforms after an encoder, as their equation; short trainings with their settings."""

from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.adaptation import CANDIDATES, ShortTraining, trainings
from st_extras.adaptation.trainings import seconds_per_text
from st_extras.modules.neighbor_directions import neighbor_directions
from tests.fixtures import SENTENCES
from tests.helpers import differing, draw, snapshot


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda candidate: candidate.name)
def test_the_transform_is_that_of_the_docstring(candidate):
    embeddings = draw(300, 6) * torch.tensor([3.0, 2.0, 1.0, 1.0, 0.5, 0.2]) + 1.5
    found = neighbor_directions(embeddings)
    axes, variances, q = found.axes.numpy(), found.variances.numpy(), found.directions.numpy()
    rho, mean = found.agreement.numpy(), found.mean.numpy()
    kernel = np.zeros((6, 6))
    for k in range(6):
        out = sum(axes[:, r] * variances[r] ** -0.5 * q[r, k] for r in range(6))
        back = sum(axes[:, r] * variances[r] ** (candidate.recolor / 2) * q[r, k] for r in range(6))
        kernel += rho[k] * np.outer(out, back)
    covariance = sum(variances[r] * np.outer(axes[:, r], axes[:, r]) for r in range(6))
    kernel *= np.sqrt(np.trace(covariance) / np.trace(kernel.T @ covariance @ kernel))
    share = candidate.strength * found.count / (found.count + 1000)
    matrix, offset = candidate.affine(found)
    for v in embeddings[:5].numpy():
        away = v - mean
        expected = (1 - share) * away + share * (away @ kernel) + candidate.kept_mean * mean
        np.testing.assert_allclose(v @ matrix.numpy() + offset.numpy(), expected, atol=1e-9)


def test_a_training_takes_eight_passes_of_its_texts():
    assert ShortTraining("t", 10, 1e-5, 0.1).seconds(0.001) == pytest.approx(10 * 64 * 8 * 0.001)


@pytest.mark.parametrize(("share", "guide"), [(0.2, "start"), (None, None)])
def test_a_copy_is_trained_with_the_settings(encoder, tmp_path, monkeypatch, share, guide):
    made: list[dict[str, Any]] = []
    loss = trainings.DCLRLoss

    def noted(model: SentenceTransformer, **options: Any) -> Any:
        made.append(options)
        return loss(model, **options)

    monkeypatch.setattr(trainings, "DCLRLoss", noted)
    before = snapshot(encoder)
    training = ShortTraining("t", 1, 1e-3, share, ("dropout", "shuffle"))
    trained = training.trained_copy(encoder, SENTENCES, tmp_path / "out", 1, show_progress_bar=False)
    assert made[0]["augmentations"] == ("dropout", "shuffle")
    assert (made[0].get("complementary_model"), made[0].get("masked_share")) == (guide, share)
    assert not differing(before, snapshot(encoder))
    assert differing(before, snapshot(trained))


def test_the_speed_is_that_of_some_texts(encoder, monkeypatch):
    clock = iter([1.0, 3.0])
    monkeypatch.setattr(trainings.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(SentenceTransformer, "encode", lambda self, texts, **_: None)
    assert seconds_per_text(encoder, SENTENCES, 4) == 2.0 / len(SENTENCES)
