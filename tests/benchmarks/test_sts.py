"""The order in which the cells of a study run, and what is left when a run ends early."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from benchmarks import sts
from benchmarks.records import write_json

STUDY: dict[str, Any] = {
    "name": "study",
    "encoder": {"layers": 3},
    "training": {"seeds": [0, 1], "test": False},
    "methods": {
        "after": {"start": "first", "complementary": "guide"},
        "over": {"base": {"complementary": "guide"}},
        "first": {},
        "guide": {"complementary": "minilm"},
    },
}


@pytest.fixture
def ran(monkeypatch):
    """The cells that were run, in order; a cell does no more than leave weights."""
    cells: list[str] = []

    def run_cell(study: dict[str, Any], name: str, seed: int, data: Path, work: Path) -> dict[str, Any]:
        cells.append(f"{name}-{seed}")
        weights = work / cells[-1]
        weights.mkdir()
        (weights / "modules.json").touch()
        return {"dev": 1.0, "best_step": 1, "average": None, "seconds": 1.0, "cell": cells[-1]}

    monkeypatch.setattr(sts, "run_cell", run_cell)
    return cells


def run(folder: Path, methods: list[str], seeds: list[int] | None = None) -> None:
    sts.run_study(STUDY, methods, seeds, folder, folder / "work", folder / "results")


def test_the_weights_that_a_cell_needs_are_made_first(tmp_path, ran):
    run(tmp_path, ["after", "over"])
    assert ran == ["first-0", "guide-0", "after-0", "over-0", "first-1", "guide-1", "after-1", "over-1"]
    for cell in ran:
        assert json.loads((tmp_path / "results" / "study" / f"{cell}.json").read_text())["cell"] == cell
    run(tmp_path, list(STUDY["methods"]))
    assert len(ran) == 8, "a cell with a record was run again"


def test_runs_share_a_grid(tmp_path, ran, capsys):
    (tmp_path / "work").mkdir()
    with FileLock(tmp_path / "work" / "first-0.lock"):
        run(tmp_path, ["first", "guide"], [0])
    assert ran == ["guide-0"]
    assert "first, seed 0: skipped, another process is running it." in capsys.readouterr().out
    run(tmp_path, ["first", "guide"], [0])
    assert ran == ["guide-0", "first-0"]


def test_records_of_another_own_encoder_are_not_joined(tmp_path, ran, monkeypatch):
    encoder = tmp_path / "runs" / "mine" / "encoder"
    encoder.mkdir(parents=True)
    (encoder / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setitem(STUDY, "encoder", {"path": str(encoder), "pooling": "mean"})
    pretraining = tmp_path / "results" / "pretraining" / "mine.json"
    write_json(pretraining, {"sha256": hashlib.sha256(b"weights").hexdigest()})
    run(tmp_path, ["first"], [0])
    write_json(pretraining, {"sha256": hashlib.sha256(b"of another processor").hexdigest()})
    with pytest.raises(ValueError, match=r"sha256.*--results"):
        run(tmp_path, ["first"], [1])
    (encoder / "model.safetensors").rename(encoder / "moved")
    with pytest.raises(FileNotFoundError, match="pretrain_encoder"):
        run(tmp_path, ["first"], [1])
    pretraining.unlink()  # as in a folder of one's own
    run(tmp_path, ["first"], [1])
    assert ran == ["first-0", "first-1"]


def test_records_go_where_they_are_told(tmp_path, ran, monkeypatch, capsys):
    config = tmp_path / "tiny.toml"
    config.write_text("[encoder]\nlayers = 3\n[training]\nseeds = [3]\ntest = false\n[methods.only]\n", encoding="utf8")
    shown: list[tuple[str, Path]] = []
    monkeypatch.setattr(sts, "study_table", lambda study, root: shown.append((study, root)) or "its table")
    options = ["--data", str(tmp_path), "--work", str(tmp_path / "work"), "--results", str(tmp_path / "mine")]
    monkeypatch.setattr(sys, "argv", ["sts", str(config), *options])
    sts.main()
    assert ran == ["only-3"]
    assert (tmp_path / "mine" / "tiny" / "only-3.json").is_file()
    assert shown == [("tiny", tmp_path / "mine")]
    assert "its table" in capsys.readouterr().out
