"""``adapt``: what is proposed from which texts, how it is scored, what is saved, what is left unchanged."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor

from st_extras.adaptation import CANDIDATES, ShortTraining, adapt, choice, corpus, domain
from st_extras.adaptation.corpus import Corpus, TextSummary, sample_texts
from st_extras.adaptation.domain import Candidate, CandidateScores, NotTried, proposed
from st_extras.adaptation.scoring import Measure
from st_extras.evaluation import LabelFreeComparison, label_scores
from st_extras.evaluation.geometry import unrelated_cosines
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.text.term_weights import character_tfidf
from tests.adaptation.texts import DEV, TEXTS, topical
from tests.fixtures import SENTENCES
from tests.helpers import differing, draw, snapshot

pytestmark = pytest.mark.usefixtures("without_picture")
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


def test_a_trained_copy_is_encoded_in_the_order_of_the_corpus_and_tried_with_transforms(monkeypatch):
    trained: list[Any] = []

    def copy(self: ShortTraining, model: Any, texts: list[str], *others: Any) -> Any:
        if self.name == "wild":
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")
        trained.append((self.name, texts, others))
        return f"{self.name} of {model}"

    monkeypatch.setattr(ShortTraining, "trained_copy", copy)
    monkeypatch.setattr(domain, "dropout_acts", lambda model: model != "without dropout")
    monkeypatch.setattr(domain, "seconds_per_text", lambda model, texts, batch_size: 1e-5)
    wild, slow = ShortTraining("wild", 1, 1e-3, None), ShortTraining("slow", 10**9, 1e-3, None)
    monkeypatch.setattr(domain, "TRAININGS", (wild, slow, TINY))
    job: Any = Run()
    job.deadline = domain.time.perf_counter() + 600
    found: Any = list(proposed("base", CORPUS, job, train=True))  # type: ignore[arg-type]
    assert [getattr(one, "name", one) for one in found] == [
        *NAMES,
        NotTried("wild: CUDA out of memory. Tried to allocate"),
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
    last: Any = list(proposed("without dropout", CORPUS, Run(), train=True))[-1]  # type: ignore[arg-type]
    assert ("dropout acts" in last.reason, len(trained)) == (True, 1)


# --- how it is scored ---


def test_scores_are_those_of_each_encoder_with_its_transform():
    """Also after an encoder that once failed: it was scored by the embeddings of another."""
    first, second, _ = graded_pairs()
    measure = Measure(["a", "b", "c"], lambda embeddings: float(embeddings.sum()))
    by = {"base": draw(600, 4), "copy": draw(600, 4, seed=1)}
    encoded: list[tuple[Any, list[str]]] = []

    def encode(model: Any, texts: list[str]) -> Tensor:
        encoded.append((model, texts))
        if len(encoded) == 3:
            raise RuntimeError("no memory")
        return by[model][: len(texts)]

    scores = CandidateScores("base", encode, measure)  # type: ignore[arg-type]
    transform = domain.Affine(2 * torch.eye(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
    scores.base_general = 40.0  # random embeddings have about 0, of which nothing can be lost
    candidates: Any = {model: Candidate("x", model, draw(2, 4), transform) for model in by}  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no memory"):
        scores.result(candidates["copy"], max_general_loss=0.0)
    for model in ("copy", "copy", "base"):
        found = scores.result(candidates[model], max_general_loss=0.0)
        assert scores.base_dev == float(by["base"][:3].sum())
        assert found.gain == pytest.approx(float((2 * by[model][:3] + 1).sum()) - scores.base_dev)
        assert found.general == pytest.approx(domain.general_english().score(2 * by[model] + 1))
        assert "on general pairs" in found.reason
    texts = [*first, *second]
    rest = [(model, some) for model in ("copy", "base") for some in (texts, measure.texts)]
    assert encoded == [("base", texts), ("base", measure.texts), ("copy", texts), *rest]


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


# --- from texts to the saved model ---


def run(model: SentenceTransformer, texts: Any, folder: Path, **options: Any) -> Any:
    return adapt(model, texts, folder, **{"max_general_loss": 200.0, "show_progress_bar": False, **options})


def chosen_by_labels(model: SentenceTransformer, folder: Path, texts: Any = TEXTS) -> Any:
    """By a development set, something is always better."""
    found = run(model, texts, folder, dev=DEV)
    assert found.chosen is not None, found.candidates
    return found


def saved(folder: Path) -> SentenceTransformer:
    """The saved model, loaded with Sentence Transformers alone."""
    assert "st_extras" not in (folder / "modules.json").read_text()
    return SentenceTransformer(str(folder), device="cpu")


def gain_by_labels(base: SentenceTransformer, after: SentenceTransformer) -> Any:
    scores = [label_scores(model.encode(DEV.texts), DEV.labels)["mean"] for model in (base, after)]
    return pytest.approx(100 * (scores[1] - scores[0]), abs=0.05)


MINILM = (80.4, [(0.023, 80.5), (0.036, 80.4), (0.082, 79.3), (0.091, 77.6)])  # on Banking77
MEDIUM_FAILS = (80.4, [(0.023, 80.5), (0.036, 80.4), (0.082, None), (0.091, 77.6)])
RAW = (39.8, [(0.016, 39.8), (0.026, 40.2), (0.127, 39.8), (0.241, 34.0)])  # BERT-small, Banking77
LAST_LAYER_OFF = (73.0, [(0.037, 73.5), (0.065, 73.9), (0.150, 75.7), (0.223, 72.8)])  # MiniLM without it, Banking77


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measured", "options", "tried", "chosen"),
    [
        (MINILM, {}, 3, "medium"),
        (MINILM, {"max_general_loss": 0.5}, 3, "gentle"),
        (LAST_LAYER_OFF, {}, 4, "whitening"),
        (MINILM, {"strength": "slight"}, 4, "slight"),
        (MINILM, {"strength": "whitening", "max_general_loss": 0.5}, 4, "whitening"),
        (MEDIUM_FAILS, {}, 2, "gentle"),  # whitening does not follow from what the gentle one loses
        (RAW, {}, 4, "whitening"),
        (RAW, {"max_general_loss": 2.0}, 4, "medium"),
    ],
)
def test_how_strong_the_chosen_transform_is(still_encoder, tmp_path, monkeypatch, measured, options, tried, chosen):
    """Label-free gains and scores on general pairs as measured: from texts to the chosen strength."""
    base, by_strength = measured
    monkeypatch.setattr(corpus, "mean_cosine", lambda embeddings: 0.85 if measured is RAW else 0.68)
    scores = dict(zip(NAMES, by_strength, strict=True))
    monkeypatch.setattr(CandidateScores, "general_counts", True)

    def result(self: Any, candidate: Candidate, budget: float) -> Any:
        self.base_general = base
        gain, general = scores[candidate.name]
        if general is None:
            raise ValueError("not finite")
        reason = choice.objections(gain, gain - 0.01, base - general, budget)
        return domain.CandidateResult(candidate.name, gain, gain - 0.01, gain, general, not reason, reason, 0.0)

    monkeypatch.setattr(CandidateScores, "result", result)
    monkeypatch.setattr(domain, "LEAST_CONFIRMED", 0.0)
    found: Any = adapt(still_encoder, TEXTS, tmp_path / "out", show_progress_bar=False, **options)
    assert [one.name for one in found.candidates] == NAMES[:tried]
    assert found.chosen == f"{chosen} neighbour transform"
    low, high = choice.expected_points(scores[found.chosen][0])
    assert found.details.expected_points == (low, high)
    assert f"gain on such texts {low:+.1f} to {high:+.1f} points" in (tmp_path / "out" / "README.md").read_text()
    assert [re.split("[,:]", one)[0] for one in found.details.not_tried] == NAMES[tried:]


@pytest.fixture(scope="module")
def whole(built_encoders, tmp_path_factory):
    """What was found in TEXTS by DEV, and where it is saved; nothing changes it."""
    folder = tmp_path_factory.mktemp("whole")
    return chosen_by_labels(built_encoders(dropout=0.0), folder), folder


@pytest.mark.slow
def test_the_model_is_the_chosen_transform_after_the_base_model(still_encoder, whole):
    found, folder = whole
    dense = found.model[2].linear
    expected = torch.tensor(still_encoder.encode(SENTENCES)) @ dense.weight.T + dense.bias
    np.testing.assert_allclose(saved(folder).encode(SENTENCES), expected.detach(), atol=1e-5)
    best = max(found.candidates, key=lambda one: one.gain)
    assert best.gain == gain_by_labels(still_encoder, found.model)  # of the saved transform, not of its transpose
    assert (found.chosen, found.reason) == (best.name, f"{best.name} was best.")


@pytest.mark.slow
def test_the_report(still_encoder, whole):
    found, folder = whole
    assert json.loads((folder / "adaptation.json").read_text()) == json.loads(json.dumps(found.written()))
    texts = found.texts
    assert (texts.read, texts.sampled, texts.used, texts.held_out, texts.mean_words) == (600, 600, 600, 120, 6.0)
    held_out = sample_texts(TEXTS, 12_000, 42).texts[:120]
    before, after = (torch.tensor(model.encode(held_out)) for model in (still_encoder, found.model))
    for marks, embeddings in ((found.details.unrelated_before, before), (found.details.unrelated_after, after)):
        assert marks[100] == pytest.approx(unrelated_cosines(embeddings)[100], abs=1e-4)
    assert f"{found.details.changed:.0%}" in (folder / "neighbors.md").read_text()
    card = (folder / "README.md").read_text()
    assert f"* **st-extras adapt**, {found.chosen}: computed from 480 unlabelled texts of a domain." in card


@pytest.mark.slow
def test_an_interrupted_run_ends_the_same(still_encoder, tmp_path, monkeypatch, whole):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(domain, "split_corpus", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(still_encoder, TEXTS, tmp_path / "out")
    found = run(still_encoder, TEXTS, tmp_path / "out", resume=True, dev=DEV, minutes=1e-6)  # no time to encode
    assert [(one.name, one.gain) for one in found.candidates] == [(one.name, one.gain) for one in whole[0].candidates]
    assert np.array_equal(saved(tmp_path / "out").encode(SENTENCES), whole[0].model.encode(SENTENCES))


@pytest.mark.slow
def test_a_trained_copy_can_be_chosen(encoder, tmp_path, monkeypatch):
    """Its gain is that of the saved model; the base model stays as it was."""
    monkeypatch.setattr(domain, "TRAININGS", (TINY,))
    name, before = f"training + {NAMES[0]}", snapshot(encoder)
    monkeypatch.setattr(
        domain, "choose", lambda results, _: choice.Choice([one.name for one in results].index(name), "Liked.")
    )
    found = run(encoder, TEXTS, tmp_path / "out", train=True, dev=DEV)
    assert (found.chosen, found.details.dropout, found.details.not_tried) == (name, True, ())
    assert not differing(before, snapshot(encoder))
    assert found.chosen_result.gain == gain_by_labels(encoder, saved(tmp_path / "out"))
    assert differing(snapshot(encoder[0]), snapshot(found.model[0]))


@pytest.mark.slow
def test_a_candidate_that_cannot_be_scored_does_not_lose_the_others(still_encoder, tmp_path, monkeypatch):
    original, calls = CandidateScores.result, []

    def result(self: Any, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            raise RuntimeError("no memory")
        return original(self, *given)

    monkeypatch.setattr(CandidateScores, "result", result)
    monkeypatch.setattr(domain, "choose", lambda results, _: choice.Choice(0, "Liked."))
    found = run(still_encoder, TEXTS, tmp_path / "out", dev=DEV)
    assert found.details.not_tried == (f"{NAMES[0]}: no memory",)
    assert [one.name for one in found.candidates] == NAMES[1:]
    second = calls[1][0].transform.matrix.T.float()
    torch.testing.assert_close(found.model[2].linear.weight.detach(), second)  # of the result that was chosen


# --- texts and encoders of other kinds ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "least", "reason"),
    [
        ({}, 0.0, "none is better."),
        ({"minutes": 1e-6}, 0.0, "more minutes"),
        ({}, 1.01, "have a neighbour that embeddings and words agree on"),
    ],
)
def test_what_is_left_unchanged(still_encoder, tmp_path, monkeypatch, options, least, reason):
    monkeypatch.setattr(domain, "LEAST_CONFIRMED", least)
    monkeypatch.setattr(domain, "choose", lambda *_: choice.Choice(None, "none is better."))
    found = run(still_encoder, TEXTS, tmp_path / "out", **options)
    assert found.reason.startswith("Left unchanged: ")
    assert reason in found.reason
    assert (found.chosen, found.model is still_encoder) == (None, True)
    np.testing.assert_array_equal(saved(tmp_path / "out").encode(SENTENCES), still_encoder.encode(SENTENCES))


def test_settings_and_labelled_texts_of_the_corpus(encoder, tmp_path):
    for name, options in {
        "max_general_loss": {"max_general_loss": -1},
        "train": {"train": 1},
        "strength must be one": {"strength": "strong"},
        "strength must be left": {"strength": "medium", "train": True},
    }.items():
        with pytest.raises(ValueError, match=f"^{name}"):
            run(encoder, TEXTS, tmp_path / "out", **options)
    with pytest.raises(ValueError, match="600 of 600"):  # they are not fitted on
        run(encoder, TEXTS, tmp_path / "out", dev=topical(600))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_static_embeddings_with_texts_of_unknown_words(still_encoder, tmp_path):
    static = StaticEmbedding(still_encoder.tokenizer.backend_tokenizer, embedding_weights=draw(200, 8).numpy())
    static.embedding.weight.data[still_encoder.tokenizer.unk_token_id] = 0
    model = SentenceTransformer(modules=[static], device="cpu")
    found = chosen_by_labels(model, tmp_path / "out", [*TEXTS, *("犬" * k for k in range(1, 4))])
    assert (found.texts.sampled, found.texts.used) == (603, 600)
    assert np.array_equal(saved(tmp_path / "out").encode(SENTENCES), found.model.encode(SENTENCES))


@pytest.mark.slow
def test_routers_normalize_and_half_precision(make_encoder, tmp_path):
    encoder, pooling = make_encoder(dropout=0.0)
    router = Router({"query": [encoder, pooling], "document": [encoder, pooling]}, default_route="document")
    model = SentenceTransformer(modules=[router, Normalize()], device="cpu").to(torch.bfloat16)
    chosen_by_labels(model, tmp_path / "out")
    loaded = saved(tmp_path / "out")
    assert [type(module).__name__ for module in loaded] == ["Router", "Dense", "Normalize"]
    for one in (loaded, model):
        assert {parameter.dtype for parameter in one.parameters()} == {torch.bfloat16}
    apart = Router({"query": list(make_encoder()), "document": list(make_encoder(seed=1))})
    with pytest.raises(ValueError, match=r"^model must have one encoder"):
        run(SentenceTransformer(modules=[apart], device="cpu"), TEXTS, tmp_path / "apart")


def test_language_models_are_passed_on_unless_they_are_to_be_refined(still_encoder, tmp_path, monkeypatch):
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(domain, "is_language_model", lambda model: True)
    monkeypatch.setattr(
        domain, "adapt_language_model", lambda *given, **options: calls.append(options) or SimpleNamespace()
    )
    options = {"minutes": 3.0, "limit": 700, "batch_size": 9, "seed": 8, "dev": DEV, "overwrite": True}
    adapt(still_encoder, TEXTS, tmp_path / "out", **options, show_progress_bar=False)  # type: ignore[arg-type]
    assert calls == [options | {"resume": False, "show_progress_bar": False}]
    adapt(still_encoder, TEXTS[:10], tmp_path / "out", train=True, overwrite=True)
    assert len(calls) == 1
    with pytest.raises(ValueError, match=r"^max_general_loss must be"):
        adapt(still_encoder, TEXTS, tmp_path / "out", max_general_loss=1.0, overwrite=True)
    with pytest.raises(ValueError, match=r"^strength must be left out with a language model"):
        adapt(still_encoder, TEXTS, tmp_path / "out", strength="medium", overwrite=True)
