"""``adapt``: what is computed from which texts, how it is scored, what is saved, what is left unchanged."""

import json
import math
import re
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_extras.adaptation import CANDIDATES, adapt, choice, domain
from st_extras.adaptation.domain import STRENGTHS, Candidate, Gain, score_each
from st_extras.adaptation.run import Sample, sample_texts
from st_extras.encoders import load_encoder
from st_extras.evaluation import label_scores
from st_extras.evaluation.geometry import moved_threshold, unrelated_cosines
from st_extras.modules.linear import Affine
from st_extras.samples import sample_sentences
from st_extras.samples.encoder import raw_encoder
from tests.adaptation.texts import DEV, TEXTS, quiet, topical
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES
from tests.helpers import draw

NAMES = [one.name for one in CANDIDATES]

# --- how candidates are scored ---

TRANSFORMS = {
    name: Candidate(Affine(torch.eye(4).double(), torch.full((4,), float(number)).double()))
    for number, name in enumerate(("slight", "medium", "whitening"))
}


def by_offset(*values: float) -> Any:
    """A score on general English after each of TRANSFORMS."""
    return lambda transform: values[round(float(transform.offset.mean()))]


def test_what_is_lost_on_general_english_is_held_against_a_candidate():
    def gain(candidate: Candidate) -> Gain:
        return 10.0 + float(candidate.transform.offset.mean()), None, None

    on_pairs = by_offset(80.0, 77.0, 70.0)
    results, not_tried = score_each(TRANSFORMS, gain, on_pairs, 80.0, 2.0, may_skip_whitening=False, seconds=1.5)
    assert [(one.name, one.gain, one.general) for one in results] == [
        ("slight", 10.0, 80.0),
        ("medium", 11.0, 77.0),
        ("whitening", 12.0, 70.0),
    ]
    forgets = "loses 3.00 on general pairs, 2.00 allowed"
    assert [one.why_not_accepted for one in results[:2]] == [None, forgets]
    assert (not_tried, results[0].seconds >= 1.5) == (None, True)


@pytest.mark.parametrize(
    ("base", "after", "limit", "may_skip_whitening", "tried"),
    [
        (80.0, (80.0, 77.0, 79.0), 2.0, True, 2),
        (80.0, (77.0, 80.0, 70.0), 2.0, True, 3),  # only what the medium one loses counts
        (80.0, (80.0, 77.0, 79.0), math.inf, True, 3),
        (80.0, (80.0, 77.0, 79.0), 2.0, False, 3),  # labels choose
        (None, (80.0, 77.0, 79.0), 2.0, True, 3),  # the pairs show nothing
    ],
)
def test_whitening_is_tried_where_the_medium_one_keeps_general_english(base, after, limit, may_skip_whitening, tried):
    results, not_tried = score_each(
        TRANSFORMS, lambda _: (0.1, 0.05, 0.2), by_offset(*after), base, limit, may_skip_whitening=may_skip_whitening
    )
    assert [one.name for one in results] == [*TRANSFORMS][:tried]
    reason = "whitening, as the medium one loses 3.00 on general pairs"
    assert not_tried == (reason if tried == 2 else None)
    assert {(one.gain, one.low, one.high) for one in results} == {(0.1, 0.05, 0.2)}


# --- from texts to the saved model ---


