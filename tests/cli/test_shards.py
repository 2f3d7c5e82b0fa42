"""``st-extras statistics`` and ``frequencies``: shards, their sum, files that stay, and mistakes."""

import json
from pathlib import Path

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_extras.modules import CorpusStatistics
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES

COMPUTE, COUNT = ("statistics", "compute", "ENC", "TEXT"), ("frequencies", "count", "ENC", "TEXT")


def test_statistics_of_shards_merged_are_one_pass(run):
    files = [f"{i}.safetensors" for i in range(3)]
    for i, file in enumerate(files):
        assert run(*COMPUTE, "-o", file, "--shard", f"{i}/3", "--batch-size", 1)[0] == 0
    code, out, err = run("statistics", "merge", *files, "-o", "all.safetensors", "--json")
    assert code == 0, err
    assert json.loads(out) == {"sentences": 8, "dimensions": 16, "output": "all.safetensors"}
    assert run(*COMPUTE, "-o", "whole.safetensors", "--batch-size", 1)[0] == 0
    merged, whole = (CorpusStatistics.load(f"{name}.safetensors") for name in ("all", "whole"))
    assert (merged.mean - whole.mean).abs().max() < 1e-9
    assert (merged.scatter - whole.scatter).abs().max() < 1e-9


def test_counts_of_shards_add_up_to_those_of_python(run, inputs):
    Dataset.from_dict({"sentence": SENTENCES[:5]}).to_parquet("parts/a.parquet")
    Dataset.from_dict({"sentence": SENTENCES[5:]}).to_parquet("parts/b.parquet")
    for shard in (0, 1):
        count = ("frequencies", "count", "ENC", "parts", "--shard", f"{shard}/3", "-o", f"{shard}.json", "--quiet")
        assert run(*count)[0] == 0
    count = ("frequencies", "count", "ENC", "parts", "--shard", "2/3", "--add", "0.json", "--add", "1.json")
    code, out, err = run(*count, "-o", "2.json", "--quiet", "--json")
    assert code == 0, err
    tokenizer = SentenceTransformer(str(inputs / "encoder")).tokenizer
    expected = FrequencyTable.count(SENTENCES, tokenizer)
    assert FrequencyTable.load("2.json", tokenizer).counts.equal(expected.counts)
    assert json.loads(out)["tokens"] == expected.total
    assert "types seen" in run("frequencies", "info", "2.json")[1]


@pytest.mark.parametrize("words", [COMPUTE, COUNT])
def test_a_file_is_replaced_only_if_asked(run, words):
    Path("mine").write_text("mine")
    code, _, err = run(*words, "-o", "mine")
    assert (code, "--output must be a new file" in err, Path("mine").read_text()) == (2, True, "mine"), err
    code, _, err = run(*words, "-o", "mine", "--overwrite")
    assert (code, Path("mine").read_bytes() == b"mine") == (0, False), err


def test_a_table_that_does_not_fit_its_file_is_refused_before_counting(run, monkeypatch):
    monkeypatch.setattr("st_extras.text.vocabularies.vocabulary", lambda tokenizer: ("a", "\n"))
    monkeypatch.setattr(FrequencyTable, "count", None)
    code, _, err = run("frequencies", "count", "ENC", "TEXT", "-o", "table.tsv")
    assert (code, "Error: table.tsv must not be" in err) == (2, True), err
