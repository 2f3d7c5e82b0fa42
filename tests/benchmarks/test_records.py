"""The result files of the repository are complete and belong together."""

import json
import statistics
import subprocess
from typing import Any

import pytest

from benchmarks import provenance, records

OF_ENCODERS = ("beyond", "trained_spaces")  # they score encoders that other studies trained
FILES = sorted(path for path in records.RESULTS.glob("*/*-[0-9].json") if path.parent.name not in OF_ENCODERS)


def faults(name: str, record: dict[str, Any]) -> list[str]:
    """What is wrong with the record of a cell, by its file's name without suffix."""
    wrong = {
        "is of another cell": f"{record['method']}-{record['seed']}" != name,
        "is of uncommitted code": "dirty" in record["revision"],
    }
    if record.get("settings", {}).get("test", True):
        scores = record["scores"]
        wrong["lacks a set"] = len(scores) != 7
        wrong["has another average"] = record["average"] != pytest.approx(statistics.mean(scores.values()))
    if record["steps"]:
        curve = dict(record["curve"])
        best = max(value for step, value in curve.items() if step or not record["best_step"])
        dev = pytest.approx(record["dev"], abs=1e-3)
        wrong["has another dev score at its best step"] = curve.get(record["best_step"]) != dev
        wrong["has a better step"] = best != dev
    return [f"{name} {fault}" for fault, is_there in wrong.items() if is_there]


def test_records_are_whole():
    found: list[str] = []
    for file in FILES:
        record = json.loads(file.read_text(encoding="utf8"))
        found += [f"{file.parent.name}/{fault}" for fault in faults(file.stem, record)]
    assert len(FILES) > 200
    assert found == []


def test_records_of_trained_encoders_are_of_committed_code():
    files = [path for folder in OF_ENCODERS for path in (records.RESULTS / folder).glob("*.json")]
    assert {path.parent.name for path in files} == set(OF_ENCODERS)
    assert [path.name for path in files if "dirty" in json.loads(path.read_text(encoding="utf8"))["revision"]] == []


def test_a_record_is_read_as_it_was_written(results):
    records.write_json(results / "study" / "b-0.json", {"seed": 0})
    records.write_json(results / "study" / "a-1.json", {"seed": 1})
    assert records.records("study") == [{"seed": 1}, {"seed": 0}]
    assert records.records("study", "b-*.json") == [{"seed": 0}]
    assert records.records("study", root=results / "elsewhere") == []
    assert sorted(file.name for file in (results / "study").iterdir()) == ["a-1.json", "b-0.json"]


def test_a_record_is_no_change_of_the_code(tmp_path, monkeypatch):
    root = tmp_path / "benchmarks"
    monkeypatch.setattr(provenance, "ROOT", root)
    files = [root / "results" / "a.json", root / "code.py", tmp_path / "package.py"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("old")
    commit = "git init -q && git add . && git -c user.name=a -c user.email=a commit -qm a"
    subprocess.run(commit, shell=True, cwd=tmp_path, check=True)
    for file, changed in zip(files, (False, True, True), strict=True):
        file.write_text("new")
        assert ("dirty" in provenance.provenance()["revision"]) == changed
        file.write_text("old")
