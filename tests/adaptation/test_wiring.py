"""Each setting of ``adapt`` reaches what it is for: every call below it is recorded, with its arguments by name.

Seed, deadline, batch size and limit are handed from part to part, and a part that gets another one still works.
"""

import dataclasses
import time
from contextlib import nullcontext
from typing import Any

import pytest

from st_extras.adaptation import AdaptationOptions, adapt
from st_extras.adaptation.transforms import STRENGTHS
from st_extras.evaluation import LabeledTextEvaluator
from st_extras.evaluation.geometry import unrelated_cosines
from tests.adaptation.texts import DEV, TEXTS
from tests.helpers import Recorder

pytestmark = pytest.mark.usefixtures("without_picture")
OPTIONS = AdaptationOptions(minutes=20, limit=520, batch_size=7, seed=5, show_progress_bar=False)
"""None of them is a default."""


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder(monkeypatch)
    recorder.on(
        "st_extras.adaptation.run:sample_texts",
        "st_extras.adaptation.run:check_known",
        "st_extras.encoders.embedding_store:EmbeddingStore.encode",
        "st_extras.adaptation.domain:split_corpus",
        "st_extras.adaptation.corpus:near_duplicate_share",
        "st_extras.adaptation.domain:unrelated_cosines",
        "st_extras.adaptation.domain:neighbor_directions",
        "st_extras.adaptation.domain:character_tfidf",
        "st_extras.adaptation.domain:CandidateScores.__init__",
        "st_extras.adaptation.domain:choose",
        "st_extras.adaptation.domain:add_linear",
        "st_extras.adaptation.domain:card_line",
        "st_extras.adaptation.domain:write_neighbors",
        "st_extras.adaptation.domain:moved_threshold",
        "st_extras.evaluation.label_free:LabelFreeComparison.__init__",
        "st_extras.adaptation.run:OutputFolder.__init__",
        "st_extras.adaptation.run:OutputFolder.save",
    )
    monkeypatch.setattr("st_extras.adaptation.domain.LEAST_CONFIRMED", 0.0)
    return recorder


def test_without_labels(still_encoder, tmp_path, recorder, monkeypatch):
    """With a strength, so that all is called, whatever the scores of a random encoder are."""
    monkeypatch.setattr("st_extras.adaptation.domain.SMALLEST_GENERAL_SCORE", -200.0)
    began = time.perf_counter()
    found = adapt(still_encoder, iter(TEXTS), tmp_path / "out", strength="gentle", threshold=0.6, options=OPTIONS)
    calls = recorder.calls
    sampled = recorder.one("sample_texts")
    assert (sampled["limit"], sampled["seed"], found.texts.sampled) == (520, 5, 520)
    texts = recorder.one("split_corpus")["sample"].texts
    assert recorder.one("check_known")["texts"] == texts
    assert [call["batch_size"] for call in calls["EmbeddingStore.encode"]] == [7] * len(calls["EmbeddingStore.encode"])
    assert not any(call["show_progress_bar"] for call in calls["EmbeddingStore.encode"])
    of_sample, of_general = calls["EmbeddingStore.encode"]
    assert of_sample["texts"] == texts
    assert 11.9 < (of_sample["deadline"] - began) / 60 < 12.1  # 60 % of 20 minutes
    assert of_general["deadline"] == float("inf")
    assert len(of_general["texts"]) == 600
    held_out, fitting = texts[:104], texts[104:]
    compared = recorder.one("LabelFreeComparison.__init__")
    assert (compared["seed"], list(compared["texts"])) == (5, held_out)
    assert recorder.one("character_tfidf")["texts"] == fitting
    assert (recorder.one("neighbor_directions")["seed"], len(recorder.one("neighbor_directions")["embeddings"])) == (
        5,
        416,
    )
    assert recorder.one("choose")["wanted"] == STRENGTHS["gentle"]
    shown = recorder.one("write_neighbors")
    assert (shown["seed"], shown["texts"], shown["folder"]) == (5, held_out, tmp_path / "out.unfinished" / "model")
    assert shown["before"] is compared["base"]
    moved = recorder.one("moved_threshold")
    assert (moved["threshold"], moved["before"] is shown["before"], moved["after"] is shown["after"]) == (
        0.6,
        True,
        True,
    )
    assert recorder.one("near_duplicate_share")["texts"] == held_out
    marked = [call["x"] for call in calls["unrelated_cosines"]]
    assert [marked[0] is shown["before"], marked[1] is shown["after"]] == [True, True]
    assert found.details.unrelated_before == unrelated_cosines(shown["before"])
    assert found.details.unrelated_after == unrelated_cosines(shown["after"])
    line, chosen = recorder.one("card_line"), next(one for one in found.candidates if one.name == found.chosen)
    assert (line["name"], line["fitting"], line["points"]) == (found.chosen, 416, found.details.expected_points)
    assert (line["before"], line["after"]) == (found.details.general, chosen.general)
    assert line["before"] != line["after"]
    assert recorder.one("add_linear")["model"] is still_encoder
    assert recorder.one("OutputFolder.save")["model"] is found.model
    asked = recorder.one("OutputFolder.__init__")
    assert (asked["output"], asked["resume"], asked["overwrite"]) == (tmp_path / "out", False, False)


@pytest.mark.usefixtures("few_general_pairs")
def test_with_labels(still_encoder, tmp_path, recorder):
    found = adapt(
        still_encoder,
        [*TEXTS, *DEV.texts],
        tmp_path / "out",
        dev=DEV,
        max_general_loss=3.5,
        options=dataclasses.replace(OPTIONS, limit=800),
    )
    assert "LabelFreeComparison.__init__" not in recorder.calls
    assert not set(recorder.one("split_corpus")["sample"].texts) & set(DEV.texts)
    assert recorder.one("CandidateScores.__init__")["max_general_loss"] == found.details.max_general_loss == 3.5
    assert recorder.one("choose")["wanted"] is None
    assert found.details.dev == pytest.approx(
        100 * LabeledTextEvaluator(DEV.texts, DEV.labels)(still_encoder)["mean"], abs=0.01
    )
    _, of_dev, _ = recorder.calls["EmbeddingStore.encode"]
    assert (list(of_dev["texts"]), of_dev["deadline"]) == (list(DEV.texts), float("inf"))


@pytest.mark.parametrize(("resume", "overwrite"), [(True, False), (False, True)])
def test_what_may_happen_to_the_folder(still_encoder, tmp_path, recorder, monkeypatch, resume, overwrite):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("st_extras.adaptation.domain.split_corpus", interrupted)
        with pytest.raises(KeyboardInterrupt):
            adapt(still_encoder, TEXTS, tmp_path / "out", options=AdaptationOptions(show_progress_bar=False))
    recorder.calls.clear()
    options = AdaptationOptions(resume=resume, overwrite=overwrite, minutes=1e-6, show_progress_bar=False)
    no_time = pytest.raises(ValueError, match=r"^minutes must be enough") if overwrite else nullcontext()
    with no_time:  # where what was stored is gone
        adapt(still_encoder, TEXTS, tmp_path / "out", options=options)
    asked = recorder.one("OutputFolder.__init__")
    assert (asked["resume"], asked["overwrite"]) == (resume, overwrite)
