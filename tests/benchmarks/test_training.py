"""The order in which the cells of a study run, and what is left when a run ends early."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from benchmarks import training
from benchmarks.records import append, records
from benchmarks.studies import Options, named_study
from st_extras.evaluation import STSDataset
from st_extras.training.checkpoints import RECORD
from tests.helpers import write

STUDY: dict[str, Any] = {
    "name": "study",
    "encoder": {"layers": 3},
    "training": {"seeds": [0, 1], "test": False},
    "methods": {
        "after": {"complementary": "guide"},
        "over": {"base": {"complementary": "guide"}},
        "first": {},
        "guide": {},
    },
}


@pytest.fixture
def options(tmp_path):
    return Options(tmp_path, tmp_path / "work", tmp_path / "results")


@pytest.fixture
def ran(monkeypatch):
    """The cells that were run, in order, with their data folder; a cell does no more than leave weights."""
    cells: list[str] = []

    def run_cell(study: dict[str, Any], name: str, seed: int, data: Path, work: Path) -> dict[str, Any]:
        assert data == work.parents[1]
        cells.append(f"{name}-{seed}")
        weights = work / cells[-1]
        weights.mkdir()
        (weights / "modules.json").touch()
        return {"dev": 1.0, "best_step": 1, "average": None, "seconds": 1.0, "cell": cells[-1]}

    monkeypatch.setattr(training, "run_cell", run_cell)
    return cells


def test_the_weights_that_a_cell_needs_are_made_first(options, ran):
    training.run(STUDY, replace(options, methods=["after", "over"]))
    assert ran == ["guide-0", "after-0", "over-0", "guide-1", "after-1", "over-1"]
    found = {record["run"]: record["cell"] for record in records("study", root=options.root)}
    assert found == {cell: cell for cell in ran}
    training.run(STUDY, options)
    assert sorted(ran[6:]) == ["first-0", "first-1"], "a cell with a record was run again"


def test_processes_share_a_study(options, ran, capsys):
    (options.work / "study").mkdir(parents=True)
    some = replace(options, methods=["first", "guide"], seeds=[0])
    with FileLock(options.work / "study" / "first-0.lock"):
        training.run(STUDY, some)
    assert ran == ["guide-0"]
    assert "first, seed 0: skipped, another process is running it." in capsys.readouterr().out
    training.run(STUDY, some)
    assert ran == ["guide-0", "first-0"]


def test_records_of_another_own_encoder_are_not_joined(options, ran, tmp_path):
    encoder = tmp_path / "runs" / "mine" / "encoder"
    encoder.mkdir(parents=True)
    (encoder / "model.safetensors").write_bytes(b"weights")
    study = STUDY | {"encoder": {"path": str(encoder), "pooling": "mean"}}
    first = replace(options, methods=["first"], seeds=[0])
    append("pretraining", "mine", {"sha256": hashlib.sha256(b"weights").hexdigest()}, root=options.root)
    training.run(study, first)
    (encoder / "model.safetensors").write_bytes(b"of another processor")
    with pytest.raises(ValueError, match=r"sha256.*--results"):
        training.run(study, replace(first, seeds=[1]))
    (encoder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="run pretraining"):
        training.run(study, replace(first, seeds=[1]))
    training.run(study, replace(first, seeds=[1], root=tmp_path / "mine"))  # a folder without that record
    assert ran == ["first-0", "first-1"]


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_cell_that_was_interrupted_continues(tmp_path, monkeypatch, interrupted):
    asked: list[bool] = []
    monkeypatch.setattr(training, "train_encoder", lambda *_, **given: asked.append(given["resume"]))
    monkeypatch.setattr(training, "training_rows", lambda *_: [])
    monkeypatch.setattr(training, "training_figures", lambda _: {})
    if interrupted:
        write(tmp_path / "simcse-0.checkpoints" / RECORD, "{}")
    study = named_study("papers")
    method = study["training"] | study["methods"]["simcse"] | {"bf16": False}
    dev = STSDataset("dev", ["a", "b"], ["c", "d"], [1.0, 2.0], ["x", "x"])
    training.trained(study, method, None, 0, [], dev, tmp_path, tmp_path / "simcse-0")
    assert asked == [interrupted]
