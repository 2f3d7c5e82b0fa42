"""One line a run: what is appended is read, nothing is run twice, and the records of the repository are whole."""

import json
import statistics
import subprocess
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from benchmarks import records

OF_ENCODERS = "trained_spaces"  # scores encoders that other studies trained


def test_what_is_appended_is_read_in_the_order_of_the_runs(results):
    for seed in (2, 10, 0):
        records.append("study", f"simcse-{seed}", {"seed": seed, "scores": {"sts12": seed / 3}, "text": "naïve\n"})
    lines = (results / "study.jsonl").read_text(encoding="utf8").splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [2, 10, 0]
    found = records.records("study")
    assert [one["run"] for one in found] == ["simcse-0", "simcse-10", "simcse-2"]
    assert found[1]["scores"]["sts12"] == 10 / 3, "a number must come back to the bit"
    assert found[0]["text"] == "naïve\n"
    assert [one["seed"] for one in records.records("study", "*-1?")] == [10]
    assert records.records("none") == []


def test_a_run_is_recorded_once(results):
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(len(made))
        return {"method": "simcse"}

    first = records.run_once("study", "simcse-0", make)
    assert first is not None
    assert first["versions"]["torch"], "a record has its provenance"
    assert records.run_once("study", "simcse-0", make) is None
    assert made == [0]
    with pytest.raises(ValueError, match=r"^run must .*'simcse-0'"):
        records.append("study", "simcse-0", {})
    assert [one["study"] for one in records.records("study")] == ["study"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.append("study", "simcse-1", {"average": float("nan")})
    assert [one["run"] for one in records.records("study")] == ["simcse-0"], "nothing of it is written"


@pytest.mark.parametrize(("end", "kept"), [('{"run":"b","sco', ["a"]), ('{"run":"b"}', ["a", "b"]), ("", ["a"])])
def test_a_line_that_a_killed_process_left_unfinished_is_lost_alone(results, end, kept):
    file = results / "study.jsonl"
    file.write_text(f'{{"run":"a"}}\n{end}', encoding="utf8")
    assert [one["run"] for one in records.records("study")] == kept
    records.append("study", "c", {"seed": 1})
    assert [one["run"] for one in records.records("study")] == [*kept, "c"]
    assert file.read_text(encoding="utf8").endswith('{"run":"c","seed":1}\n')


@pytest.mark.parametrize("line", ["{", '{"run":"a"}'])
def test_a_broken_file_is_refused_with_the_line(results, line):
    (results / "study.jsonl").write_text(f'{{"run":"a"}}\n{line}\n{{"run":"z"}}\n', encoding="utf8")
    with pytest.raises(ValueError, match=r"^Line 2 of .*study\.jsonl must"):
        records.records("study")


def _append_runs(folder: Path) -> int:
    """Append runs that another process appends too; return how many were not there yet."""
    mine = 0
    for number in range(20):
        with suppress(ValueError):
            records.append("study", f"run-{number}", {"text": "x" * 50_000}, root=folder)
            mine += 1
    return mine


def test_processes_append_whole_lines_and_no_run_twice(tmp_path):
    with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
        appended = list(pool.map(_append_runs, [tmp_path] * 3))
    assert len(records.records("study", root=tmp_path)) == sum(appended) == 20


def test_records_of_another_folder(results, tmp_path):
    """All that reads and writes takes it; it is made with the first record."""
    root = tmp_path / "a" / "b"
    assert records.run_once("study", "simcse-0", lambda: {"average": 1.0}, root=root) is not None
    records.append("study", "simcse-1", {"average": 2.0}, root=root)
    assert records.run_once("study", "simcse-1", dict, root=root) is None
    assert (records.studies(root), records.studies()) == (["study"], [])
    assert [records.has_run("study", "simcse-1", root=one) for one in (root, None)] == [True, False]
    assert list(records.long_table(["study"], "average", root=root)["value"]) == [1.0, 2.0]


def test_names_of_encoders():
    for settings, name in (
        ({}, "minilm"),
        ({"layers": 3}, "layers3"),
        ({"path": "runs/own_encoder_better/encoder"}, "better"),
        ({"path": "a/encoders/mine", "layers": 2}, "mine, 2 layers"),
    ):
        assert records.encoder_name(settings) == name


def test_the_long_table_has_a_row_for_each_value(results):
    own = {"path": "runs/own_encoder/encoder"}
    records.append("b", "simcse-4", {"encoder": own, "method": "simcse", "seed": 4, "scores": {"x": 1, "y": 0}})
    records.append("b", "start", {"encoder": "mine", "row": "start", "set": "s", "seed": 0, "scores": {"x": 3}})
    records.append("a", "one", {"way": "w", "note": "n", "curve": [[0, 5], [10, 6]], "scores": {"x+y": None}, "k.z": 7})
    records.append("c", "one", {"after": {"RepAL, pooled": {"average": 8}}})

    trained = {"study": "b", "run": "simcse-4", "encoder": "own", "method": "simcse", "seed": 4}
    start = {
        "study": "b",
        "run": "start",
        "encoder": "mine",
        "method": "start",
        "data": "s",
        "row": "start",
        "set": "s",
    }
    noted = {"study": "a", "run": "one", "method": "w", "way": "w", "note": "n"}

    def doubled(record: dict[str, Any]) -> int | None:
        return 2 * record["scores"]["x"] if "x" in record["scores"] else None

    metrics = ("scores/x", "scores/{set}", "curve/{place}/1", "k.z", "kaz", "scores/x/deeper", doubled)
    table = records.long_table(["b", "a"], *metrics)
    assert list(table.columns[:8]) == ["study", "run", "encoder", "method", "data", "seed", "metric", "value"]
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    assert [{name: value for name, value in row.items() if value is not None} for row in rows] == [
        trained | {"metric": "scores/x", "value": 1},
        trained | {"metric": "scores/{set}", "value": 1, "set": "x"},
        trained | {"metric": "scores/{set}", "value": 0, "set": "y"},
        trained | {"metric": "doubled", "value": 2},
        start | {"metric": "scores/x", "value": 3},
        start | {"metric": "scores/{set}", "value": 3, "set": "x"},
        start | {"metric": "doubled", "value": 6},
        noted | {"metric": "curve/{place}/1", "value": 5, "place": "0"},
        noted | {"metric": "curve/{place}/1", "value": 6, "place": "1"},
        noted | {"metric": "k.z", "value": 7},
    ]
    assert list(records.long_table(["c"], "after/{step}/average")["step"]) == ["RepAL, pooled"]
    empty = records.long_table(["b"], "none")
    assert list(empty.columns) == list(table.columns[:8])
    assert len(empty) == 0


def faults(record: dict[str, Any]) -> list[str]:
    """What is wrong with the record of a trained or base model."""
    wrong = {"is of uncommitted code": "dirty" in record["revision"]}
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
    return [f"{record['study']}/{record['run']} {fault}" for fault, is_there in wrong.items() if is_there]


def test_the_records_of_the_repository_are_whole():
    found = {study: records.records(study) for study in records.studies()}
    cells = [one for study in found.values() for one in study if {"method", "steps", "best_step"} <= one.keys()]
    assert [one["run"] for one in cells] == [f"{one['method']}-{one['seed']}" for one in cells]
    assert [fault for one in cells for fault in faults(one)] == []
    assert all(found.values()), "a study without records needs no file"
    assert [one["run"] for one in found[OF_ENCODERS] if "dirty" in one["revision"]] == []


def test_a_record_is_no_change_of_the_code(tmp_path, monkeypatch):
    root = tmp_path / "benchmarks"
    monkeypatch.setattr(records, "ROOT", root)
    files = [root / "results" / "a.jsonl", root / "code.py", tmp_path / "package.py"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("old")
    commit = "git init -q && git add . && git -c user.name=a -c user.email=a commit -qm a"
    subprocess.run(commit, shell=True, cwd=tmp_path, check=True)
    for file, changed in zip(files, (False, True, True), strict=True):
        file.write_text("new")
        assert ("dirty" in records.provenance()["revision"]) == changed
        file.write_text("old")
