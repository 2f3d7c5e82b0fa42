"""``st-extras statistics`` and ``frequencies``: shards, their sum, files that stay, and mistakes."""

import errno
import json
from pathlib import Path

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_extras.modules import CorpusStatistics
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES, build_encoder


def test_statistics_of_shards_merged_are_one_pass(run):
    files = [f"{i}.safetensors" for i in range(4)]
    for i, file in enumerate(files):
        words = ("-o", file, "--shard", f"{i}/4", "--batch-size", 1)
        code, out, err = run("statistics", "compute", "ENC", "TEXT", *words)
        assert (code, out) == (0, f"Statistics of 2 sentences, saved to {file}\n"), err
    code, out, err = run("statistics", "merge", *files, "-o", "all.safetensors", "--json")
    assert code == 0, err
    assert json.loads(out) == {"sentences": 8, "dimensions": 16, "output": "all.safetensors"}
    assert run("statistics", "compute", "ENC", "TEXT", "-o", "whole.safetensors", "--batch-size", 1)[0] == 0
    merged, whole = (CorpusStatistics.load(f"{name}.safetensors") for name in ("all", "whole"))
    assert (merged.mean - whole.mean).abs().max() < 1e-9
    assert (merged.scatter - whole.scatter).abs().max() < 1e-9


def test_statistics_of_another_prompt_or_encoder_do_not_merge(run, tmp_path):
    build_encoder(tmp_path / "other", seed=1)
    for name, encoder, more in (
        ("plain", "ENC", ()), ("prompted", "ENC", ("--prompt", "the dog ")), ("other", tmp_path / "other", ()),
    ):  # fmt: skip
        assert run("statistics", "compute", encoder, "TEXT", "-o", f"{name}.safetensors", *more)[0] == 0
    for name in ("prompted", "other"):
        code, _, err = run("statistics", "merge", "plain.safetensors", f"{name}.safetensors", "-o", "all.safetensors")
        assert (code, f"{name}.safetensors does not fit plain.safetensors: " in err) == (2, True), err
    assert not Path("all.safetensors").exists()


@pytest.fixture
def table(run):
    assert run("frequencies", "count", "ENC", "TEXT", "-o", "table.json", "--quiet")[0] == 0
    return "table.json"


def test_counts_equal_those_of_python(table, inputs):
    tokenizer = SentenceTransformer(str(inputs / "encoder")).tokenizer
    assert FrequencyTable.load(table, tokenizer).counts.equal(FrequencyTable.count(SENTENCES, tokenizer).counts)


def test_counts_of_shards_add_up(run, table):
    Dataset.from_dict({"sentence": SENTENCES[:5]}).to_parquet("parts/a.parquet")
    Dataset.from_dict({"sentence": SENTENCES[5:]}).to_parquet("parts/b.parquet")
    for shard in range(3):
        added = () if shard == 0 else ("--add", f"{shard - 1}.json")
        count = ("frequencies", "count", "ENC", "parts", "--shard", f"{shard}/3", "-o", f"{shard}.json", "--quiet")
        assert run(*count, *added)[0] == 0
    assert Path("2.json").read_bytes() == Path(table).read_bytes()


def test_a_table_is_described(run, table):
    code, out, _ = run("frequencies", "count", "ENC", "TEXT", "-o", "twice.tsv", "--add", table, "--json")
    twice = json.loads(out)
    code, out, _ = run("frequencies", "info", table, "--encoder", "ENC", "--json")
    once = json.loads(out)
    assert (code, twice["tokens"], once["path"]) == (0, 2 * once["tokens"], table)
    code, out, _ = run("frequencies", "info", "twice.tsv")
    assert (code, [text in out for text in ("twice.tsv", "types seen", "0.50", "%")]) == (0, [True] * 4)
    Path("one.json").write_text('{"cat": 3}')
    assert json.loads(run("frequencies", "info", "one.json", "--json")[1])["highest low-frequency count"] == 0


COMPUTE, MERGE = ("statistics", "compute", "ENC", "TEXT"), ("statistics", "merge", "s.safetensors")
COUNT = ("frequencies", "count", "ENC", "TEXT")
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("words", [COMPUTE, MERGE, COUNT])
def test_a_file_is_replaced_only_if_asked(run, words):
    assert run(*COMPUTE, "-o", "s.safetensors")[0] == 0
    Path("mine").write_text("mine")
    code, _, err = run(*words, "-o", "mine")
    assert (code, "--output must be a new file, got 'mine'" in err, Path("mine").read_text()) == (2, True, "mine"), err
    code, _, err = run(*words, "-o", "mine", "--overwrite")
    assert (code, Path("mine").read_bytes() == b"mine") == (0, False), err


@pytest.mark.parametrize(
    ("words", "fails", "error", "code", "message"),
    [
        (COMPUTE, "st_extras.modules.CorpusStatistics.update", KeyboardInterrupt(), 130, "Interrupted\n"),
        (COMPUTE, "os.fsync", FULL, 1, "'f': No space left on device: free space there and do the same again.\n"),
        (COUNT, "os.fsync", FULL, 1, "'f': No space left on device: free space there and do the same again.\n"),
    ],
)
def test_what_fails_leaves_nothing(run, monkeypatch, words, fails, error, code, message):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(fails, fail)
    found, _, err = run(*words, "-o", "f", "--quiet")
    assert (found, err.endswith(f"Error: {message}")) == (code, True), err
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*COMPUTE, "-o", "no/out"), "--output must be a file in an existing folder, got 'no/out'"),
        ((*COMPUTE, "-o", "FOLDER"), "--output must be a file in an existing folder"),
        ((*COMPUTE[:3], "EMPTY", "-o", "out"), r"empty\.txt' holds no sentences"),
        ((*COUNT[:3], "none.txt", "-o", "out"), r"none\.txt"),
        ((*COMPUTE, "-o", "out", "--shard", "4/4"), "shard.* between 0 and 3, got 4"),
        ((*COMPUTE, "-o", "out", "--shard", "9/20"), "at least one text, got none"),
        (("frequencies", "count", "FOLDER", "TEXT", "-o", "out"), "ENCODER must have a tokenizer"),
        (("statistics", "merge", "none", "-o", "out"), "'none' must be a file of CorpusStatistics.save"),
        (("statistics", "merge", "TEXT", "-o", "out"), r"text\.txt' must be .*, got a damaged file"),
        (("statistics", "merge", "TEXT", "TEXT", "-o", "out"), "FILES must each be given once"),
        ((*COMPUTE, "-o", "out", "--column", "a"), r"--column is not for \.txt files"),
        ((*COUNT, "-o", "out", "--add", "none.json"), r"none\.json"),
        ((*COUNT, "wordfreq:en", "-o", "out"), "wordfreq must be the only text"),
        (("frequencies", "count", "ENC", "wordfreq:en", "-o", "out", "--shard", "0/2"), "--shard needs text to read"),
        (("frequencies", "info", "none.json"), r"none\.json"),
        (("frequencies", "info", "TSV", "--encoder", "ENC"), r"stsb_dev\.tsv"),
    ],
)
def test_mistakes(assert_refused, arguments, message):
    assert_refused(arguments, message)


def test_a_table_that_does_not_fit_its_file_is_refused_before_counting(run, monkeypatch):
    monkeypatch.setattr("st_extras.text.vocabularies.vocabulary", lambda tokenizer: ("a", "\n"))
    monkeypatch.setattr(FrequencyTable, "count", None)
    code, _, err = run("frequencies", "count", "ENC", "TEXT", "-o", "table.tsv")
    assert (code, "Error: table.tsv must not be" in err) == (2, True), err
