"""Memory settings of the C library: what each process is given, and the rows of the record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import allocator
from benchmarks.records import ROOT, write_json


def test_a_process_has_one_setting_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    monkeypatch.setenv(allocator.VARIABLE, "glibc.malloc.check=1")
    plain, tuned = map(allocator.environment, allocator.SETTINGS)
    assert allocator.VARIABLE not in plain
    assert tuned.pop(allocator.VARIABLE) == allocator.TUNED
    assert plain == tuned
    assert "MALLOC_TRIM_THRESHOLD_" not in plain
    assert "PATH" in plain


def test_the_documented_setting_is_the_measured_one() -> None:
    page = (ROOT.parent / "docs" / "training.md").read_text(encoding="utf8")
    assert f"export {allocator.VARIABLE}={allocator.TUNED}\n" in page


def test_the_command_pairs_the_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, list[str]]] = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> None:
        tuned = allocator.VARIABLE in env
        seen.append((tuned, command))
        number = (len(seen) + 1) // 2
        times = {"simcse": (5.0 if tuned else 10.0) * number, "encode": 3.0}
        cases = {name: {"median_ms": value} for name, value in times.items()}
        write_json(Path(command[command.index("--output") + 1]), {"cases": cases})

    monkeypatch.setattr(allocator, "subprocess", SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL))
    arguments = ["--cases", "simcse", "encode", "--rounds", "3", "--steps", "2", "--output", str(tmp_path / "one.json")]
    monkeypatch.setattr(sys, "argv", ["allocator", *arguments])
    allocator.main()
    assert sorted(tuned for tuned, _ in seen) == [False] * 3 + [True] * 3
    assert all(command[command.index("--rounds") + 1] == "2" for _, command in seen)
    record = json.loads((tmp_path / "one.json").read_text())
    assert record["cases"]["simcse"] == {"default_ms": 20.0, "tuned_ms": 10.0, "ratio": 0.5, "ratios": [0.5] * 3}
    assert record["cases"]["encode"]["ratio"] == 1.0
    assert record["setting"] == f"{allocator.VARIABLE}={allocator.TUNED}"