def run(model: SentenceTransformer, texts: Any, folder: Path, **options: Any) -> Any:
    return adapt(model, texts, folder, **quiet(**{"max_general_loss": math.inf, **options}))


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
    monkeypatch.setattr(domain, "mean_cosine", lambda embeddings: 0.85 if measured is RAW else 0.68)
    monkeypatch.setattr(domain, "SMALLEST_GENERAL_SCORE", -100.0)
    monkeypatch.setattr(domain, "LEAST_CONFIRMED", 0.0)
    scores = dict(zip(NAMES, by_strength, strict=True))

    def as_measured(candidates: Any, gain: Any, on_pairs: Any, general: Any, *limits: Any, **more: Any) -> Any:
        """Score by the numbers that were measured, in place of a random encoder's."""
        names = {id(one.transform): name for name, one in candidates.items()}

        def on_general(transform: Affine) -> float:
            return scores[names[id(transform)]][1]

        def found(candidate: Candidate) -> Gain:
            value = scores[names[id(candidate.transform)]][0]
            return value, value - 0.01, value

        return score_each(candidates, found, on_general, base, *limits, **more)

    monkeypatch.setattr(domain, "score_each", as_measured)
    found: Any = adapt(still_encoder, TEXTS, tmp_path / "out", **quiet(**options))
    assert [one.name for one in found.candidates] == NAMES[:tried]
    assert found.chosen == f"{chosen} neighbour transform"
    low, high = found.details.expected_points
    assert (low, high) == choice.expected_points(scores[found.chosen][0], 600)
    assert f"gain on such texts {low:+.1f} to {high:+.1f} points" in (tmp_path / "out" / "README.md").read_text()
    assert [re.split("[,:]", one)[0] for one in filter(None, [found.details.not_tried])] == NAMES[tried:]


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
    assert (texts.read, texts.sampled, texts.used, texts.scored, texts.mean_words) == (600, 600, 600, 0, 6.0)
    sampled = sample_texts(TEXTS, 12_000, 42).texts
    before, after = (torch.tensor(model.encode(sampled)) for model in (still_encoder, found.model))
    for marks, embeddings in ((found.details.unrelated_before, before), (found.details.unrelated_after, after)):
        assert marks[100] == pytest.approx(unrelated_cosines(embeddings)[100], abs=1e-4)
    assert f"{found.details.changed:.0%}" in (folder / "neighbors.md").read_text()
    card = (folder / "README.md").read_text()
    assert f"* **st-extras adapt**, {found.chosen}: computed from 600 unlabelled texts of a domain." in card


