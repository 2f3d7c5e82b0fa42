"""``st-extras doctor``."""

import json
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import nltk.data
import pytest
import torch

import st_extras
from tests.cli.conftest import Run

REQUIRED = [
    "torch>=2.6",
    "sentence-transformers[train]>=6.2,<7",
    'tomli>=2; python_version < "3.0"',
    'wordfreq>=3.1; extra == "wordfreq"',
    'peft>=0.18; extra == "lora"',
    'ruff>=0.12; extra == "dev"',
]


@pytest.fixture
def packages(monkeypatch):
    """The versions that seem to be installed, to be changed by the test; st-extras requires REQUIRED."""
    versions = {"torch": "2.9.0+cpu", "sentence-transformers": "6.2.0", "wordfreq": "3.1.1", "st-extras": "0.1.0"}
    extras = SimpleNamespace(get_all=lambda *_: ["wordfreq", "lora", "dev"])

    def distributions(name: str) -> Any:
        found = SimpleNamespace(version=versions.get(name), requires=REQUIRED, metadata=extras)
        return [found] if name in versions else []

    monkeypatch.setattr(metadata, "distributions", distributions)
    return versions


def report(run: Run, code: int = 0) -> dict[str, str]:
    found, out, err = run("doctor", "--json")
    assert (found, err) == (code, "")
    return dict(json.loads(out))


def test_a_line_for_everything(run, packages, monkeypatch, tmp_path):
    (tmp_path / "corpora" / "stopwords").mkdir(parents=True)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    found = report(run)
    assert found["st_extras"].startswith(f"{st_extras.__version__}, in ")
    assert found["Python"].startswith(f"{sys.version.split()[0]}, ")
    assert (found["torch"], found["wordfreq"]) == ("2.9.0+cpu", "3.1.1")
    assert found["peft"] == 'missing, pip install "st-extras[lora]"'
    assert {"tomli", "ruff"}.isdisjoint(found)
    assert found["device"].endswith(f", {torch.get_num_threads()} threads")
    assert found["data stopwords"] == "installed"
    assert found["data wordnet"].startswith("missing")
    code, out, _ = run("doctor")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, [name.split()[0] for name in found])


def test_what_every_command_needs(run, packages):
    packages["torch"] = "2.5.1"
    del packages["sentence-transformers"]
    found = report(run, code=1)
    assert found["torch"] == 'BROKEN: 2.5.1, pip install "torch>=2.6"'
    assert found["sentence-transformers"] == 'BROKEN: missing, pip install "sentence-transformers<7,>=6.2"'
    assert found["all in all"] == "broken: torch, sentence-transformers"


def test_a_device_that_fails(run, monkeypatch):
    def ones(*_: int, **__: Any) -> None:
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(torch, "ones", ones)
    assert report(run, code=1)["libraries"] == "BROKEN: RuntimeError: no kernel image is available."
