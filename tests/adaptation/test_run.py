"""What the jobs share: the output folder through interruptions and errors, settings, encoding."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.adaptation import AdaptationOptions, adapt, adapt_search
from st_extras.adaptation.run import AdaptationRun
from st_extras.encoders import embedding_store
from st_extras.encoders.loading import keep_layers
from st_extras.evaluation import RetrievalTask
from st_extras.files import write_checked_json
from st_extras.training.output import FILES
from st_extras.training.output import contents as output_contents
from tests.adaptation.texts import DEV, TEXTS, quiet
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot, write

pytestmark = pytest.mark.usefixtures("without_picture")


def opened(model: SentenceTransformer, output: Path, **options: Any) -> AdaptationRun:
    return AdaptationRun("adapt", model, output, AdaptationOptions(show_progress_bar=False, **options))


def stored(output: Path) -> list[Path]:
    return sorted((output.with_name("out.unfinished") / "encoded").glob("*.safetensors"))


def test_encoding_comes_before_normalize_or_by_a_route(still_encoder, tmp_path):
    plain = still_encoder.encode(SENTENCES, convert_to_tensor=True).double()
    still_encoder.append(Normalize())
    still_encoder.prompts = {"query": "the cat ", "document": "the dog "}
    with opened(still_encoder, tmp_path / "out") as job:
        torch.testing.assert_close(job.encode(SENTENCES), plain, atol=1e-6, rtol=0)
        for route in ("query", "document"):
            by_route = torch.tensor(getattr(still_encoder, f"encode_{route}")(SENTENCES)).double()
            torch.testing.assert_close(job.encode(SENTENCES, route=route), by_route)
        assert len(stored(tmp_path / "out")) == 3
        assert not len(job.encode(TEXTS, deadline=0.0))


# --- the folder ---


def test_the_search_for_documents_that_was_interrupted_is_not_resumed_as_that_for_a_domain(
    still_encoder, tmp_path, monkeypatch
):
    texts, model = TEXTS[:60], tmp_path / "out.unfinished" / "model"
    with monkeypatch.context() as patch:
        patch.setattr("st_extras.training.output.OutputFolder._put_in_place", interrupt)
        with pytest.raises(KeyboardInterrupt):
            adapt_search(still_encoder, texts, tmp_path / "out", **quiet())
    assert model.is_dir()
    with pytest.raises(ValueError, match=r"^resume needs an interrupted run of adapt, got one of adapt_search in "):
        adapt(still_encoder, texts, tmp_path / "out", **quiet(resume=True))
    assert model.is_dir()
    adapt_search(still_encoder, texts, tmp_path / "out", **quiet(resume=True))
    assert not model.exists()


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def failed(model: SentenceTransformer, output: Path, error: BaseException, **options: Any) -> None:
    """A run that fails when something is encoded."""

    def job() -> None:
        with opened(model, output, **options) as job:
            job.encode(SENTENCES)
            raise error

    with pytest.raises(type(error)):
        job()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left"), RuntimeError(), ValueError()])
def test_an_interruption_or_error_leaves_what_was_encoded(still_encoder, tmp_path, error):
    out = tmp_path / "out"
    failed(still_encoder, out, error)
    kept = stored(out)
    assert len(kept) == 1
    with pytest.raises(ValueError, match="set resume=True to continue it, or overwrite=True to discard it"):
        opened(still_encoder, out)
    encoded: list[int] = []
    with pytest.MonkeyPatch.context() as patch, opened(still_encoder, out, resume=True) as job:
        patch.setattr(embedding_store, "write_tensors", lambda *_: encoded.append(1))
        job.encode(SENTENCES)
        assert (encoded, stored(out)) == ([], kept)
    with opened(still_encoder, out, overwrite=True):
        assert stored(out) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left"), KeyError()])
def test_before_anything_was_encoded_nothing_is_left(still_encoder, tmp_path, error):
    with pytest.raises(type(error)), opened(still_encoder, tmp_path / "out"):
        raise error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", [adapt, adapt_search])
def test_too_little_time_keeps_the_earlier_result_and_what_was_encoded(still_encoder, tmp_path, job):
    out = tmp_path / "out"
    given = {} if job is adapt else {"queries": [" ".join(text.split()[:3]) for text in TEXTS]}
    advice = "give more" if job is adapt else "set resume=True and more minutes"  # queries are encoded at any rate
    write(out / "model.safetensors", "earlier")
    write_checked_json(out / FILES, "st-extras list of files", {"run": "", "files": output_contents(out)})
    with pytest.raises(ValueError, match=rf"^minutes must be enough to encode \d00 texts, got 1e-06, .*: {advice}\.$"):
        job(still_encoder, TEXTS, out, **quiet(overwrite=True, minutes=1e-6, **given))
    assert (out / "model.safetensors").read_text() == "earlier"
    assert len(stored(out)) == (job is adapt_search)
    assert out.with_name("out.unfinished").exists() == (job is adapt_search)


@pytest.mark.slow
def test_an_earlier_result_is_replaced_and_model_and_random_state_stay(encoder, tmp_path):
    out = tmp_path / "out"
    encoder.train()
    encoder[0].eval()
    before, modes = snapshot(encoder), [module.training for module in encoder.modules()]
    states = torch.get_rng_state(), random.getstate()
    found = adapt(encoder, TEXTS, out, **quiet(dev=DEV, max_general_loss=200.0))
    assert found.chosen is not None
    assert (torch.equal(states[0], torch.get_rng_state()), random.getstate()) == (True, states[1])
    assert [module.training for module in encoder.modules()] == modes
    assert not differing(before, snapshot(encoder))
    for options, argument in (({}, "output"), ({"resume": True}, "resume")):
        with pytest.raises(ValueError, match=f"^{argument} "):
            opened(encoder, out, **options)
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
        "limit": (499, 50_001, 600.0),
        "batch_size": (0, True, np.float64(8)),
    }
    wrong |= {"seed": (0.5, None), "resume": (1,), "overwrite": ("yes",), "show_progress_bar": (None,)}
    assert set(wrong) == {one.name for one in dataclasses.fields(AdaptationOptions)}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"^{name} must .*\.$"):
                AdaptationOptions(**{name: value})
    options = AdaptationOptions(limit=np.int64(600), batch_size=np.int32(8))  # type: ignore[arg-type]
    assert [type(value) for value in (options.limit, options.batch_size)] == [int, int]
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.limit = 3  # type: ignore[misc]


@pytest.mark.parametrize("job", [adapt, adapt_search])
def test_what_no_job_takes(still_encoder, make_encoder, tmp_path, job):
    resume = AdaptationOptions(resume=True)
    settings = {"options": {"minutes": 3}, "dev": 3, "resume": resume}
    for name, value in settings.items():
        with pytest.raises(ValueError, match=rf"^{name} .*\.$"):
            job(still_encoder, TEXTS, tmp_path / "out", **{"options" if name == "resume" else name: value})
    still_encoder.truncate_dim = 5
    with pytest.raises(ValueError, match=r"^model\.truncate_dim"):
        job(still_encoder, TEXTS, tmp_path / "out")
    still_encoder.truncate_dim = None
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


def test_embeddings_that_are_not_finite(still_encoder, tmp_path):
    with torch.no_grad():
        next(still_encoder[0].parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="is not finite"):
        adapt(still_encoder, TEXTS, tmp_path / "out", **quiet())
    assert not (tmp_path / "out").exists()
