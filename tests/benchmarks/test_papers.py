"""The study of the papers from end to end, offline: the hub's cache holds a tiny BERT and a few sentences.

Only files stand in for the hub; the study takes the same way as with a network.
"""

import copy
import io
import json
import math
import os
import random
import re
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from benchmarks import __main__ as entrance
from benchmarks import building, hub, papers, training
from benchmarks.paper_settings import SETTINGS, TABLES
from benchmarks.records import append, records
from benchmarks.studies import Mistake, Options, named_study
from st_extras.evaluation import SEVEN_STS, load_sts
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.text import PhraseMasking
from tests.fixtures import SENTENCES, build_encoder
from tests.helpers import run_in_two_processes

ROOT = Path(__file__).resolve().parents[2]
BERT, GUIDE = "google-bert/bert-base-uncased", "princeton-nlp/unsup-simcse-bert-base-uncased"
CHINESE = "今天北京的天气很好我们去公园看花明年他要学习中文和法语请问银行卡怎么还款"
PAIRS = list(zip(*graded_pairs(), strict=True))


def cached(cache: Path, kind: str, name: str) -> Path:
    """The folder of a repository's files in the hub's cache."""
    folder = cache / f"{kind}s--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    files = folder / "snapshots" / ("0" * 40)
    files.mkdir(parents=True)
    return files


