"""``adapt``: what is computed from which texts, how it is scored, what is saved, what is left unchanged."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_extras.adaptation import CANDIDATES, LinearTransform, adapt, choice, corpus, domain
from st_extras.adaptation.corpus import Corpus, TextSummary, sample_texts
from st_extras.adaptation.domain import CandidateScores, FittedCandidates, fit_candidates
from st_extras.adaptation.scoring import HeldOutTexts, Measure, Measured, general_english
from st_extras.adaptation.transforms import STRENGTHS, Affine
from st_extras.encoders import load_encoder
from st_extras.evaluation import LabelFreeComparison, label_scores
from st_extras.evaluation.geometry import moved_threshold, unrelated_cosines
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.text.term_weights import character_tfidf
from tests.adaptation.texts import DEV, TEXTS, quiet, topical
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES
from tests.helpers import draw

pytestmark = pytest.mark.usefixtures("without_picture")
NAMES = [one.name for one in CANDIDATES]

# --- what is computed, from which texts ---

SAMPLES = list(dict.fromkeys(sample_sentences()))[:120]
SPLIT = (SAMPLES[:24], SAMPLES[24:], draw(24, 6), draw(96, 6, seed=1))
CORPUS = Corpus(*SPLIT, TextSummary(120, 120, 120, 24, 1.0), mean_cosine=0.1, why_not_usable=None)


def test_transforms_are_computed_from_the_fitting_texts_alone():
    found = fit_candidates(CORPUS, 5)
    expected = neighbor_directions(SPLIT[3], tfidf=character_tfidf(SAMPLES[24:]), seed=5)
    assert list(found.transforms) == NAMES
    for one in CANDIDATES:
        torch.testing.assert_close(found.transforms[one.name], one.affine(expected))
    few = dataclasses.replace(CORPUS, fitting=SAMPLES[24:40], fitting_embeddings=draw(16, 6))
    with pytest.raises(ValueError, match="must have at least"):
        fit_candidates(few, 5)


# --- how it is scored ---

TWICE = Affine(2 * torch.eye(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64))


def test_a_measure_is_taken_of_the_base_model_and_after_a_transform():
    first, second, _ = graded_pairs()
    rows = draw(600, 4)
    encoded: list[list[str]] = []
    general = Measured.by(general_english(), lambda texts: encoded.append(texts) or rows)  # type: ignore[func-returns-value]
    assert encoded == [[*first, *second]]
    assert general.base == general_english().score(rows)
    assert general.after(TWICE) == general_english().score(2 * rows + 1)
    total = Measured.by(Measure(["a"] * 600, lambda embeddings: float(embeddings.sum())), lambda _: rows)
    assert total.gain(TWICE) == pytest.approx((float(rows.sum()) + 2400, None, None), abs=1e-9)  # type: ignore[comparison-overlap]


def test_without_labels_held_out_texts_are_compared():
    comparison = LabelFreeComparison(SAMPLES[:110], draw(110, 4), seed=7)
    scores = CandidateScores(HeldOutTexts(comparison, draw(110, 4, seed=1)), None, 0.0)
    found = scores.result("x", TWICE, 0.0)
    expected = comparison.compare(2 * draw(110, 4, seed=1) + 1)
    assert (found.gain, found.low, found.high) == (expected.gain, expected.low, expected.high)
    assert found.general is None
    assert found.accepted == (expected.low > 0)


def measured(base: float, after: float) -> Any:
    """A measure that has one score before and one after any transform."""
    return Measured(Measure([], lambda _: after), torch.zeros(1, 4).double(), base)


def test_what_is_lost_on_general_english_is_held_against_a_candidate():
    for limit, reason in ((2.0, "loses 3.00 on general pairs, 2.00 allowed"), (4.0, None)):
        found = CandidateScores(measured(50.0, 60.0), measured(80.0, 77.0), limit).result("x", TWICE, 1.5)
        assert (found.gain, found.general, found.why_not_accepted) == (10.0, 77.0, reason)
        assert found.seconds >= 1.5


@pytest.mark.parametrize("places", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_candidates_may_stand_in_any_order(monkeypatch, places):
    """One that depends on a gentler one is scored after it, wherever it stands; results are in the order given."""
    gentle, medium = LinearTransform("gentle", 1, 0.5, 1), LinearTransform("medium", 1, 0.5, 1)
    strong = LinearTransform("strong", 1, 1, 0, gentler="medium")
    order = [(gentle, medium, strong)[place] for place in places]
    monkeypatch.setattr(domain, "CANDIDATES", tuple(order))
    general = {"gentle": 0.0, "medium": 3.0, "strong": 1.0}  # what each is from the score
    fitted = FittedCandidates(
        {name: Affine(torch.eye(4).double(), torch.full((4,), lost).double()) for name, lost in general.items()}, 0
    )
    measure = Measured(Measure([], lambda rows: 80.0 - float(rows.mean())), torch.zeros(1, 4).double(), 80.0)
    held_out = HeldOutTexts(LabelFreeComparison(SAMPLES[:110], draw(110, 4)), draw(110, 4))
    results, not_tried = CandidateScores(held_out, measure, 2.0).of(fitted)
    assert [one.name for one in results] == [one.name for one in order if one is not strong]
    assert not_tried == ["strong, as medium loses 3.00 on general pairs"]
    for scores in (
        CandidateScores(held_out, measure, choice.ANY_LOSS),
        CandidateScores(held_out, None, 2.0),  # nothing is known of general English
        CandidateScores(measured(1.0, 2.0), measure, 2.0),  # labels choose
    ):
        results, not_tried = scores.of(fitted)
        assert ([one.name for one in results], not_tried) == ([one.name for one in order], [])


# --- from texts to the saved model ---


def run(model: SentenceTransformer, texts: Any, folder: Path, **options: Any) -> Any:
    return adapt(model, texts, folder, **quiet(**{"max_general_loss": 200.0, **options}))


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
        (MINILM, {"strength": "whitening"}, 4, "whitening"),
        (RAW, {}, 4, "whitening"),
        (RAW, {"max_general_loss": 2.0}, 4, "medium"),
    ],
)
def test_how_strong_the_chosen_transform_is(still_encoder, tmp_path, monkeypatch, measured, options, tried, chosen):
    """Label-free gains and scores on general pairs as measured: from texts to the chosen strength."""
    base, by_strength = measured
    monkeypatch.setattr(corpus, "mean_cosine", lambda embeddings: 0.85 if measured is RAW else 0.68)
    scores = dict(zip(NAMES, by_strength, strict=True))
    monkeypatch.setattr(domain, "SMALLEST_GENERAL_SCORE", -100.0)

    def result(self: Any, name: str, transform: Affine, seconds: float) -> Any:
        gain, general = scores[name]
        found = domain.CandidateResult(name, gain, gain - 0.01, gain, general)
        reason = choice.why_not_accepted(found, base - general, self.max_general_loss)
        return dataclasses.replace(found, why_not_accepted=reason)

    monkeypatch.setattr(CandidateScores, "result", result)
    monkeypatch.setattr(CandidateScores, "lost", lambda self, result: base - result.general)
    monkeypatch.setattr(domain, "LEAST_CONFIRMED", 0.0)
    found: Any = adapt(still_encoder, TEXTS, tmp_path / "out", **quiet(**options))
    assert [one.name for one in found.candidates] == NAMES[:tried]
    assert found.chosen == f"{chosen} neighbour transform"
    low, high = found.details.expected_points
    assert (low, high) == choice.expected_points(scores[found.chosen][0])
    assert choice.expected_points(-0.1) is None, "a strength that was asked for may lose"
    assert f"gain on such texts {low:+.1f} to {high:+.1f} points" in (tmp_path / "out" / "README.md").read_text()
    assert [re.split("[,:]", one)[0] for one in found.details.not_tried] == NAMES[tried:]


@pytest.fixture(scope="module")
def whole(make_encoder, tmp_path_factory):
    """What was found in TEXTS by DEV, and where it is saved; nothing changes it."""
    folder = tmp_path_factory.mktemp("whole")
    return chosen_by_labels(make_encoder(dropout=0.0), folder), folder


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
    assert json.loads((folder / "adaptation.json").read_text()) == json.loads(json.dumps(found.as_json()))
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


@pytest.mark.usefixtures("few_general_pairs")
@pytest.mark.parametrize(
    ("place", "name", "error"),
    [
        (CandidateScores, "result", RuntimeError("no memory")),
        (domain, "neighbor_directions", ValueError("a bug")),
        (domain, "character_tfidf", ValueError("a bug")),
    ],
)
def test_an_error_is_no_reason_to_leave_the_encoder_unchanged(still_encoder, tmp_path, monkeypatch, place, name, error):
    def failing(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(place, name, failing)
    with pytest.raises(type(error), match=str(error)):
        run(still_encoder, TEXTS, tmp_path / "out", dev=DEV)
    assert not (tmp_path / "out").exists()


# --- texts and encoders of other kinds ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("least", "reason"), [(0.0, "none is better."), (1.01, "have a neighbour that embeddings and words agree on")]
)
def test_what_is_left_unchanged(still_encoder, tmp_path, monkeypatch, least, reason):
    monkeypatch.setattr(domain, "LEAST_CONFIRMED", least)
    monkeypatch.setattr(domain, "choose", lambda *_: choice.Choice(None, "none is better."))
    found = run(still_encoder, TEXTS, tmp_path / "out")
    assert found.reason.startswith("Left unchanged: ")
    assert reason in found.reason
    assert (found.chosen, found.model is still_encoder) == (None, True)
    np.testing.assert_array_equal(saved(tmp_path / "out").encode(SENTENCES), still_encoder.encode(SENTENCES))


def test_settings_and_labelled_texts_of_the_corpus(encoder, tmp_path):
    for name, options in {
        "max_general_loss": {"max_general_loss": -1},
        "max_general_loss must be between": {"max_general_loss": 201.0},
        "strength must be one": {"strength": "strong"},
        "strength must be left": {"strength": "medium"},
        "threshold": {"threshold": 1.1},
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


@pytest.mark.slow
@pytest.mark.usefixtures("few_general_pairs")
def test_a_language_model_is_an_encoder_as_any_other(tmp_path):
    """What is done does not depend on whether it has a default prompt."""
    folder = build_decoder(tmp_path / "decoder")
    found = [
        run(load_encoder(folder, device="cpu", **prompt), TEXTS[:500], tmp_path / str(number), dev=DEV)
        for number, prompt in enumerate(({}, {"prompts": {"text": "a "}, "default_prompt_name": "text"}))
    ]
    for one in found:
        assert [candidate.name for candidate in one.candidates] == NAMES


# --- strengths and thresholds ---


@pytest.mark.slow
@pytest.mark.parametrize("strength", STRENGTHS)
def test_a_strength_is_saved_whatever_it_loses_and_the_report_shows_no_limit(still_encoder, tmp_path, strength):
    found = adapt(still_encoder, TEXTS, tmp_path / "out", **quiet(strength=strength, dev=DEV))
    assert found.chosen == STRENGTHS[strength]
    report = (tmp_path / "out" / "adaptation.json").read_text()
    assert json.loads(report, parse_constant=lambda name: pytest.fail(name))["details"]["max_general_loss"] == 200.0


@pytest.mark.slow
def test_a_threshold_is_moved_by_the_held_out_texts(still_encoder, tmp_path):
    found = run(still_encoder, TEXTS, tmp_path / "out", dev=DEV, threshold=0.6)
    held_out = sample_texts(TEXTS, 12_000, 42).texts[:120]
    rows = [torch.tensor(model.encode(held_out)) for model in (still_encoder, found.model)]
    expected = moved_threshold(0.6, *rows)
    assert found.details.threshold.before == 0.6
    assert found.details.threshold.pairs == 120 * 119 / 2
    assert found.details.threshold.after == pytest.approx(expected.after, abs=1e-5)
    assert 0 < found.details.threshold.above < 7140
