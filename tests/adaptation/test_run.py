"""What the jobs share: the output folder through interruptions and errors, settings, encoding."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_extras.adaptation import adapt, adapt_language_model, adapt_search
from st_extras.adaptation.run import AdaptationRun
from st_extras.encoders import embedding_store
from tests.adaptation.texts import DEV, TEXTS
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot

pytestmark = pytest.mark.usefixtures("without_picture")
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


# --- the folder ---


def failed(model: SentenceTransformer, output: Path, error: BaseException, **options: Any) -> None:
    """A run that fails when something is encoded and a training has saved something."""

    def job() -> None:
        with opened(model, output, **options) as job:
            job.encode(model, SENTENCES)
            job.training_folder.mkdir()
            raise error

    with pytest.raises(type(error)):
        job()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left"), torch.OutOfMemoryError()])
def test_an_interruption_leaves_what_was_encoded(still_encoder, tmp_path, error):
    out = tmp_path / "out"
    failed(still_encoder, out, error)
    kept = stored(out)
    assert len(kept) == 1
    with pytest.raises(ValueError, match="set overwrite=True or resume=True"):
        opened(still_encoder, out)
    encoded: list[int] = []
    with pytest.MonkeyPatch.context() as patch, opened(still_encoder, out, resume=True) as job:
        patch.setattr(embedding_store, "write_tensors", lambda *_: encoded.append(1))
        job.encode(still_encoder, SENTENCES)
        assert (encoded, stored(out)) == ([], kept)
    with opened(still_encoder, out, overwrite=True):
        assert not (out / "adapting").exists()


def test_any_other_error_leaves_nothing_but_files_of_others(still_encoder, tmp_path):
    out = tmp_path / "out"
    failed(still_encoder, out, KeyError())
    assert not out.exists()
    failed(still_encoder, out, KeyboardInterrupt())
    (out / "adapting" / "thesis.txt").write_text("mine")
    failed(still_encoder, out, ValueError(), overwrite=True)
    assert [path.name for path in out.rglob("*")] == ["adapting", "thesis.txt"]
    with pytest.raises(ValueError, match="'adapting', which no earlier run wrote"):
        opened(still_encoder, out, overwrite=True)


@pytest.mark.slow
def test_an_earlier_result_is_replaced_and_model_and_random_state_stay(encoder, tmp_path):
    out = tmp_path / "out"
    encoder.train()
    encoder[0].eval()
    before, modes = snapshot(encoder), [module.training for module in encoder.modules()]
    states = torch.get_rng_state(), random.getstate()
    found = adapt(encoder, TEXTS, out, dev=DEV, max_general_loss=200.0, show_progress_bar=False)
    assert found.chosen is not None
    assert (torch.equal(states[0], torch.get_rng_state()), random.getstate()) == (True, states[1])
    assert [module.training for module in encoder.modules()] == modes
    assert not differing(before, snapshot(encoder))
    (out / "notes.txt").write_text("mine")
    for options, argument in (({}, "output"), ({"resume": True}, "resume")):
        with pytest.raises(ValueError, match=f"^{argument} "):
            opened(encoder, out, **options)
    left = adapt(encoder, TEXTS[:10], out, overwrite=True, show_progress_bar=False)
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
def test_what_no_job_takes(still_encoder, tmp_path, job):
    settings = {"minutes": 0, "limit": 499, "batch_size": 0, "seed": 0.5, "resume": True, "overwrite": "yes", "dev": 3}
    for name, value in settings.items():
        with pytest.raises(ValueError, match=rf"^{name} .*\.$"):
            job(still_encoder, TEXTS, tmp_path / "out", **{name: value})
    still_encoder.truncate_dim = 5
    with pytest.raises(ValueError, match=r"^model\.truncate_dim"):
        job(still_encoder, TEXTS, tmp_path / "out")
    still_encoder.truncate_dim = None
    body: Any = still_encoder[0].auto_model
    body.cut_in_memory = body._hf_peft_config_loaded = True
    with pytest.raises(ValueError, match=r"^model must be a whole encoder"):
        job(still_encoder, TEXTS, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_embeddings_that_are_not_finite(still_encoder, tmp_path):
    with torch.no_grad():
        next(still_encoder[0].parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="is not finite"):
        adapt(still_encoder, TEXTS, tmp_path / "out", show_progress_bar=False)
    assert not (tmp_path / "out").exists()
