"""What the jobs share: the output folder through interruptions and errors, settings, encoding."""

import dataclasses
import json
import math
import random
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.adaptation import AdaptationOptions, adapt, adapt_search
from st_extras.adaptation.run import AdaptationRun, start_run
from st_extras.encoders.loading import keep_layers
from st_extras.evaluation import RetrievalTask
from tests.adaptation.texts import DEV, TEXTS, quiet
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot


def opened(model: SentenceTransformer, output: Path, **options: Any) -> AbstractContextManager[AdaptationRun]:
    return start_run(model, output, AdaptationOptions(show_progress_bar=False, **options))


def test_encoding_comes_before_normalize_or_by_a_route(still_encoder, tmp_path):
    plain = still_encoder.encode(SENTENCES, convert_to_tensor=True).double()
    still_encoder.append(Normalize())
    still_encoder.prompts = {"query": "the cat ", "document": "the dog "}
    still_encoder.train()
    still_encoder[0].eval()
    modes = [module.training for module in still_encoder.modules()]
    with opened(still_encoder, tmp_path / "out") as job:
        torch.testing.assert_close(job.encode(SENTENCES, "texts"), plain, atol=1e-6, rtol=0)
        for role in ("query", "document"):
            by_route = torch.tensor(getattr(still_encoder, f"encode_{role}")(SENTENCES)).double()
            torch.testing.assert_close(job.encode(SENTENCES, "texts", role=role), by_route)
        assert not len(job.encode(TEXTS, "texts", deadline=0.0))
    assert [module.training for module in still_encoder.modules()] == modes


