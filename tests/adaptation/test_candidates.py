"""The candidates of ``adapt``: made from which texts, and scored on which, with embeddings that are given."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from st_extras.adaptation import CANDIDATES, ShortTraining, domain
from st_extras.adaptation.corpus import Corpus, TextSummary
from st_extras.adaptation.domain import Candidate, CandidateScores, NotTried, proposed
from st_extras.adaptation.scoring import Measure
from st_extras.evaluation import LabelFreeComparison
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.text.term_weights import character_tfidf
from tests.helpers import draw

NAMES = [one.name for one in CANDIDATES]
TINY = ShortTraining("training", steps=2, learning_rate=1e-3, masked_share=0.1)

# --- what is proposed ---

SAMPLES = list(dict.fromkeys(sample_sentences()))[:120]
CORPUS = Corpus(SAMPLES[:24], SAMPLES[24:], draw(120, 6), torch.arange(120), TextSummary(120, 120, 120, 24, 1.0))
BY_COPY = draw(120, 6, seed=1)


class Run:
    """Records what is encoded, by which model, and gives BY_COPY for it."""

    seed, deadline, batch_size, show_progress_bar, training_folder = 5, float("inf"), 4, False, Path("work")

    def __init__(self) -> None:
        self.encoded: list[tuple[Any, list[str]]] = []

    def encode(self, model: Any, texts: list[str], label: str = "") -> Tensor:
        self.encoded.append((model, texts))
        return BY_COPY


def test_transforms_are_computed_from_the_fitting_texts_alone():
    base: Any = object()
    found: Any = list(proposed(base, CORPUS, Run(), train=False))  # type: ignore[arg-type]
    expected = neighbor_directions(CORPUS.embeddings[24:], tfidf=character_tfidf(SAMPLES[24:]), seed=5)
    assert [(one.name, one.gentler) for one in found] == [(one.name, one.gentler) for one in CANDIDATES]
    for one, candidate in zip(CANDIDATES, found, strict=True):
        matrix, offset = one.affine(expected)
        assert candidate.model is base
        assert torch.equal(candidate.held_out_embeddings, CORPUS.embeddings[:24])
        torch.testing.assert_close(candidate.transformed(CORPUS.embeddings), CORPUS.embeddings @ matrix + offset)
    few = dataclasses.replace(CORPUS, fitting=SAMPLES[24:40], embeddings=draw(40, 6))
    (refused,) = proposed(base, few, Run(), train=True)  # type: ignore[arg-type]
    assert "must have at least" in refused.reason  # type: ignore[union-attr]


@pytest.fixture
def trained(monkeypatch):
    """The arguments of trainings, in place of the trainings."""
    calls: list[Any] = []

    def copy(self: ShortTraining, model: Any, texts: list[str], *others: Any) -> Any:
        if self.learning_rate > 1:
            raise ValueError("it diverged.")
        calls.append((self.name, texts, others))
        return f"{self.name} of {model}"

    monkeypatch.setattr(ShortTraining, "trained_copy", copy)
    monkeypatch.setattr(domain, "dropout_acts", lambda model: model != "without dropout")
    monkeypatch.setattr(domain, "seconds_per_text", lambda model, texts, batch_size: 1e-5)
    return calls


def test_a_trained_copy_is_encoded_in_the_order_of_the_corpus_and_tried_with_transforms(trained, monkeypatch):
    wild, slow = ShortTraining("wild", 1, 99.0, None), ShortTraining("slow", 10**9, 1e-3, None)
    monkeypatch.setattr(domain, "TRAININGS", (wild, slow, TINY))
    job: Any = Run()
    job.deadline = domain.time.perf_counter() + 600
    found: Any = list(proposed("base", CORPUS, job, train=True))  # type: ignore[arg-type]
    assert [getattr(one, "name", one) for one in found] == [
        *NAMES,
        NotTried("wild: it diverged."),
        NotTried("slow, which would take 85333.3 minutes more"),
        "training",
        *(f"training + {name}" for name in NAMES),
    ]
    assert trained == [("training", SAMPLES[24:], (Path("work"), 5, False))]  # not on the held-out texts
    assert job.encoded == [("training of base", SAMPLES)]  # held-out texts first, as in the corpus
    expected = neighbor_directions(BY_COPY[24:], tfidf=character_tfidf(SAMPLES[24:]), seed=5)
    for one in found[-5:]:
        assert one.model == "training of base"
        assert torch.equal(one.held_out_embeddings, BY_COPY[:24])
    assert found[-5].transform is None
    assert found[-1].gentler == f"training + {CANDIDATES[-1].gentler}"
    torch.testing.assert_close(found[-4].transform, CANDIDATES[0].affine(expected))


def test_no_training_without_dropout(trained):
    found = list(proposed("without dropout", CORPUS, Run(), train=True))  # type: ignore[arg-type]
    assert "dropout acts" in found[-1].reason  # type: ignore[union-attr]
    assert trained == []


# --- how it is scored ---


def test_scores_are_those_of_each_encoder_with_its_transform():
    first, second, _ = graded_pairs()
    measure = Measure(["a", "b", "c"], lambda embeddings: float(embeddings.sum()))
    by = {"base": draw(600, 4), "copy": draw(600, 4, seed=1)}
    encoded: list[tuple[Any, list[str]]] = []

    def encode(model: Any, texts: list[str]) -> Tensor:
        encoded.append((model, texts))
        return by[model][: len(texts)]

    scores = CandidateScores("base", encode, measure)  # type: ignore[arg-type]
    transform = domain.Affine(2 * torch.eye(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
    scores.base_general = 40.0  # random embeddings have about 0, of which nothing can be lost
    for model in ("base", "copy", "copy"):
        of: Any = Candidate("x", model, draw(2, 4), transform)  # type: ignore[arg-type]
        found = scores.result(of, max_general_loss=0.0)
        assert scores.base_dev == float(by["base"][:3].sum())
        assert found.gain == pytest.approx(float((2 * by[model][:3] + 1).sum()) - scores.base_dev)
        left, right = (2 * by[model] + 1).chunk(2)
        general = domain.general_english().score(torch.cat([left, right]))
        assert found.general == pytest.approx(general)
        assert "on general pairs" in found.reason
    assert encoded == [(model, texts) for model in ("base", "copy") for texts in ([*first, *second], measure.texts)]


def test_an_encoder_that_failed_once_is_not_scored_by_the_embeddings_of_another():
    measure = Measure(["a", "b"], lambda embeddings: float(embeddings.sum()))
    by, copies = {"base": draw(600, 4), "copy": draw(600, 4, seed=1)}, iter([RuntimeError("no memory"), None, None])

    def encode(model: Any, texts: list[str]) -> Tensor:
        if model == "copy" and (error := next(copies)):
            raise error
        return by[model][: len(texts)]

    scores = CandidateScores("base", encode, measure)  # type: ignore[arg-type]
    candidate = Candidate("x", "copy", draw(2, 4))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no memory"):
        scores.result(candidate, 0.0)
    assert scores.result(candidate, 0.0).gain == pytest.approx(float(by["copy"][:2].sum() - by["base"][:2].sum()))


def test_without_labels_held_out_texts_are_compared():
    texts, base = SAMPLES[:110], draw(110, 8)
    comparison = LabelFreeComparison(texts, base, seed=7)
    scores = CandidateScores("base", lambda model, texts: draw(len(texts), 8), comparison)  # type: ignore[arg-type]
    assert scores.base_dev is None
    for move in (base, base + draw(110, 8, seed=1)):
        found = scores.result(Candidate("x", "base", move), max_general_loss=0.0)  # type: ignore[arg-type]
        verdict = comparison.compare(move)
        assert (found.gain, found.low, found.high) == (verdict.gain, verdict.low, verdict.high)
        assert found.general is None  # random embeddings have less than 30
        assert found.accepted == (verdict.low > 0)
