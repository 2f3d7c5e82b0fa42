"""The order in which the cells of a study run, and what is left when a run ends early."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from scipy.stats import spearmanr

from benchmarks import building, training
from benchmarks.records import append, records
from benchmarks.studies import Mistake, Options, named_study
from st_extras.evaluation import STSDataset
from st_extras.training import TrainingRun
from st_extras.training.checkpoints import RECORD
from tests.fixtures import SENTENCES
from tests.helpers import write

STUDY: dict[str, Any] = {
    "name": "study",
    "encoder": {"layers": 3},
    "training": {"seeds": [0, 1], "test": False},
    "methods": {
        "after": {"complementary": "guide"},
        "over": {"base": {"complementary": "guide"}},
        "first": {"loss": "SimCSELoss", "options": {"mini_batch_size": 8}},
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
    training.run(STUDY | {"name": "another"}, replace(options, methods=["over"], seeds=[1]))
    assert ran[6:] == ["guide-1", "over-1"], "of a base loss alone"
    del ran[6:]
    training.run(STUDY, options)
    assert sorted(ran[6:]) == ["first-0", "first-1"], "a cell with a record was run again"


def test_weights_that_were_removed_are_made_again_for_a_cell_that_needs_them(options, ran):
    training.run(STUDY, replace(options, methods=["guide"]))
    for seed in (0, 1):
        shutil.rmtree(options.work / "study" / f"guide-{seed}")
    training.run(STUDY, replace(options, methods=["after"]))
    assert ran == ["guide-0", "guide-1", "guide-0", "after-0", "guide-1", "after-1"]
    assert [one["run"] for one in records("study", root=options.root)] == ["after-0", "after-1", "guide-0", "guide-1"]


def test_the_cells_of_a_study_are_those_of_each_methods_own_seeds():
    study = {"training": {"seeds": [1, 0]}, "methods": {"a": {}, "b": {"seeds": [7, 0]}}}
    options = Options(Path(), Path())
    every = [("a", 0), ("b", 0), ("a", 1), ("b", 7)]
    assert training.wanted_cells(study, options) == every
    assert training.wanted_cells(study, replace(options, seeds=[7, 0, 7])) == [("a", 0), ("b", 0), ("b", 7)]
    assert training.wanted_cells(study, replace(options, methods=["b"])) == [("b", 0), ("b", 7)]
    with pytest.raises(Mistake, match=r"^--seeds must be of 0, 1, 7, got 2, 3\.$"):
        training.wanted_cells(study, replace(options, seeds=[2, 1, 3]))


def test_the_base_model_is_scored_first_unless_the_study_tests_nothing(options, ran, monkeypatch):
    def start_record(study: dict[str, Any], data: Path) -> dict[str, Any]:
        ran.append(f"start of {study['name']}, {data == options.data}")
        return {"method": "start"}

    monkeypatch.setattr(training, "start_record", start_record)
    for _ in range(2):
        training.run(STUDY | {"training": {"seeds": [0]}}, replace(options, methods=["first"]))
    assert ran == ["start of study, True", "first-0"]
    assert [one["run"] for one in records("study", root=options.root)] == ["first-0", "start-0"]


def test_the_time_left_is_by_what_each_method_is_expected_to_take(options, ran, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(training.time, "perf_counter", lambda: now[0])
    run_cell = training.run_cell

    def timed(study: dict[str, Any], name: str, *given: Any) -> Any:
        now[0] += {"first": 60.0, "guide": 600.0}[name]
        return run_cell(study, name, *given)

    monkeypatch.setattr(training, "run_cell", timed)
    part = replace(options, methods=["first", "guide"], seeds=[0])
    training.run_cells(STUDY, part, {"first": 1.0, "guide": 10.0})
    training.run_cells(STUDY, replace(part, seeds=[1]))
    lines = [line for line in capsys.readouterr().out.splitlines() if " of 2: " in line]
    of_first, of_guide = [[f"1 of 2: first, seed {seed}", f"2 of 2: guide, seed {seed}, "] for seed in (0, 1)]
    assert lines == [of_first[0], f"{of_first[1]}10 min left", of_guide[0], f"{of_guide[1]}1 min left"]


def test_a_cell_is_free_for_another_process_as_soon_as_it_ended(tmp_path):
    for _ in range(2):
        with training.only_process(tmp_path / "a.lock") as is_free:
            assert is_free
            with (
                training.only_process(tmp_path / "a.lock") as again,
                training.only_process(tmp_path / "b.lock") as other,
            ):
                assert (again, other) == (False, True)


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


def test_a_cell_that_fails_is_recorded_and_the_others_run(options, ran, monkeypatch, capsys):
    run_cell = training.run_cell

    def failing(study: dict[str, Any], name: str, seed: int, data: Path, work: Path) -> Any:
        if name == "first":
            raise [ZeroDivisionError("of\nnothing"), MemoryError()][seed]
        return run_cell(study, name, seed, data, work)

    monkeypatch.setattr(training, "run_cell", failing)
    out_of_memory = "out of memory: --mini-batch-size 4 needs less, for the same gradients"
    reasons = ["first, seed 0: ZeroDivisionError: of nothing", f"first, seed 1: {out_of_memory}"]
    for attempt in (1, 2):
        with pytest.raises(SystemExit) as ended:
            training.run(STUDY, replace(options, methods=["first", "guide"]))
        assert str(ended.value).splitlines()[1:] == reasons
        assert str(ended.value).startswith("Failed, ")
        failed = records("study", "first-*-failed-*", root=options.root)
        runs = [f"first-{seed}-failed-{number}" for seed in (0, 1) for number in range(1, attempt + 1)]
        assert [one["run"] for one in failed] == runs
    about = {"study": "study", "encoder": STUDY["encoder"], "method": "first", "seed": 1}
    assert failed[-1].items() >= {**about, "failed": out_of_memory}.items()
    assert failed[0].keys() >= {"versions", "revision", "machine"}
    assert ran == ["guide-0", "guide-1"], "the second time only what failed"
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines if " of " in line] == [
        "1 of 4",
        "2 of 4",
        "3 of 4",
        "4 of 4",
        "1 of 2",
        "2 of 2",
    ]
    assert [", 0 min left" in line for line in lines if " of " in line] == [False, True, True, True, False, True]
    assert "guide, seed 1: dev 1.00 at step 1, average None, 1 s" in lines


def test_processes_that_train_together_do_not_skip_a_cell(options, ran, monkeypatch):
    (options.work / "study").mkdir(parents=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with (
        FileLock(options.work / "study" / "first-0.lock"),
        pytest.raises(SystemExit, match=r"^first-0 must not run in another process"),
    ):
        training.run(STUDY, replace(options, methods=["first"], seeds=[0]))
    monkeypatch.setenv("RANK", "1")
    training.run(STUDY, replace(options, methods=["guide"], seeds=[0]))
    assert ran == ["guide-0"]


def test_the_settings_of_a_method_reach_its_training(tmp_path, monkeypatch):
    given: dict[str, Any] = {}
    built: list[Any] = []

    def train_encoder(model: Any, loss: Any, rows: Any, output: Path, **options: Any) -> None:
        given.update(options, rows=rows, output=output)
        loss("new")

    monkeypatch.setattr(training, "train_encoder", train_encoder)
    monkeypatch.setattr(training, "make_loss", lambda *arguments: built.append(arguments))
    monkeypatch.setattr(training, "training_rows", lambda model, method, sentences, seed: [*sentences, seed])
    monkeypatch.setattr(training, "training_figures", lambda _: {})
    method = {"loss": "SimCSELoss", "batch_size": 8, "learning_rate": 0.5, "eval_steps": 3, "bf16": True}
    study = {"methods": {"a": {}, "b": {}}}
    dev = STSDataset("mine", ["a", "b"], ["c", "d"], [1.0, 2.0], ["x", "x"])
    for more, expected in (
        ({"steps": 7}, {"max_steps": 7, "epochs": 1.0}),
        ({"epochs": 2.5, "arguments": {"patience": 4}}, {"max_steps": -1, "epochs": 2.5, "patience": 4}),
        ({"no_duplicates": False}, {"no_duplicates": False}),
        ({"masking": {}}, {"no_duplicates": False}),
    ):
        training.trained(study, method | more, None, 9, ["text"], dev, tmp_path, tmp_path / "a-9")
        evaluator = given["evaluator"]
        assert (evaluator.bf16, evaluator.primary_metric) == (True, "mine_spearman_cosine")
        wanted = {
            "rows": ["text", 9], "output": tmp_path / "a-9", "batch_size": 8, "learning_rate": 0.5, "eval_steps": 3,
            "bf16": True, "seed": 9, "no_duplicates": True, "resume": False, "overwrite": True,
            "show_progress_bar": False,
        }  # fmt: skip
        assert {name: given[name] for name in wanted | expected} == wanted | expected
    weights = {name: tmp_path / f"{name}-9" for name in "ab"}
    assert built[0] == ("new", method | {"steps": 7}, ["text"], weights, tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    training.trained(study, method, None, 9, ["text"], dev, tmp_path, tmp_path / "a-9")
    assert (given["batch_size"], built[-1][1]["batch_size"]) == (4, 4)


OUT_OF_MEMORY = "out of memory: "
WITHOUT_BATCHES = f"{OUT_OF_MEMORY}this loss encodes the whole batch at once, so take a device with more memory"


@pytest.mark.parametrize(
    ("error", "method", "reason"),
    [
        (KeyError("a\n b"), {"loss": "SimCSELoss"}, "KeyError: 'a\\n b'"),
        (ValueError("two\n lines"), {}, "ValueError: two lines"),
        (MemoryError(), {"loss": "DCLRLoss"}, 32),
        (torch.OutOfMemoryError("CUDA"), {"loss": "AdCSELoss", "options": {"mini_batch_size": 9}}, 4),
        (torch.OutOfMemoryError("CUDA"), {"loss": "AdCSELoss", "options": {"mini_batch_size": 1}}, 1),
        (RuntimeError("CPU: not enough memory: you"), {"loss": "SimCSELoss", "options": {"temperature": 0.1}}, 32),
        (RuntimeError("CPU: not enough memory: you"), {"loss": "SLTFAILoss"}, WITHOUT_BATCHES),
        (MemoryError(), {"baseline": "words"}, WITHOUT_BATCHES),
    ],
)
def test_the_reason_of_a_failure_says_what_helps_if_memory_ran_out(error, method, reason):
    smaller = f"{OUT_OF_MEMORY}--mini-batch-size {reason} needs less, for the same gradients"
    assert training.reason_of(error, method) == (smaller if isinstance(reason, int) else reason)


@pytest.mark.parametrize(("seconds", "written"), [(29, "0 min"), (5399, "90 min"), (5400, "1.5 h"), (36_000, "10.0 h")])
def test_a_time_is_written_in_minutes_or_hours(seconds, written):
    assert training.hours(seconds) == written


def test_a_record_says_with_what_it_was_made(tmp_path, monkeypatch):
    """Of each method its own encoder and text; of several processes, the first one's."""
    monkeypatch.setattr(training, "scored_sets", lambda study, data: ("dev", [data.name]))
    monkeypatch.setattr(training, "corpus_sentences", lambda method, data: [method["corpus"], data.name])
    monkeypatch.setattr(training, "starting_encoder", lambda encoder: encoder)
    monkeypatch.setattr(training, "trained", lambda study, *given: {"trained": given, "steps": 9})
    monkeypatch.setattr(training, "scores_of", lambda *given: {"scored": given})
    monkeypatch.setattr(training, "post_processed", lambda *given: {"refined": given})
    monkeypatch.setattr(training, "provenance", lambda: {"revision": "r"})
    monkeypatch.setattr(training.time, "perf_counter", iter([0.0, 1.26] * 4 + [0.0]).__next__)
    study: dict[str, Any] = {
        "name": "study",
        "encoder": {"path": "p", "pooling": "mean"},
        "training": {"corpus": "shared", "bf16": True},
        "methods": {
            "own": {"loss": "SimCSELoss", "encoder": {"pooling": "cls"}, "corpus": "own"},
            "plain": {"baseline": "words"},
            "base": {"corpus": "none"},
        },
    }
    data, work = tmp_path / "data", tmp_path / "work"
    for name, seed in (("own", 3), ("plain", 4), ("base", 5)):
        method = study["training"] | study["methods"][name]
        encoder = study["encoder"] | method.get("encoder", {})
        text = [] if name == "base" else [method["corpus"], "data"]
        figures: dict[str, Any] = {"steps": 0, "best_step": 0}
        if name == "own":
            figures = {"steps": 9, "trained": (method, encoder, seed, text, "dev", data, work / "own-3")}
        assert training.run_cell(study, name, seed, data, work) == figures | {
            "study": "study", "encoder": encoder, "method": name, "settings": method, "seed": seed, "seconds": 1.3,
            "scored": (encoder, method, "dev", ["data"], text),
            "refined": (encoder, method, "dev", ["data"], data, seed), "revision": "r",
        }  # fmt: skip
    assert training.start_record(study | {"weights": "w"}, data) == {
        "study": "study", "weights": "w", "encoder": study["encoder"], "method": "start", "seed": 0,
        "steps": 0, "best_step": 0, "scored": (study["encoder"], study["training"], "dev", ["data"], []),
        "refined": (study["encoder"], study["training"], "dev", ["data"], data, 0),
    }  # fmt: skip
    monkeypatch.setenv("WORLD_SIZE", "2")
    of_two = training.run_cell(study | {"weights": "w"}, "base", 0, data, work)
    assert of_two is not None
    assert (of_two["processes"], of_two["weights"]) == (2, "w")
    monkeypatch.setenv("RANK", "1")
    assert training.run_cell(study, "base", 0, data, work) is None


