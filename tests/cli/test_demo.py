"""``st-extras demo``: sample files; and ``demo`` in the place of an encoder."""

import hashlib
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from st_extras import encoder_names as packaged


def test_missing_package_is_one_line(run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, out, err = run("adapt", "demo", "TEXT", "-o", "out")
    assert (code, out, err.count("\n"), "st-extras[demo]" in err) == (2, "", 1, True)
    assert not Path("out").exists()


def test_other_weights_are_refused(monkeypatch, tmp_path):
    folder = tmp_path / "package" / "model"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    spec = SimpleNamespace(origin=str(folder.parent / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    digest = hashlib.sha256(b"weights").hexdigest()
    with pytest.raises((ImportError, ValueError), match=digest):
        packaged.packaged_minilm()
    monkeypatch.setattr(packaged, "MINILM_SHA256", digest)
    assert packaged.packaged_minilm() == str(folder)


def test_files_to_try_the_commands_with(run):
    code, out, err = run("demo")
    assert (code, err, "st-extras adapt demo samples/sentences.txt" in out) == (0, "", True)
    assert {path.name for path in Path("samples").iterdir()} == {"labels.tsv", "pairs.tsv", "search", "sentences.txt"}
    assert run("demo", "samples")[0] == 2
    assert "adapt demo 'my samples/sentences.txt' -o" in run("demo", "my samples")[1]
    files = json.loads(run("demo", "others", "--json")[1])["files"]
    assert (files[0], {*map(Path, files)}) == (str(Path("others/sentences.txt")), {*Path("others").iterdir()})
