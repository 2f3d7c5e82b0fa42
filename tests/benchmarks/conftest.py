"""What the tests of the benchmarks share: their marker, and a folder of records made by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
if sys.version_info < (3, 11):
    collect_ignore_glob = ["*"]  # the benchmarks read their configurations with tomllib


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("benchmarks")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of benchmarks/results."""
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr("benchmarks.records.RESULTS", folder)
    return folder