@pytest.mark.parametrize("bf16", [True, False])
def test_dev_is_scored_in_the_precision_of_the_training(bf16):
    seen: list[bool] = []
    dev: Any = SimpleNamespace(primary_metric="m", greater_is_better=True)
    evaluator = training.InPrecision(dev, bf16)
    evaluator.dev = lambda model, *given, **named: seen.append(torch.is_autocast_enabled("cpu")) or (given, named)
    model: Any = SimpleNamespace(device=torch.device("cpu"))
    assert evaluator(model, "folder", epoch=3) == (("folder",), {"epoch": 3})
    assert seen == [bf16]


def test_checkpoints_of_other_settings_are_begun_anew(tmp_path, monkeypatch, capsys):
    asked: list[bool] = []

    def train_encoder(*_: Any, resume: bool, **__: Any) -> None:
        asked.append(resume)
        if resume:
            raise ValueError(message)

    monkeypatch.setattr(training, "train_encoder", train_encoder)
    monkeypatch.setattr(training, "training_figures", lambda _: {})
    write(tmp_path / "a-0.checkpoints" / RECORD, "{}")
    method = {"loss": "SimCSELoss", "batch_size": 8, "learning_rate": 0.5, "eval_steps": 3, "bf16": False}
    dev = STSDataset("dev", ["a", "b"], ["c", "d"], [1.0, 2.0], ["x", "x"])
    arguments = ({"methods": {}}, method, None, 0, ["text"], dev, tmp_path, tmp_path / "a-0")
    message = "resume needs the same settings."
    training.trained(*arguments)
    assert asked == [True, False]
    assert capsys.readouterr().out == "a-0: its checkpoints are of other settings, so it starts anew.\n"
    message = "temperature must be positive."
    with pytest.raises(ValueError, match="temperature"):
        training.trained(*arguments)