@pytest.mark.usefixtures("few_general_pairs")
@pytest.mark.parametrize(
    ("place", "name", "error"),
    [
        (domain, "score_each", RuntimeError("no memory")),
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


@pytest.mark.usefixtures("few_general_pairs")
@pytest.mark.parametrize(("least", "shown"), [(-100.0, True), (100.1, False)])
def test_where_the_general_pairs_show_nothing_no_candidate_is_refused_for_them(
    still_encoder, tmp_path, monkeypatch, least, shown
):
    monkeypatch.setattr(domain, "SMALLEST_GENERAL_SCORE", least)
    monkeypatch.setattr(choice, "MAX_GENERAL_LOSS", -1000.0)
    monkeypatch.setattr(choice, "RAW_MEAN_COSINE", 1.0)
    found = adapt(still_encoder, TEXTS[:200], tmp_path, **quiet(dev=DEV))
    assert (found.details.general is not None, found.candidates[0].general is not None) == (shown, shown)
    assert all(("on general pairs" in (one.why_not_accepted or "")) == shown for one in found.candidates)
    assert (found.chosen is None) == shown


@pytest.mark.parametrize(("alike", "loss"), [(0.7, 2.0), (0.71, math.inf)])
def test_a_raw_encoder_may_lose_anything_unless_a_limit_is_given(still_encoder, tmp_path, monkeypatch, alike, loss):
    monkeypatch.setattr(domain, "mean_cosine", lambda embeddings: alike)
    monkeypatch.setattr(domain, "LEAST_CONFIRMED", 1.1)  # so that nothing is scored
    for number, (options, expected) in enumerate([({}, loss), ({"max_general_loss": 0.5}, 0.5)]):
        found = adapt(still_encoder, TEXTS[:200], tmp_path / str(number), **quiet(**options))
        assert (found.details.max_general_loss, found.details.mean_cosine) == (expected, alike)


def test_too_few_different_embeddings_leave_the_encoder_unchanged(still_encoder, tmp_path):
    still_encoder.max_seq_length = 3  # reads one word, of few different ones
    found = run(still_encoder, TEXTS, tmp_path)
    assert found.reason.startswith("Left unchanged: sentences must have at least 50 different embeddings")
    assert (found.candidates, found.model is still_encoder, found.texts.used) == ([], True, 600)


def test_texts_that_are_read_in_part_are_warned_of(still_encoder, tmp_path, caplog):
    texts = [f"{text} {text}" if number % 8 else text for number, text in enumerate(TEXTS[:150])]
    still_encoder.max_seq_length = 9  # six words, [CLS] and [SEP]
    run(still_encoder, TEXTS[:150], tmp_path / "short")
    assert "are longer than" not in caplog.text
    run(still_encoder, texts, tmp_path / "long")
    assert "131 of the first 150 texts are longer than the 9 tokens that the encoder reads:" in caplog.text


def test_the_rounding_of_an_encoder_is_that_of_its_numbers(still_encoder, tmp_path):
    """In half precision, embeddings of all texts are the same but for rounding; in single precision, they differ."""
    reasons = []
    for number, dtype in enumerate((torch.bfloat16, torch.float32)):
        weights = 1 + 0.004 * draw(200, 8).numpy()
        static = StaticEmbedding(still_encoder.tokenizer.backend_tokenizer, embedding_weights=weights)
        model = SentenceTransformer(modules=[static], device="cpu").to(dtype)
        reasons.append(run(model, TEXTS[:200], tmp_path / f"{number}").reason)
    same = ["the same embedding, but for the rounding of its numbers" in reason for reason in reasons]
    assert same == [True, False], reasons


def test_different_encoders_for_the_routes_are_refused(make_encoder, tmp_path):
    apart = Router({"query": list(make_encoder()), "document": list(make_encoder(seed=1))}, default_route="query")
    with pytest.raises(ValueError, match=r"^model must have one encoder"):
        run(SentenceTransformer(modules=[apart], device="cpu"), TEXTS, tmp_path / "apart")


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


def test_a_fold_whose_texts_share_no_words_compares_nothing(tmp_path, monkeypatch):
    """No three characters of the second hundred stand twice."""
    apart = [f"{a}{b}{a}" for b in "abcd" for a in ascii_lowercase][:100]
    texts = [*list(dict.fromkeys(sample_sentences()))[:100], *apart]
    monkeypatch.setattr("st_extras.adaptation.run.sample_texts", lambda texts, *_: Sample(list(texts), len(texts)))
    model = raw_encoder()
    found = run(model, texts, tmp_path / "out", batch_size=10)
    assert found.reason == (
        "Left unchanged: only 0% of the texts in one of 2 parts have a neighbour that embeddings and words agree on, "
        "so nothing can be compared without labels."
    )
    assert (found.model is model, found.candidates, found.details.confirmed_share) == (True, [], 0)


@pytest.mark.usefixtures("few_general_pairs")
def test_two_hundred_different_texts_are_enough(still_encoder, tmp_path):
    for number, (texts, reason) in enumerate(
        [
            (TEXTS[:200], None),
            (TEXTS[:199], "200 different texts are needed, got 199."),
            ([*TEXTS[:199], TEXTS[0].upper()], "200 different texts are needed, got 199 but for numbers and case."),
            ([f"The dog {i}" for i in range(300)], "200 different texts are needed, got 1 but for numbers and case."),
        ]
    ):
        found = run(still_encoder, texts, tmp_path / str(number))
        left = found.reason.startswith("Left unchanged: ")
        assert reason is None or (left and found.reason.removeprefix("Left unchanged: ").startswith(reason)), found
        assert (reason is None) == bool(found.candidates)
    assert not (tmp_path / "1" / "neighbors.md").exists()


def test_settings_and_labelled_texts_of_the_corpus(encoder, tmp_path):
    for name, options in {
        "max_general_loss": {"max_general_loss": -1},
        "max_general_loss must": {"max_general_loss": math.nan},
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
    assert json.loads(report, parse_constant=lambda name: pytest.fail(name))["details"]["max_general_loss"] is None


@pytest.mark.slow
def test_a_threshold_is_moved_by_the_texts_and_the_saved_transform(still_encoder, tmp_path):
    found = run(still_encoder, TEXTS, tmp_path / "out", dev=DEV, threshold=0.6)
    sampled = sample_texts(TEXTS, 12_000, 42).texts
    rows = [torch.tensor(model.encode(sampled)) for model in (still_encoder, found.model)]
    expected = moved_threshold(0.6, *rows)
    assert found.details.threshold.before == 0.6
    assert found.details.threshold.pairs == 600 * 599 / 2
    assert found.details.threshold.after == pytest.approx(expected.after, abs=1e-5)
    assert 0 < found.details.threshold.above < 179_700