def write_archive(file: Path) -> None:
    """SentEval's archive, with a pair that nobody scored in each of its newer sets, in some without an empty line."""
    with tarfile.open(file, "w") as archive:

        def add(name: str, lines: list[str]) -> None:
            content = "".join(f"{line}\n" for line in lines).encode()
            member = tarfile.TarInfo(name if "sts12" in name.casefold() else f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

        drawn = iter(range(10_000))
        for folder, subsets in hub.SUBSETS.values():
            for subset in subsets:
                some = [PAIRS[next(drawn) % len(PAIRS)] for _ in range(5)]
                add(
                    f"STS/{folder}/STS.input.{subset}.txt",
                    [f"{a}\t{b}\ta source" for a, b, _ in some] + ["new one\tnew two"],
                )
                add(
                    f"STS/{folder}/STS.gs.{subset}.txt",
                    [str(score) for *_, score in some] + [""] * (subset != subsets[0]),
                )
        shared = iter(range(86, 300, 24))  # dev shares some pairs with sts16
        for split in ("train", "dev", "test"):
            some = PAIRS[next(shared) :][:24]
            lines = [f"genre\tfile\tyear\t{i}\t{score}\t{a}\t{b}" for i, (a, b, score) in enumerate(some)]
            add(f"STS/STSBenchmark/sts-{split}.csv", lines)
        for split in ("train", "trial", "test_annotated"):
            some = PAIRS[next(shared) :][:24]
            lines = [f"{i}\t{a}\t{b}\t{score}\tNEUTRAL" for i, (a, b, score) in enumerate(some)]
            add(f"SICK/SICK_{split}.txt", ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tjudgment", *lines])


def write_encoder(folder: Path, *, with_head: bool = False, characters: str = "") -> None:
    """A tiny BERT whose words are not all alike."""
    build_encoder(folder, layers=3, hidden_size=64, max_seq_length=32, with_head=with_head, characters=characters)
    weights = load_file(folder / "model.safetensors")
    for name, value in weights.items():
        if "embeddings" in name and "Norm" not in name:
            value.mul_(10)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_chinese(cache: Path) -> None:
    """The Chinese encoder and the sets of RepAL's Chinese table, as files of Parquet with a page that names them."""
    write_encoder(cached(cache, "model", "google-bert/bert-base-chinese"), with_head=True, characters=CHINESE)
    drawn = random.Random(0)
    for repository in {name for name, _ in hub.CHINESE.values()}:
        files = cached(cache, "dataset", repository)
        splits = [split for name, split in hub.CHINESE.values() if name == repository]
        named = [{"split": split, "path": f"data/{split}-*"} for split in splits]
        page = f"---\nconfigs:\n- config_name: default\n  data_files: {json.dumps(named)}\n---\n# {repository}\n"
        (files / "README.md").write_text(page, encoding="utf8")
        for split in splits:
            sentences = ["".join(drawn.choices(CHINESE, k=8)) for _ in range(48)]
            columns = {
                "sentence1": sentences[:24],
                "sentence2": sentences[24:],
                "score": [drawn.randrange(6) for _ in range(24)],
            }
            Dataset.from_dict(columns).to_parquet(files / "data" / f"{split}-00000-of-00001.parquet")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of the hub with the two encoders and the data, all tiny."""
    cache = tmp_path_factory.mktemp("hub")
    for name in (BERT, GUIDE):
        write_encoder(cached(cache, "model", name), with_head=name == BERT)
    files = cached(cache, "dataset", hub.DATA)
    (files / hub.WIKIPEDIA).write_text("\n".join(sample_sentences()[:96]) + "\n", encoding="utf8")
    write_archive(files / hub.SENTEVAL)
    write_chinese(cache)
    return cache


@pytest.fixture
def offline(cache, monkeypatch):
    """No network: the hub's libraries read their cache."""
    for module in ("huggingface_hub.constants", "huggingface_hub.file_download", "huggingface_hub._snapshot_download"):
        monkeypatch.setattr(f"{module}.HF_HUB_CACHE", str(cache), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: True, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(papers, "PATIENCE", 0.0)


def short_study(name: str = "papers") -> dict[str, Any]:
    """A study with five steps of each method, in batches of 8, and two seeds."""
    study = named_study(name)
    for method in study["methods"].values():
        method |= {"steps": 5, "eval_steps": 2, "batch_size": 8} if "loss" in method else {}
        method["seeds"] = [0, 1] if "loss" in method else [0]
        method.pop("warmup_epochs", None)
        if "masking" in method:
            method["masking"] = {"top_k": 1}
            method["options"]["num_decoder_layers"] = 1
        if "post_processing" in method:
            method["post_processing"] = [name for name in method["post_processing"] if name != "adapt"]
    return study


def options_in(folder: Path, **given: Any) -> Options:
    return Options(Path("hub"), folder / "work", folder / "results", **given)


def test_the_archive_of_senteval_becomes_the_data_folder(offline, tmp_path):
    folder = hub.data_folder(tmp_path / "data", chinese=False)
    for name in SEVEN_STS:
        assert len(load_sts(name, folder)) in (15, 20, 24, 25, 30)
    sts13 = load_sts("sts13", folder)
    assert (sts13.sentences1[0], sts13.subsets[0]) == (" ".join(PAIRS[25][0].split()), "headlines")
    assert load_sts("sickr_test", folder).scores == [score for *_, score in PAIRS[206:230]]
    assert "new one" not in sts13.sentences1, "a pair without a score is not scored"
    text = (folder / "sts_unlabeled.txt").read_text().splitlines()
    scored = sum(2 * len(load_sts(name, folder)) for name in (*SEVEN_STS, "stsb_train", "stsb_dev"))
    unscored = sum(len(subsets) for _, subsets in hub.SUBSETS.values())
    assert len(text) == scored + 2 * 24 * 2 + 2 * unscored, "SICK's other sets, and the pairs without a score"
    assert text.count("new one") == unscored
    assert len((folder / hub.WIKIPEDIA).read_text().splitlines()) == 96


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_study_from_end_to_end(offline, tmp_path, monkeypatch, capsys):
    """Interrupted within a cell and between cells, with a cell that fails, then the page."""
    study, options = short_study(), options_in(tmp_path)
    chosen = ["base-cls", "tfidf", "sif", "base-first-last", "simcse", "dclr", "adcse", "consert", "slt-fai", "paser"]
    part = {"methods": chosen}

    # an interruption within a cell: after the checkpoint of step 4 of the first seed of dclr
    steps: list[int] = []
    train_encoder = training.train_encoder

    def stopped(model: Any, loss: Any, rows: Any, output: Any, **given: Any) -> Any:
        def make(new: Any) -> Any:
            made = loss(new)
            forward = made.forward

            def counted(*columns: Any, **more: Any) -> Any:
                if torch.is_grad_enabled():
                    steps.append(len(steps))
                    if "dclr-0" in str(output) and len(steps) > 5 + 4:
                        raise KeyboardInterrupt
                return forward(*columns, **more)

            made.forward = counted
            return made

        return train_encoder(model, make, rows, output, **given)

    monkeypatch.setattr(training, "train_encoder", stopped)
    with pytest.raises(KeyboardInterrupt):
        papers.run(study, options_in(tmp_path, **part))
    before = {record["run"] for record in records("papers", root=options.root)}
    assert before == {"base-cls-0", "base-first-last-0", "tfidf-0", "sif-0", "simcse-0"}
    work = tmp_path / "work" / "papers"
    assert (work / "dclr-0.checkpoints" / "checkpoint-4").is_dir()

    # it goes on from step 4: one more step, not five; consert's cells fail for want of memory
    steps.clear()
    resumed: list[tuple[str, bool]] = []

    def watched(model: Any, loss: Any, rows: Any, output: Any, **given: Any) -> Any:
        resumed.append((Path(output).name, given["resume"]))
        if "consert-0" in str(output):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return train_encoder(model, loss, rows, output, **given)

    monkeypatch.setattr(training, "train_encoder", watched)
    with pytest.raises(SystemExit, match=r"consert, seed 0: out of memory: --mini-batch-size 32"):
        papers.run(study, options_in(tmp_path, **part))
    assert resumed[0] == ("dclr-0", True)
    assert not any(is_resumed for _, is_resumed in resumed[1:])
    lines = capsys.readouterr().out
    assert "1 of 11: dclr, seed 0" in lines
    assert "min left" in lines
    found = {record["run"]: record for record in records("papers", root=options.root)}
    trained = {f"{name}-{seed}" for name in chosen[4:] for seed in (0, 1)}
    assert found.keys() == before | trained - {"consert-0"} | {"consert-0-failed-1"}
    assert found["dclr-0"]["steps"] == 5
    assert [step for step, _ in found["dclr-0"]["curve"]] == [0, 2, 4, 5]
    assert "out of memory" in found["consert-0-failed-1"]["failed"]
    for run in sorted(trained - {"consert-0"}):
        assert found[run]["settings"]["batch_size"] == 8
        whole, new = found[run]["scores"], found[run]["without_dev"]
        assert (whole["sts16"], whole["sts12"]) != (new["sts16"], new["sts12"]) == (new["sts16"], whole["sts12"])
    assert found["slt-fai-0"]["settings"]["frequencies"] == "training text"
    assert found["simcse-0"]["post_processing"]["RepAL"]["average_wmean"]

    # the weights after the interruption are those without one
    monkeypatch.setattr(training, "train_encoder", train_encoder)
    papers.run(study, options_in(tmp_path / "again", methods=["dclr"], seeds=[0]))
    (whole,) = records("papers", root=tmp_path / "again" / "results")
    assert whole["average"] == pytest.approx(found["dclr-0"]["average"], abs=1e-9)

    # once more: only what failed runs; then nothing
    papers.run(study, options_in(tmp_path, **part))
    capsys.readouterr()
    papers.run(study, options_in(tmp_path, **part))
    assert capsys.readouterr().out == f"All cells have a record in {options.root}.\n"
    assert {record["run"] for record in records("papers", root=options.root)} == found.keys() | {"consert-0"}

    entrance.main(["tables", "--results", str(options.root)])
    page = (options.root / "papers.md").read_text(encoding="utf8")
    averages = [found[f"dclr-{seed}"]["average"] for seed in (0, 1)]
    assert f"| DCLR | 76.89 | {sum(averages) / 2:.2f} ± " in page
    assert "**DCLR over SimCSE**" in page
    assert "the paper: +1.90" in page
    assert "Failed" not in page
    assert "| base model, [CLS] | 31.40 |" in page


@pytest.mark.slow
def test_the_chinese_study_from_end_to_end(offline, tmp_path):
    study = short_study("papers_zh")
    papers.run(study, options_in(tmp_path))
    found = {record["run"]: record for record in records("papers_zh", root=tmp_path / "results")}
    assert found.keys() == {"base-first-last-0", "simcse-0", "simcse-1"}
    data = tmp_path / "work" / "papers_zh-data"
    text = (data / "zh_unlabeled.txt").read_text(encoding="utf8").splitlines()
    assert len(set(text)) == len(text) == 6 * 48, "each set's own sentences"
    for record in found.values():
        assert record["scores"].keys() == set(study["sets"])
        assert record["post_processing"].keys() == {"plain", "RepAL"}
    entrance.main(["tables", "--results", str(tmp_path / "results")])
    page = (tmp_path / "results" / "papers.md").read_text(encoding="utf8")
    average = found["base-first-last-0"]["post_processing"]["RepAL"]["average"]
    assert f"| RepAL after the base model | 31.06 | {average:.2f} (1) |" in page


@pytest.mark.slow
def test_two_processes_share_each_batch_and_write_one_record(offline, tmp_path):
    """torchrun: the batch stays the same in total, and the sentences of both processes are negatives."""
    run_in_two_processes("tests.benchmarks.papers_worker", str(tmp_path), "base-cls", "dclr", "slt-fai")
    found = {record["run"]: record for record in records("papers", root=tmp_path / "results")}
    assert found.keys() == {"base-cls-0", "dclr-0", "slt-fai-0"}
    for record in (found["dclr-0"], found["slt-fai-0"]):
        assert (record["settings"]["batch_size"], record["processes"], record["steps"]) == (8, 2, 5)


def test_mini_batches_are_for_the_losses_that_take_them():
    methods = papers.for_device(named_study("papers"), 32)["methods"]
    with_them = {name for name, method in methods.items() if "mini_batch_size" in method.get("options", {})}
    pair_losses = ("SimCSELoss", "DCLRLoss", "AdCSELoss", "ConSERTLoss")
    assert with_them == {name for name, method in methods.items() if method.get("loss") in pair_losses}
    assert "mini_batch_size" not in named_study("papers")["methods"]["simcse"]["options"]
    for chosen in (True, False):
        study = named_study("papers")
        study["training"]["bf16"] = chosen
        assert papers.for_device(study, None)["training"]["bf16"] is chosen
    out = torch.OutOfMemoryError("CUDA out of memory.")
    for options, expected in (
        ({"mini_batch_size": 16}, "--mini-batch-size 8 needs"),
        ({}, "--mini-batch-size 32 needs"),
    ):
        assert expected in training.reason_of(out, {"loss": "SimCSELoss", "options": options})


@pytest.mark.parametrize(("counted_by", "expected"), [("its own", "counts.tsv"), ("another", "training text")])
def test_counts_of_another_tokenizer_are_not_used(tiny_folder, tmp_path, counted_by, expected):
    words = {"its own": "the\t3\n", "another": "no-such-token-here\t3\n"}
    (tmp_path / "counts.tsv").write_text(words[counted_by])
    study = {"encoder": {"path": str(tiny_folder)}, "training": {"frequencies": "counts.tsv"}}
    assert papers.with_frequencies(study, tmp_path)["training"]["frequencies"] == expected


def test_the_time_left_is_in_proportion_to_what_is_expected(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("benchmarks.training.time.perf_counter", lambda: now[0])
    clock = training.TimeLeft([60.0, 60.0, 360.0])
    assert clock.left(0) == ""
    now[0] = 240.0  # twice as long as expected
    assert clock.left(2) == ", 12 min left"


def test_the_share_of_a_process_is_a_part_of_the_batch_with_all_negatives():
    study = named_study("papers")
    share = building.share_of_a_process(study["training"] | study["methods"]["dclr"], 4)
    assert share["batch_size"] == 64
    assert share["options"]["gather_across_devices"]
    share = building.share_of_a_process(study["training"] | study["methods"]["slt-fai"], 2)
    assert "gather_across_devices" not in share["options"]
    assert share["base"]["options"]["gather_across_devices"]
    with pytest.raises(ValueError, match=r"must divide the batch of 64, got 3 processes"):
        building.share_of_a_process(study["training"] | study["methods"]["adcse"], 3)


def faults(study: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """What is wrong with a contributed record."""
    of_the_device = {"bf16", "frequencies"}
    settings = {key: value for key, value in record.get("settings", {}).items() if key not in of_the_device}
    settings.get("options", {}).pop("mini_batch_size", None)
    wanted = study["training"] | study["methods"].get(record["method"], {})
    numbers = [record.get("average"), record.get("dev"), *record.get("scores", {}).values()]
    wrong = {
        "its settings are not the study's": settings != {k: v for k, v in wanted.items() if k not in of_the_device},
        "it is of another encoder": record.get("encoder", {}).get("path") != study["encoder"]["path"],
        "its seed is not the study's": record.get("seed") not in wanted.get("seeds", []),
        "a version is missing": not {"torch", "sentence-transformers"} <= record.get("versions", {}).keys(),
        "the code had local changes": not re.fullmatch("[0-9a-f]{12}", record.get("revision", "")),
        "a score is missing": len(numbers) != 9 or not all(isinstance(n, float) and abs(n) <= 100 for n in numbers),
    }
    return [f"{record['run']}: {fault}" for fault, is_there in wrong.items() if is_there]


def test_contributed_records_are_checked():
    study = named_study("papers")
    assert [fault for record in records("papers") if "failed" not in record for fault in faults(study, record)] == []
    good = {
        "run": "simcse-0", "method": "simcse", "seed": 0, "encoder": study["encoder"], "average": 76.0, "dev": 80.0,
        "settings": study["training"] | study["methods"]["simcse"] | {"bf16": True},
        "scores": dict.fromkeys(SEVEN_STS, 76.0), "revision": "0123456789ab",
        "versions": {"torch": "2.13.0", "sentence-transformers": "6.2.0"},
    }  # fmt: skip
    assert faults(study, good) == []
    for change in (
        {"settings": good["settings"] | {"batch_size": 512}},
        {"encoder": study["encoder"] | {"path": "x"}},
        {"seed": 7},
        {"versions": {}},
        {"revision": "0123456789ab-dirty"},
        {"scores": {}},
    ):
        assert len(faults(study, good | change)) == 1


def test_the_figures_of_a_row_are_those_of_its_setting():
    from benchmarks.paper_settings import Row
    from benchmarks.statistics import EVERY
    from benchmarks.tables.papers import scores

    after = {"RepAL": {"average": 71.0, "average_wmean": 72.0}}
    trained = {"method": "m", "seed": 3, "steps": 5, "average": 70.0, "without_dev": {"average": 69.0}}
    found = [trained | {"post_processing": after}, {"method": "other", "seed": 3, "steps": 5, "average": 1.0}]
    assert scores(Row("m"), [*found, {"method": "m", "seed": 4, "failed": "out of memory"}]) == {3: 70.0}
    assert scores(Row("m"), found, without_dev=True) == {3: 69.0}
    assert scores(Row("m", after="RepAL"), found) == {3: 71.0}
    assert scores(Row("m", after="RepAL", setting="wmean"), found) == {3: 72.0}
    base = [{"method": "m", "seed": 0, "steps": 0, "average": 30.0}]
    assert scores(Row("m"), base) == {EVERY: 30.0}
    assert scores(Row("m"), base, without_dev=True) == {}, "never those with dev's pairs in their place"


def test_a_row_and_what_failed_are_on_the_page(tmp_path):
    from benchmarks.tables.papers import papers_tables

    record = {"method": "simcse", "seed": 0, "steps": 5, "average": 70.0, "without_dev": {"average": 69.0}}
    append("papers", "simcse-0", record, root=tmp_path)
    assert "| SimCSE | 76.25 | 70.00 (1) | -6.25 | 69.00 |" in papers_tables(tmp_path).written().splitlines()
    append("papers", "dclr-0-failed-1", {"method": "dclr", "seed": 0, "failed": "out of memory: x"}, root=tmp_path)
    assert "Failed: dclr, seed 0 (out of memory)." in papers_tables(tmp_path).written()
    base = {"method": "base-first-last", "seed": 0, "steps": 0, "post_processing": {"plain": {"average_wmean": 60.0}}}
    append("papers", "base-first-last-0", base, root=tmp_path)
    sections = papers_tables(tmp_path).written().split("\n## ")
    assert [part.partition("\n")[0] for part in sections if "dclr, seed 0" in part] == ["## DCLR"], "not under others"
    (repal,) = (part for part in sections if part.startswith("RepAL\n"))
    assert repal.rstrip().endswith(TABLES["repal"].note)
    assert "| base model | 63.69 | 60.00 (1) | -3.69 |  |" in repal.splitlines()
    append("papers", "dclr-0", record | {"method": "dclr"}, root=tmp_path)
    assert "Failed" not in papers_tables(tmp_path).written(), "it ran since"


def test_the_page_has_the_papers_figures_beside_those_of_the_records(tmp_path):
    """Of trained encoders with the spread over seeds; a base model has no seed; what failed stands under its table."""
    from benchmarks.tables.papers import page

    def add(method: str, seed: int, average: float, steps: int = 5) -> None:
        record = {"method": method, "seed": seed, "steps": steps, "average": average}
        append("papers", f"{method}-{seed}", record | {"without_dev": {"average": average - 1}}, root=tmp_path)

    add("base-cls", 0, 31.0, steps=0)
    for seed in range(3):
        add("simcse", seed, 70.0)
        add("dclr", seed, 72.0 + seed / 10)
    for run, failed in {
        "0-failed-1": "out of memory: x",
        "0-failed-2": "out of memory: y",
        "1-failed-1": "E: z",
    }.items():
        record = {"method": "adcse", "seed": int(run[0]), "failed": failed}
        append("papers", f"adcse-{run}", record, root=tmp_path)
    title, place, *sections = page(tmp_path).split("\n\n")
    assert (title, place) == ("# The papers' tables", f"Spearman x 100, from the records in {tmp_path}.")
    assert [part for part in sections if part.startswith("#")] == [
        "## DCLR", "## AdCSE", "## PaSeR", "## What no paper has",
    ]  # fmt: skip
    dclr, verdict, adcse = sections[1], sections[2], sections[sections.index("## AdCSE") + 2]
    assert dclr.splitlines()[:7] == [
        "| mean of the sets | the paper | here (seeds) | here - paper | here, without dev's pairs |",
        "|---|---:|---:|---:|---:|",
        "| base model, [CLS] | 31.40 | 31.00 (1) | -0.40 | 30.00 |",
        "| base model, mean | 52.57 |  |  |  |",
        "| base model, first and last layer | 56.70 |  |  |  |",
        "| SimCSE | 74.99 | 70.00 ± 0.00 (3) | -4.99 [-4.99, -4.99] | 69.00 ± 0.00 |",
        "| DCLR | 76.89 | 72.10 ± 0.10 (3) | -4.79 [-5.04, -4.54] | 71.10 ± 0.10 |",
    ]
    assert verdict == (
        "**DCLR over SimCSE**: +2.10 [+1.85, +2.35]; the paper: +1.90. The gain holds, at the paper's size."
    )
    assert adcse == "Failed: adcse, seed 0 (out of memory); adcse, seed 1 (E)."


def test_the_table_of_settings_names_what_a_row_changes_or_leaves_out():
    from benchmarks.tables.papers import settings_table

    lines = {line.split("|")[1].strip(" `"): line for line in settings_table().written().splitlines()}
    assert lines.keys() - {"method", "---"} == SETTINGS.keys()
    first = dict(part.partition(" ")[::2] for part in lines["dclr"].split("|")[2].strip().split("; "))
    assert (first["loss"], first["batch_size"], first["noise_steps"]) == ("DCLRLoss", "256", "4")
    assert lines["dclr-script"] == "| `dclr-script` | batch_size 128 | code: --per_device_train_batch_size 128 |"
    assert "| without threshold; without guide |" in lines["dclr-no-guide"]
    both = "AdCSE, section 4.3: w/o negative adversaries; AdCSE, section 4.3: w/o untied dual-encoder"
    changed = "num_adversaries 0; tied True; without momentum; without adversary_learning_rate"
    assert lines["adcse-neither"] == f"| `adcse-neither` | {changed} | {both} |"
    assert all(line.count("loss ") for name, line in lines.items() if name in ("simcse", "consert", "slt-fai", "paser"))


def test_the_hours_of_a_study_are_those_of_its_steps(results):
    """Of measured steps with 64 and 1,024 sentences; in between linearly, not fewer than with 64."""
    from benchmarks.tables.cost import GPU_RUNS
    from benchmarks.tables.papers import estimated_hours

    for run, milliseconds in zip(GPU_RUNS.values(), (100, 1060), strict=True):
        cases = {name: {"median_ms": milliseconds} for name in ("simcse", "paser")}
        cases["dclr, model"] = {"median_ms": 2 * milliseconds}
        append("speed", run, {"cases": cases})
    training = {"seeds": [0, 1], "corpus": "sts", "epochs": 2, "batch_size": 64, "loss": "SimCSELoss"}
    of_one = 2 * 2 * math.ceil(89_192 / 64) * 0.1 / 3600
    for method, hours in (
        ({}, of_one),
        ({"seeds": [0]}, of_one / 2),
        ({"steps": 500, "batch_size": 128}, 2 * 500 * 0.164 / 3600),
        ({"steps": 500, "batch_size": 32}, 2 * 500 * 0.1 / 3600),
        ({"steps": 500, "guide": {}}, 2 * 500 * 0.2 / 3600),
        ({"loss": "PaSeRLoss", "masking": {"top_k": 3}}, 2 * 2 * math.ceil(3 * 89_192 / 64) * 0.1 / 3600),
    ):
        study = {"training": training, "methods": {"a": method}}
        assert estimated_hours(study) == pytest.approx(hours), method
    untrained = {"training": {key: value for key, value in training.items() if key != "loss"}, "methods": {"a": {}}}
    assert estimated_hours(untrained) == 0


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ((1.0, 1.1, 1.2), "The gain holds, but is smaller than in the paper."),
        ((1.8, 1.9, 2.0), "The gain holds, at the paper's size."),
        ((2.9, 3.0, 3.1), "The gain holds, but is larger than in the paper."),
        ((-1.0, 0.1, 1.0), "The interval covers 0: no gain is shown."),
        ((-1.0, -1.1, -1.2), "The gain does not hold: it is a loss."),
        ((1.0,), "One seed, so no verdict."),
    ],
)
def test_a_verdict_follows_from_the_interval(tmp_path, gains, expected):
    from benchmarks.tables.papers import papers_tables

    for seed, gain in enumerate(gains):
        for method, average in {"simcse": 70.0, "dclr": 70.0 + gain}.items():
            record = {"method": method, "seed": seed, "steps": 5, "average": average}
            append("papers", f"{method}-{seed}", record, root=tmp_path)
    (line,) = (line for line in papers_tables(tmp_path).written().splitlines() if line.startswith("**DCLR over SimCSE"))
    assert line.endswith(expected)
    assert "the paper: +1.90" in line


# --- the plan, and what is refused before anything is downloaded ---


def test_a_step_is_timed_for_each_setting_that_it_depends_on(offline, tmp_path, monkeypatch):
    study = papers.for_device(named_study("papers"), None)
    plain = {"loss": "SimCSELoss", "steps": 5}
    other = {"loss": "AdCSELoss", "options": {"temperature": 0.1}, "base": {"loss": "SimCSELoss"}, "batch_size": 128}
    other |= {"encoder": {"layers": 1}, "guide": {"path": GUIDE}, "masking": {"top_k": 1}, "rows": {"spans": 2}}
    study["methods"] = {"a": plain, "b": plain | {"steps": 9}} | {part: plain | {part: other[part]} for part in other}
    timed: list[dict[str, Any]] = []
    encoders: list[dict[str, Any]] = []

    def timed_step(encoder: dict[str, Any], method: dict[str, Any]) -> papers.Cost:
        encoders.append({key: value for key, value in encoder.items() if key != "path"})
        timed.append(method)
        assert Path(encoder["path"]).is_dir(), "the one of random weights"
        return papers.Cost()

    monkeypatch.setattr(papers, "seconds_to_encode", lambda _: 0.0)
    monkeypatch.setattr(papers, "timed_step", timed_step)
    assert papers.timed_costs(study, list(study["methods"]), tmp_path).keys() == study["methods"].keys()
    own = {"pooling": "cls", "max_seq_length": 32}
    assert encoders == [own | method.get("encoder", {}) for method in timed]
    first, *others = timed
    differing = [[part for part in other if method.get(part) != first.get(part)] for method in others]
    assert differing == [[part] for part in other]


@pytest.mark.parametrize(("seconds", "timed"), [(1.0, 20), (8.0, 3), (40.0, 1)])
def test_steps_are_timed_after_one_that_warms_up_until_patience_ends(tiny_folder, monkeypatch, seconds, timed):
    now = [100.0]

    def clock() -> float:
        now[0] += seconds
        return now[0]

    monkeypatch.setattr(papers.time, "perf_counter", clock)
    encoder, lengths = {"path": str(tiny_folder)}, []
    make_loss = papers.make_loss

    def watched(*arguments: Any) -> Any:
        made = make_loss(*arguments)
        made.register_forward_pre_hook(lambda _, given: lengths.append(len(given[0][0]["input_ids"])))
        return made

    monkeypatch.setattr(papers, "make_loss", watched)
    method = {"loss": "SimCSELoss", "batch_size": 4, "bf16": False}
    cost = papers.timed_step(encoder, method)
    assert (cost.step_seconds, cost.timed, cost.memory) == (seconds, timed, None)
    assert lengths == [4] * (1 + timed)
    assert papers.seconds_to_encode(encoder, 8) == seconds / 8


@pytest.mark.parametrize("place", [None, "corpora/wordnet", "corpora/wordnet.zip"])
def test_the_plan_names_wordnet_if_it_is_not_there_and_needed(tmp_path, monkeypatch, capsys, place):
    def find(name: str) -> None:
        if name != place:
            raise LookupError

    monkeypatch.setattr(papers, "find", find)
    study = papers.for_device(named_study("papers"), None)
    costs = dict.fromkeys(("paser", "simcse"), papers.Cost(steps=1_000, step_seconds=0.5, timed=20, memory=3 * 2**29))
    monkeypatch.setattr(papers, "timed_costs", lambda _, names, __: {name: costs[name] for name in names})
    downloads = [hub.Download("a, b", 2_500_000_000, False), hub.Download("c", 400_000, True)]
    for cells, needed in (([("paser", 0), ("paser", 1), ("simcse", 0)], True), ([("simcse", 0)], False)):
        papers.print_plan(study, cells, downloads, tmp_path)
        lines = capsys.readouterr().out.splitlines()
        assert any(line.startswith("WordNet: 11 MB, not there") for line in lines) == (needed and place is None)
        assert {"a, b: 2,500 MB, to download", "c: 0 MB, in the cache"} <= {*lines}
        assert "| simcse | 1 | 1,000 | 500 (20 timed) | 1.5 GiB | 8 min |" in lines
        assert lines[-1 - len(downloads) - (needed and place is None)] == (
            f"On this device: 1 x CPU, float32. Encoder: {BERT}."
        )


def test_a_step_is_timed_without_a_download():
    settings = {"corpus": "sts", "frequencies": "counts.tsv", "guide": {"path": GUIDE, "pooling": "cls"},
                "masking": {"top_k": 3, "synonym_ratio": 0.5}}  # fmt: skip
    assert papers.without_downloads(settings, "here") == {
        "corpus": "sts", "frequencies": building.COUNTED, "guide": {"path": "here", "pooling": "cls"},
        "masking": {"top_k": 3},
    }  # fmt: skip
    assert papers.without_downloads({"corpus": "sts"}, "here").keys() == {"corpus", "frequencies"}


def test_the_time_of_a_plan_is_that_of_all_its_cells(offline, tmp_path, monkeypatch, capsys):
    """Steps, an evaluation of dev every 125 of them, and the scored sets at the end, twice more for each step after."""
    study = papers.for_device(named_study("papers"), None)
    study["training"] |= {"eval_steps": 125, "corpus": "sts", "batch_size": 64}
    study["methods"] = {"a": {"loss": "SimCSELoss", "steps": 500}, "b": {"post_processing": ["plain"]}}
    monkeypatch.setattr(papers, "seconds_to_encode", lambda _: 0.01)
    monkeypatch.setattr(papers, "timed_step", lambda *_: papers.Cost(step_seconds=7.2))
    found = papers.print_plan(study, [("a", 0), ("a", 1), ("b", 0)], [], tmp_path / "none")
    assert found == pytest.approx({"a": 500 * 7.2 + (4 * 3000 + 50_000) * 0.01, "b": 1500.0})
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [line.split("|")[-2].strip() for line in lines[-3:]] == ["2.3 h", "25 min", "2.8 h"]


def test_steps_are_those_of_the_text_once_it_is_there(tmp_path):
    """Of each corpus its own sentences; before that, as many as its authors say."""
    (tmp_path / "mine.txt").write_text("one\ntwo\nthree\n", encoding="utf8")
    (tmp_path / "sts_unlabeled.txt").write_text("one\ntwo\n", encoding="utf8")
    method = {"epochs": 2, "batch_size": 2}
    for corpus, steps in {"mine.txt": 4, "sts": 2, "wiki1m_for_simcse.txt": 1_000_000}.items():
        assert papers.steps_of(method | {"corpus": corpus}, tmp_path) == steps
    assert papers.steps_of({"steps": 7, "batch_size": 2, "corpus": "sts"}, tmp_path) == 7


def test_paser_takes_as_many_steps_as_its_phrases_need(tmp_path):
    method = {"corpus": "sts", "epochs": 1, "batch_size": 64}
    plain, masked = (papers.steps_of(method | more, tmp_path / "none") for more in ({}, {"masking": {"top_k": 3}}))
    rows = len(PhraseMasking(top_k=3)(sample_sentences())["sentence"])
    assert plain == math.ceil(89_192 / 64)
    assert masked == pytest.approx(plain * rows / len(sample_sentences()), abs=1)
    assert masked > 1.5 * plain
    assert papers.steps_of(method | {"masking": {"top_k": 1}}, tmp_path / "none") < 0.7 * masked


def test_the_folders_of_different_encoders_differ_and_lie_within_the_work_folder(tmp_path):
    options = Options(Path("hub"), tmp_path, papers.RESULTS)
    names = ["a/b", "a_b", "a__b", "a%2Fb", "a b", "/a/b", "..", ".", "../a", "/", "A/b", "ä", "a/b" * 100]
    for kind, parent in {"work": tmp_path, "root": papers.RESULTS / "encoders"}.items():
        folders = [papers.own_folders(options, name)[kind] for name in names]
        assert len({str(folder).casefold() for folder in folders}) == len(names)
        assert {folder.resolve().parent for folder in folders} == {parent.resolve()}
        assert all(len(folder.name) < 100 for folder in folders)
    assert papers.own_folders(options, "a/b/") == papers.own_folders(options, "a/b")
    named = Options(Path("hub"), tmp_path, tmp_path / "results")
    assert papers.own_folders(named, "a/b")["root"] == named.root, "a folder that is named is taken as it is"


def test_the_plan_is_printed_and_nothing_is_run(offline, tmp_path, capsys):
    papers.run(short_study(), options_in(tmp_path, only_plan=True, methods=["simcse", "dclr", "tfidf"]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:6]] == ["tfidf", "simcse", "dclr", "all"]
    assert "| simcse | 2 | 5 |" in "\n".join(lines)
    parts = [line.rpartition(": ")[0] for line in lines[-4:] if line.endswith("MB, in the cache")]
    assert parts == [BERT, GUIDE, f"{hub.DATA}, {hub.WIKIPEDIA}", f"{hub.DATA}, {hub.SENTEVAL}"]
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("data", ["hub", "interrupted", "complete", "folder"])
def test_what_was_planned_is_run_on_the_data_that_is_there(offline, tmp_path, monkeypatch, data):
    """The plan names downloads of data that is not there yet; the cells get the study, folder and times of the plan."""
    planned: list[Any] = []
    study, options = short_study("papers_zh"), options_in(tmp_path, mini_batch_size=4)
    study["training"] |= {"bf16": False, "corpus": "mine.txt"}
    folder = tmp_path / "work" / "papers_zh-data"
    if data == "folder":
        folder = tmp_path / "mine"
        options = replace(options, data=folder)
    if data != "hub":
        folder.mkdir(parents=True)
        (folder / ("complete" if data == "complete" else "mine.txt")).touch()
    append("papers_zh", "simcse-0", {"encoder": study["encoder"]}, root=options.root)

    def plan(*given: Any) -> dict[str, float]:
        planned.extend(given)
        return {"simcse": 7.0}

    made: list[Any] = []
    monkeypatch.setattr(papers, "print_plan", plan)
    monkeypatch.setattr(papers, "with_frequencies", lambda study, data: study | {"counted_in": data})
    monkeypatch.setattr(papers, "run_cells", lambda *given: made.append(("run", *given)))
    monkeypatch.setattr(hub, "data_folder", lambda *given, **named: made.append((*given, named)))
    papers.run(study, options)
    expected = papers.for_device(study, 4)
    downloads = ["google-bert/bert-base-chinese"]
    if data in ("hub", "interrupted"):
        downloads += sorted({name for name, _ in hub.CHINESE.values()})
    assert planned[:2] == [expected, [("base-first-last", 0), ("simcse", 1)]]
    assert ([download.name for download in planned[2]], planned[3]) == (downloads, folder)
    of_hub = [] if data == "folder" else [(folder, {"chinese": True})]
    handed = ("run", expected | {"counted_in": folder}, replace(options, data=folder), {"simcse": 7.0})
    assert made == [*of_hub, handed]
    del made[:]
    papers.run(study, replace(options, only_plan=True, encoder=study["encoder"]["path"]))
    assert made == []
    assert planned[4:6] == planned[:2], "the study's own encoder by its name is no other one"


def test_each_guide_of_a_cell_that_is_left_is_downloaded_once(tmp_path, monkeypatch):
    study = short_study()
    for name, path in {
        "dclr": "b/guide",
        "dclr-script": "a/guide",
        "dclr-no-noise": "b/guide",
        "dclr-random-noise": "c",
    }.items():
        study["methods"][name]["guide"] = {"path": path}
    for seed in (0, 1):
        append("papers", f"dclr-random-noise-{seed}", {"encoder": study["encoder"]}, root=tmp_path / "results")
    asked, planned = [], []
    monkeypatch.setattr(hub, "check_encoder", lambda *given: asked.append(given) or [given[0]])
    monkeypatch.setattr(papers, "print_plan", lambda study, cells, downloads, folder: planned.extend(downloads))
    methods = ["simcse", "dclr", "dclr-script", "dclr-no-noise", "dclr-random-noise"]
    (tmp_path / "work" / "papers-data").mkdir(parents=True)
    (tmp_path / "work" / "papers-data" / "complete").touch()
    papers.run(study, options_in(tmp_path, only_plan=True, methods=methods))
    assert asked == [(BERT,), ("a/guide", "guide"), ("b/guide", "guide")]
    assert planned == [BERT, "a/guide", "b/guide"]


def test_a_study_with_mini_batches_is_another_one_and_the_first_stays():
    study: dict[str, Any] = {"training": {}, "methods": {
        "bare": {"loss": "SimCSELoss"}, "given": {"loss": "DCLRLoss", "options": {"threshold": 0.5}},
        "base": {}, "whole": {"loss": "PaSeRLoss"},
    }}  # fmt: skip
    before = copy.deepcopy(study)
    found = papers.for_device(study, 1)["methods"]
    assert study == before
    assert found == before["methods"] | {
        "bare": {"loss": "SimCSELoss", "options": {"mini_batch_size": 1}},
        "given": {"loss": "DCLRLoss", "options": {"threshold": 0.5, "mini_batch_size": 1}},
    }


def test_an_encoder_of_random_weights_has_the_shape_the_head_and_the_tokenizer_of_the_study(tmp_path):
    for name, with_head in (("bare", False), ("head", True)):
        write_encoder(tmp_path / name, with_head=with_head)
        with papers.random_encoder(str(tmp_path / name)) as folder:
            files = [load_file(Path(one) / "model.safetensors") for one in (folder, tmp_path / name)]
            shapes, expected = ({key: value.shape for key, value in file.items()} for file in files)
            assert shapes == expected
            assert any(not torch.equal(value, files[1][key]) for key, value in files[0].items())
            texts = [SENTENCES[0], SENTENCES[3]]
            ids = [AutoTokenizer.from_pretrained(one)(texts)["input_ids"] for one in (folder, tmp_path / name)]
            assert ids[0] == ids[1]
        assert not Path(folder).exists()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_timed_step_has_the_share_of_a_process(tiny_folder, monkeypatch, processes):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    monkeypatch.setattr(papers, "PATIENCE", 0.0)
    sizes: list[int] = []
    to_device = papers.batch_to_device

    def watched(features: Any, device: Any) -> Any:
        sizes.append(len(features["input_ids"]))
        return to_device(features, device)

    monkeypatch.setattr(papers, "batch_to_device", watched)
    papers.timed_step({"path": str(tiny_folder)}, {"loss": "SimCSELoss", "batch_size": 6, "bf16": False})
    assert sizes == [6 // processes] * 2


def test_of_processes_that_train_together_the_first_prints_the_plan(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(papers, "timed_costs", lambda *_: {"simcse": papers.Cost(steps=2, step_seconds=3.0)})
    monkeypatch.setenv("WORLD_SIZE", "2")
    given = papers.for_device(named_study("papers"), None), [("simcse", 0)], [], tmp_path
    assert papers.print_plan(*given) == {"simcse": 6.0}
    assert f"On this device: 2 x CPU, float32. Encoder: {BERT}." in capsys.readouterr().out
    monkeypatch.setenv("RANK", "1")
    assert papers.print_plan(*given) == {}
    assert capsys.readouterr().out == ""


def test_the_plan_counts_steps_of_epochs_and_what_is_left(offline, tmp_path, capsys):
    study = named_study("papers")
    append("papers", "simcse-0", {"encoder": study["encoder"], "method": "simcse"}, root=tmp_path / "results")
    papers.run(study, options_in(tmp_path, only_plan=True, methods=["simcse", "dclr"], mini_batch_size=4))
    out = capsys.readouterr().out
    assert "| simcse | 2 | 15,625 |" in out
    assert "| dclr | 3 | 11,721 |" in out


REFUSED = {
    "mini-batches": ({"mini_batch_size": 0}, r"^--mini-batch-size must be at least 1, got 0\.$"),
    "a method": ({"methods": ["simsce"]}, r"^--methods must be of .*, got simsce\.$"),
    "a seed": ({"seeds": [9]}, r"^--seeds must be of 0, 1, got 9\.$"),
    "an encoder": ({"encoder": "no/such-encoder"}, r"^'no/such-encoder' must be in the cache of the hub"),
    "a folder": ({"encoder": "./none"}, r"^--encoder must be a folder or a model on the hub, got './none'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_one_line_before_anything_is_downloaded(name, offline, tmp_path, monkeypatch):
    given, message = REFUSED[name]
    monkeypatch.setattr(hub, "hf_hub_download", lambda *_, **__: pytest.fail("something was downloaded"))
    with pytest.raises(Mistake, match=message) as caught:
        papers.run(short_study(), options_in(tmp_path, **given))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "work").exists()


def test_an_encoder_without_a_tokenizer_is_refused(offline, cache, tmp_path):
    build_encoder(tmp_path / "bare", layers=1)
    for file in (tmp_path / "bare").glob("*"):
        if file.name in hub.TOKENIZERS:
            file.unlink()
    with pytest.raises(Mistake, match=r"^--encoder must be an encoder with a tokenizer, got .*bare' without"):
        papers.run(short_study(), options_in(tmp_path, encoder=str(tmp_path / "bare")))
    empty = cached(cache, "model", "some/bare")
    (empty / "config.json").write_text("{}")
    with pytest.raises(Mistake, match=r"^--encoder must be an encoder with a tokenizer, got 'some/bare' without"):
        papers.run(short_study(), options_in(tmp_path, encoder="some/bare"))


def test_records_of_another_encoder_are_refused_and_go_to_their_own_folder(offline, tmp_path, monkeypatch):
    append("papers", "simcse-0", {"encoder": {"path": "other"}, "method": "simcse"}, root=tmp_path / "results")
    with pytest.raises(Mistake, match=r"^--results must hold records of .* alone, got some of 'other'"):
        papers.run(short_study(), options_in(tmp_path))
    write_encoder(tmp_path / "mine")
    monkeypatch.setattr(papers, "RESULTS", tmp_path / "results")
    own = str(tmp_path / "mine")
    papers.run(short_study(), options_in(tmp_path, encoder=own, methods=["simcse"], seeds=[0]))
    (folder,) = (tmp_path / "results" / "encoders").iterdir()
    (record,) = records("papers", root=folder)
    assert record["encoder"]["path"] == own
    assert len(records("papers", root=tmp_path / "results")) == 1
    assert (tmp_path / "work" / folder.name / "papers" / "simcse-0" / "modules.json").is_file()


def test_data_of_a_folder_that_lacks_a_text_is_refused(offline, tmp_path):
    options = Options(tmp_path / "none", tmp_path / "work", tmp_path / "results", methods=["simcse"])
    with pytest.raises(Mistake, match=r"^--data must be a folder or 'hub', got "):
        papers.run(short_study(), options)
    (tmp_path / "none").mkdir()
    with pytest.raises(Mistake, match=r"^--data must hold wiki1m_for_simcse.txt, got "):
        papers.run(short_study(), options)
    study = short_study()
    study["methods"] |= {"mine": {"loss": "SimCSELoss", "corpus": "mine.txt"}, "sts": {"loss": "x", "corpus": "sts"}}
    (tmp_path / "none" / "mine.txt").touch()
    papers.check_data(study, [("mine", 0), ("sts", 0), ("base-cls", 0)], tmp_path / "none")
    with pytest.raises(Mistake, match=r"^--data must hold wiki1m_for_simcse.txt, got "):
        papers.check_data(study, [("mine", 0), ("simcse", 1)], tmp_path / "none")


def test_a_mistake_ends_the_command_with_one_line(tmp_path):
    words = ["run", "papers", "--methods", "simsce", "--results", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("python -m benchmarks: --methods must be of ")
    assert "Traceback" not in done.stderr
    with pytest.raises(Mistake, match=r"^--encoder must be given to the studies papers and papers_zh alone"):
        entrance.main(["run", "floors", "--data", str(tmp_path), "--encoder", "x"])