def test_each_seed_adapts_with_its_own_sample(tmp_path, monkeypatch):
    def adapted(_: Any, model: str, texts: list[str], seed: int, facts: dict[str, Any]) -> str:
        facts["chosen"] = f"{model} on {texts} with {seed}"
        return "adapted"

    monkeypatch.setattr(training, "adapted", adapted)
    monkeypatch.setattr(training, "sts_sentences", lambda data: ["b", "a", "b", data.name])
    monkeypatch.setattr(training, "run_after", lambda *given, bf16: {"RepAL": [*given, bf16]})
    scores = {"dev": 1.0, "scores": {"sts12": 2.0}, "average": 3.0}
    monkeypatch.setattr(training, "scores_of", lambda model, *_: scores if model == "adapted" else {})
    dev = STSDataset("mine", ["a", "b"], ["c", "d"], [1.0, 2.0], ["x", "x"])
    method = {"post_processing": ["RepAL", "adapt"], "bf16": True}
    data = tmp_path / "texts"
    after = {
        "RepAL": ["model", dev, [], ["RepAL"], True],
        "adapt": {"chosen": "model on ['b', 'a', 'texts'] with 7", "mine": 1.0, "sts12": 2.0, "average": 3.0},
    }
    assert training.post_processed("model", method, dev, [], data, 7) == {"post_processing": after}
    assert training.post_processed("model", {}, dev, [], data, 7) == {}


