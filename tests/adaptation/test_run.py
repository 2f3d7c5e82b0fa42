"""What the jobs share: the output folder through interruptions and errors, settings, encoding."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Normalize

from st_extras.adaptation import adapt, adapt_language_model, adapt_search, run
from st_extras.adaptation.run import AdaptationRun
from st_extras.encoders import embedding_store
from tests.adaptation.texts import DEV, TEXTS
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot

OPTIONS: dict[str, Any] = {"minutes": 10.0, "limit": 600, "batch_size": 8, "seed": 3}
OPTIONS |= {"resume": False, "overwrite": False, "show_progress_bar": False}


def opened(model: SentenceTransformer, output: Path, **options: Any) -> AdaptationRun:
    return AdaptationRun(model, output, **(OPTIONS | options))


def stored(output: Path) -> list[Path]:
    return sorted((output / "adapting").glob("*.safetensors"))


def test_encoding_comes_before_normalize_or_by_a_route(still_encoder, tmp_path):
    plain = still_encoder.encode(SENTENCES, convert_to_tensor=True).double()
    still_encoder.append(Normalize())
    still_encoder.prompts = {"query": "the cat ", "document": "the dog "}
    with opened(still_encoder, tmp_path / "out") as job:
        torch.testing.assert_close(job.encode(still_encoder, SENTENCES), plain, atol=1e-6, rtol=0)
        for route in ("query", "document"):
            by_route = torch.tensor(getattr(still_encoder, f"encode_{route}")(SENTENCES)).double()
            torch.testing.assert_close(job.encode(still_encoder, SENTENCES, route=route), by_route)
        assert len(stored(tmp_path / "out")) == 3
        assert not len(job.encode(still_encoder, TEXTS, deadline=0.0))


def test_the_model_and_the_random_state_stay(encoder, tmp_path):
    encoder.train()
    encoder[0].eval()
    before, modes = snapshot(encoder), [module.training for module in encoder.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    adapt(encoder, TEXTS, tmp_path / "out", dev=DEV, show_progress_bar=False)
    assert torch.equal(states[0], torch.get_rng_state())
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()  # noqa: NPY002
    assert [module.training for module in encoder.modules()] == modes
    assert not differing(before, snapshot(encoder))


# --- the folder ---


class Interrupted(KeyboardInterrupt):
    """What a user's Ctrl-C raises."""


def failed(model: SentenceTransformer, output: Path, error: BaseException, **options: Any) -> None:
    """A run that fails when something is encoded and a training has saved something."""

    def job() -> None:
        with opened(model, output, **options) as job:
            job.encode(model, SENTENCES)
            job.training_folder.mkdir()
            raise error

    with pytest.raises(type(error)):
        job()


@pytest.mark.parametrize("error", [Interrupted(), OSError(28, "No space left"), torch.OutOfMemoryError()])
def test_an_interruption_leaves_what_was_encoded(still_encoder, tmp_path, error):
    out = tmp_path / "out"
    failed(still_encoder, out, error)
    kept = stored(out)
    assert len(kept) == 1
    with pytest.raises(ValueError, match=r"set overwrite=True or resume=True"):
        opened(still_encoder, out)
    encoded: list[int] = []
    with pytest.MonkeyPatch.context() as patch, opened(still_encoder, out, resume=True) as job:
        patch.setattr(embedding_store, "write_tensors", lambda *_: encoded.append(1))
        found = job.encode(still_encoder, SENTENCES)
        assert not encoded
        torch.testing.assert_close(found, job.encode(still_encoder, SENTENCES))
        assert stored(out) == kept
    with opened(still_encoder, out, overwrite=True):
        assert not stored(out)
        assert not (out / "adapting").exists()


@pytest.mark.parametrize("error", [ValueError(), TypeError(), KeyError(), ImportError()])
def test_any_other_error_leaves_nothing(still_encoder, tmp_path, error):
    failed(still_encoder, tmp_path / "out", error)
    assert not (tmp_path / "out").exists()