def test_of_repeated_texts_the_first_are_encoded_until_the_time_is_over(still_encoder, tmp_path, monkeypatch):
    """As of passages that two documents share; one that is known already counts no more after one that is not."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr("st_extras.adaptation.run.PART", 3)
    texts = [SENTENCES[number] for number in (0, 1, 0, 2, 3, 1, 4)]
    expected = still_encoder.encode(texts, convert_to_tensor=True).double()
    still_encoder[0].register_forward_pre_hook(lambda *_: clock.append(clock.pop() + 1))
    with opened(still_encoder, tmp_path / "out") as job:
        for deadline, count in ((0.5, 4), (math.inf, 7)):
            clock[0] = 0.0
            torch.testing.assert_close(job.encode(texts, "texts", deadline=deadline), expected[:count])


# --- the folder ---


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left"), ValueError()])
def test_an_interruption_or_error_leaves_nothing(still_encoder, tmp_path, error):
    def job() -> None:
        with opened(still_encoder, tmp_path / "out") as job:
            job.encode(SENTENCES, "Encoding")
            (job.folder / "model.safetensors").write_text("half")
            raise error

    with pytest.raises(type(error)):
        job()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("job", "seconds", "encoded", "reason"),
    [
        (adapt, 4, 150, "200 different texts are needed, got 150."),
        (adapt, 1e-6, 0, "200 different texts are needed, got 0."),
        (adapt_search, 4, 50, "100 different documents are needed, got 50."),
        (adapt_search, 1e-6, 0, "100 different documents are needed, got 0."),
    ],
)
def test_too_little_time_leaves_the_encoder_unchanged(
    still_encoder, tmp_path, monkeypatch, job, seconds, encoded, reason
):
    """As too few texts do. Each batch takes a second, and encoding stops after 60 % of the time."""
    clock = [0.0]

    def tick(*_: Any, seconds: float = 1.0) -> float:
        clock[0] += seconds
        return clock[0]

    monkeypatch.setattr(time, "perf_counter", lambda: tick(seconds=1e-4))
    monkeypatch.setattr("st_extras.adaptation.run.PART", 50)
    still_encoder[0].register_forward_pre_hook(lambda *_: tick() and None)
    queries = {} if job is adapt else {"queries": sorted({" ".join(text.split()[:3]) for text in TEXTS})[:100]}
    found: Any = job(still_encoder, TEXTS, tmp_path / "out", **quiet(minutes=seconds / 60, batch_size=50, **queries))
    assert (found.chosen, found.model is still_encoder, found.candidates) == (None, True, [])
    assert found.reason == f"Left unchanged: {reason}"
    assert found.cut_short == f"Cut short by its minutes: {encoded} of 600 texts were encoded."
    saved = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_array_equal(saved.encode(SENTENCES), still_encoder.encode(SENTENCES))


@pytest.mark.slow
def test_an_earlier_result_is_replaced_and_model_and_random_state_stay(encoder, tmp_path):
    out = tmp_path / "out"
    encoder.train()
    encoder[0].eval()
    before, modes = snapshot(encoder), [module.training for module in encoder.modules()]
    states = torch.get_rng_state(), random.getstate()
    found = adapt(encoder, TEXTS, out, **quiet(dev=DEV, max_general_loss=math.inf))
    assert found.chosen is not None
    assert (torch.equal(states[0], torch.get_rng_state()), random.getstate()) == (True, states[1])
    assert [module.training for module in encoder.modules()] == modes
    assert not differing(before, snapshot(encoder))
    with pytest.raises(ValueError, match=r"^output "), opened(encoder, out):
        pass
    left = adapt(encoder, TEXTS[:10], out, **quiet(overwrite=True))
    files = {path.name for path in out.iterdir()}
    assert "adaptation.json" in files
    assert not files & {"neighbors.md", "2_Dense"}
    report = json.loads((out / "adaptation.json").read_text())
    assert (report["changed"], report["reason"]) == (False, left.reason)


# --- settings ---


def test_options_that_are_refused_and_what_becomes_of_others():
    wrong = {
        "minutes": (0, float("nan"), 10_001),
        "limit": (199, 50_001, 600.0),
        "batch_size": (0, True, np.float64(8)),
    }
    wrong |= {"seed": (0.5, None), "overwrite": ("yes",), "show_progress_bar": (None,)}
    assert set(wrong) == {one.name for one in dataclasses.fields(AdaptationOptions)}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"^{name} must .*\.$"):
                AdaptationOptions(**{name: value})
    given: Any = {"minutes": np.float32(2.5), "limit": np.int64(600), "batch_size": np.int32(8), "seed": np.int8(3)}
    given |= {"overwrite": np.True_, "show_progress_bar": np.False_}
    options = AdaptationOptions(**given)
    assert vars(options) == {name: value.item() for name, value in given.items()}
    assert [type(value) for value in vars(options).values()] == [float, int, int, int, bool, bool]
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.limit = 3  # type: ignore[misc]


@pytest.mark.parametrize("job", [adapt, adapt_search])
def test_what_no_job_takes(still_encoder, make_encoder, tmp_path, job):
    for name, value in {"options": {"minutes": 3}, "dev": 3}.items():
        with pytest.raises(ValueError, match=rf"^{name} .*\.$"):
            job(still_encoder, TEXTS, tmp_path / "out", **{name: value})
    still_encoder.truncate_dim = 5
    with pytest.raises(ValueError, match=r"^model\.truncate_dim"):
        job(still_encoder, TEXTS, tmp_path / "out")
    still_encoder.truncate_dim = None
    with pytest.raises(ValueError, match=r"^model must have a Pooling"):
        job(SentenceTransformer(modules=[still_encoder[0]], device="cpu"), TEXTS, tmp_path / "out")
    name = "texts" if job is adapt else "documents"
    for texts, message in ((["a cat", 3], "row 1"), (["犬" * k for k in range(1, 300)], "must ")):
        with pytest.raises(ValueError, match=rf"^{name},? {message}"):
            job(still_encoder, texts, tmp_path / "out")
    keep_layers(still_encoder, 1)
    still_encoder.add_adapter(pytest.importorskip("peft").LoraConfig(r=2, target_modules=["query"]))
    with pytest.raises(ValueError, match=r"^model must be a whole encoder"):
        job(still_encoder, TEXTS, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    dev = DEV if job is adapt else RetrievalTask({"q": "a cat"}, {"d": "the cat"}, {"q": {"d": 1.0}})
    for texts, overwrite in ((TEXTS[:9], False), (TEXTS[:8], True)):  # these are taken, and act
        found = job(make_encoder(), texts, tmp_path / "out", dev=dev, **quiet(overwrite=overwrite))
        assert found.texts.read == len(texts)
        assert json.loads((tmp_path / "out" / "adaptation.json").read_text())["texts"]["read"] == len(texts)
        with pytest.raises(ValueError, match=r"^output must"):
            job(make_encoder(), texts, tmp_path / "out", **quiet())


@pytest.mark.parametrize("job", [adapt, adapt_search])
def test_embeddings_that_are_not_finite(still_encoder, tmp_path, job):
    with torch.no_grad():
        next(still_encoder[0].parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="is not finite"):
        job(still_encoder, TEXTS, tmp_path / "out", **quiet())
    assert not (tmp_path / "out").exists()