def test_the_figures_of_a_training_are_times_100():
    log = [{"loss": 0.123456, "epoch": 1.0, "step": 2, "grad_norm": 3.0, "learning_rate": 0.1, "gap": 2.0}, {"step": 2}]
    trainer: Any = SimpleNamespace(state=SimpleNamespace(log_history=log))
    curve = [(0, 0.6), (2, 0.7123456), (4, 0.5)]
    run = TrainingRun(trainer, "dev", curve, best_step=2, best=0.7123456, steps=4, seconds=1.0)
    assert training.training_figures(run) == {
        "steps": 4, "best_step": 2, "dev": pytest.approx(71.23456),
        "curve": [[0, 60.0], [2, 71.235], [4, 50.0]], "log": [[2, {"loss": 0.12346, "gap": 2.0}]],
    }  # fmt: skip


def test_the_scores_of_a_record_are_those_of_its_sets(tiny_folder, tmp_path):
    """With and without the pairs that dev holds too; a set that has nothing else gives no second score."""
    golds = [float(number * 7 % 5) for number in range(8)]
    others = SENTENCES[3:] + SENTENCES[:3]
    dev = STSDataset("dev", SENTENCES[:3], others[:3], golds[:3], ["x"] * 3)
    half = STSDataset("half", SENTENCES, others, golds, ["x"] * 8)
    new = STSDataset("new", others, SENTENCES[1:] + SENTENCES[:1], golds, ["x"] * 8)
    model = building.starting_encoder({"path": str(tiny_folder)})

    def expected(pairs: STSDataset, begin: int = 0) -> float:
        first, second = (model.encode(side[begin:]).astype(float) for side in (pairs.sentences1, pairs.sentences2))
        cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
        return 100 * float(spearmanr(cosines, pairs.scores[begin:]).statistic)

    found = training.scores_of(model, {}, dev, [half, new], [])
    assert found["dev"] == pytest.approx(expected(dev), abs=1e-6)
    assert found["scores"] == pytest.approx({"half": expected(half), "new": expected(new)}, abs=1e-6)
    assert found["average"] == pytest.approx((expected(half) + expected(new)) / 2, abs=1e-6)
    without = {"half": expected(half, 3), "new": expected(new)}
    without["average"] = sum(without.values()) / 2
    assert found["without_dev"] == pytest.approx(without, abs=1e-6)
    assert without["half"] != pytest.approx(found["scores"]["half"])
    assert "without_dev" not in training.scores_of(model, {}, half, [dev, new], [])


@pytest.mark.parametrize(
    ("method", "is_used"),
    [({"pairs": {}, "bf16": True}, True), ({"pairs": {}, "bf16": False}, False), ({"bf16": True}, False)],
)
def test_some_pairs_are_scored_in_bfloat16_if_the_study_says_so(monkeypatch, method, is_used):
    seen: list[bool] = []

    class Evaluator(training.STSEvaluator):
        def similarities(self, model: Any) -> Any:
            seen.append(torch.is_autocast_enabled("cpu"))
            return [np.arange(3.0)] * 2

    monkeypatch.setattr(training, "STSEvaluator", Evaluator)
    dev, test = (STSDataset(name, ["a", "b", "c"], [*name * 3], [1.0, 2.0, 3.0], ["x"] * 3) for name in "de")
    model: Any = SimpleNamespace(device=torch.device("cpu"))
    training.scores_of(model, method, dev, [test], [])
    assert seen == [is_used]


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
