"""The candidates of ``adapt``: linear steps and short trainings."""

import time
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.adaptation import CANDIDATES, ShortTraining
from st_extras.adaptation import candidates as module
from st_extras.adaptation.candidates import Candidate, NotTried, TrainingTime, propose
from st_extras.adaptation.encode import Encoded
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.samples import sample_sentences
from st_extras.text.term_weights import character_tfidf
from tests.fixtures import SENTENCES
from tests.helpers import differing, draw, snapshot

NAMES = [one.name for one in CANDIDATES]
TINY = ShortTraining("training", steps=1, learning_rate=1e-3, masked_share=0.1)
TEXTS = list(dict.fromkeys(sample_sentences()))[:120]
ENCODED = Encoded(TEXTS[:24], TEXTS[24:], draw(120, 6))


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda candidate: candidate.name)
def test_the_step_is_that_of_the_docstring(candidate):
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


def proposed(model: Any, encoded: Encoded = ENCODED, seconds: float | None = None, **options: Any) -> list[Any]:
    """All candidates; with ``seconds``, trainings too."""
    limit = None if seconds is None else TrainingTime(1e-5, time.perf_counter() + seconds)
    return list(propose(model, encoded, lambda model, texts, label: draw(len(texts), 6, seed=1), 5, limit, **options))


def test_steps_are_made_from_the_fitted_texts_alone():
    start: Any = object()
    found = proposed(start)
    expected = neighbor_directions(ENCODED.of_fitted, words=character_tfidf(TEXTS[24:]), seed=5)
    assert [one.name for one in found] == NAMES
    for one, candidate in zip(CANDIDATES, found, strict=True):
        matrix, offset = one.affine(expected)
        torch.testing.assert_close(candidate.step, (matrix, offset))
        assert candidate.model is start
        assert torch.equal(candidate.judged, ENCODED.of_judged)
        torch.testing.assert_close(candidate.after(ENCODED.of_judged), ENCODED.of_judged @ matrix + offset)
    few = Encoded(TEXTS[:24], TEXTS[24:40], draw(40, 6))
    (refused,) = proposed(start, few, 600.0)
    assert "must have at least" in refused.why


def test_a_training_costs_what_it_says():
    assert ShortTraining("t", 10, 1e-5, 0.1).seconds(0.001) == pytest.approx(10 * 64 * 8 * 0.001)


@pytest.mark.parametrize(("share", "guide"), [(0.2, "start"), (None, None)])
def test_a_copy_is_trained_with_the_settings(encoder, tmp_path, monkeypatch, share, guide):
    made: list[dict[str, Any]] = []
    loss = module.DCLRLoss

    def noted(model: SentenceTransformer, **options: Any) -> Any:
        made.append(options)
        return loss(model, **options)

    monkeypatch.setattr(module, "DCLRLoss", noted)
    before = snapshot(encoder)
    training = ShortTraining("t", 1, 1e-3, share, ("dropout", "shuffle"))
    trained = training.trained_copy(encoder, SENTENCES, tmp_path / "out", 1, show_progress_bar=False)
    assert made[0]["augmentations"] == ("dropout", "shuffle")
    assert (made[0].get("complementary_model"), made[0].get("masked_share")) == (guide, share)
    assert not differing(before, snapshot(encoder))
    assert differing(before, snapshot(trained))


@pytest.fixture
def made(monkeypatch):
    """What was trained, and on what, in place of a training."""
    calls: list[Any] = []

    def trained(self: ShortTraining, model: Any, texts: list[str], *others: Any) -> Any:
        if self.learning_rate > 1:
            raise ValueError("it diverged.")
        calls.append((self.name, texts, others))
        return f"{self.name} of {model[0]}"

    monkeypatch.setattr(ShortTraining, "trained_copy", trained)
    monkeypatch.setattr(module, "dropout_acts", lambda model: model != ["still"])
    return calls


def test_a_trained_copy_is_tried_with_and_without_a_step(made, monkeypatch, tmp_path):
    wild, slow = ShortTraining("wild", 1, 99.0, None), ShortTraining("slow", 10**9, 1e-3, None)
    monkeypatch.setattr(module, "TRAININGS", (wild, slow, TINY))
    found = proposed(["start"], seconds=600.0, folder=tmp_path)
    assert [getattr(one, "name", one) for one in found] == [
        *NAMES,
        NotTried("wild: it diverged."),
        NotTried("slow, which would take 85333.3 minutes more"),
        "training",
        *(f"training, then {name}" for name in NAMES),
    ]
    assert made == [("training", TEXTS[24:], (tmp_path, 5, False))]  # not on the judged texts
    whole, *refined = found[-5:]
    assert whole.step is None
    of_copy: Tensor = draw(120, 6, seed=1)
    expected = neighbor_directions(of_copy[24:], words=character_tfidf(TEXTS[24:]), seed=5)
    for one, candidate in zip([whole, *refined], found[-5:], strict=True):
        assert isinstance(candidate, Candidate)
        assert one.model == "training of start"
        assert torch.equal(one.judged, of_copy[:24])
    torch.testing.assert_close(refined[1].step, CANDIDATES[1].affine(expected))


def test_no_training_without_dropout(made):
    assert proposed(["still"], seconds=600.0)[len(NAMES) :] == [
        NotTried("training, which needs an encoder whose dropout acts")
    ]
    assert made == []