def test_an_error_of_the_development_set_leaves_nothing(still_encoder, tmp_path, monkeypatch):
    """It once left the folder of an interrupted run."""
    monkeypatch.setattr("st_extras.adaptation.scoring.label_scores", lambda *_: {}["mean"])
    with pytest.raises(KeyError):
        adapt(still_encoder, TEXTS, tmp_path / "out", dev=DEV, show_progress_bar=False)
    assert not (tmp_path / "out").exists()


def test_files_of_others_stay(still_encoder, tmp_path):
    out = tmp_path / "out"
    failed(still_encoder, out, Interrupted())
    (out / "adapting" / "thesis.txt").write_text("mine")
    failed(still_encoder, out, ValueError(), overwrite=True)
    assert [path.name for path in out.rglob("*")] == ["adapting", "thesis.txt"]
    with pytest.raises(ValueError, match="'adapting', which no earlier run wrote"):
        opened(still_encoder, out, overwrite=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "adaptation.json").write_text("mine")
    with pytest.raises(ValueError, match=r"'adaptation\.json', which no earlier run wrote"):
        opened(still_encoder, other, overwrite=True)


def test_an_earlier_result_is_replaced(still_encoder, tmp_path):
    out = tmp_path / "out"
    found = adapt(still_encoder, TEXTS, out, dev=DEV, max_general_loss=200.0, show_progress_bar=False)
    assert found.chosen is not None
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="output must be a new or empty folder"):
        opened(still_encoder, out)
    with pytest.raises(ValueError, match="resume needs an interrupted adaptation"):
        opened(still_encoder, out, resume=True)
    left = adapt(still_encoder, TEXTS[:10], out, overwrite=True, show_progress_bar=False)
    assert left.chosen is None
    assert len(SentenceTransformer(str(out), device="cpu")) == 2
    files = {path.name for path in out.iterdir()}
    assert files > {"notes.txt", "adaptation.json"}
    assert not files & {"neighbors.md", "adapting", "2_Dense"}
    report = json.loads((out / "adaptation.json").read_text())
    assert (report["changed"], report["reason"]) == (False, left.reason)


# --- settings ---


def causal(model: Any, texts: Any, output: Any, **options: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("st_extras.adaptation.language_model.is_language_model", lambda model: True)
        return adapt_language_model(model, texts, output, **options)


@pytest.mark.parametrize("job", [adapt, adapt_search, causal])
@pytest.mark.parametrize(
    "options",
    [{"minutes": 0}, {"limit": 499}, {"batch_size": 0}, {"seed": 0.5}, {"resume": "yes"}, {"resume": True}, {"dev": 3}],
    ids=str,
)
def test_settings_of_every_job(still_encoder, tmp_path, job, options):
    (name,) = options
    with pytest.raises(ValueError, match=rf"^{name} .*\.$"):
        job(still_encoder, TEXTS, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("job", [adapt, adapt_search, causal])
def test_encoders_that_no_job_takes(still_encoder, tmp_path, job):
    still_encoder.truncate_dim = 5
    with pytest.raises(ValueError, match=r"^model\.truncate_dim"):
        job(still_encoder, TEXTS, tmp_path / "out")
    still_encoder.truncate_dim = None
    body: Any = still_encoder[0].auto_model
    body.cut_in_memory = body._hf_peft_config_loaded = True
    with pytest.raises(ValueError, match=r"^model must be a whole encoder"):
        job(still_encoder, TEXTS, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_models_of_another_kind(tmp_path):
    other = SparseEncoder.__new__(SparseEncoder)
    torch.nn.Module.__init__(other)
    with pytest.raises(ValueError, match="model must be a SentenceTransformer"):
        adapt(other, TEXTS, tmp_path / "out")
    assert run.WORK == "adapting"


def test_an_encoder_that_gives_nan(still_encoder, tmp_path):
    with torch.no_grad():
        next(still_encoder[0].parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="is not finite"):
        adapt(still_encoder, TEXTS, tmp_path / "out", show_progress_bar=False)
    assert not (tmp_path / "out").exists()
