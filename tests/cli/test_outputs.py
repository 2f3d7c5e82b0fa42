"""No command writes over what it reads, or over what is no earlier output of its kind."""

import json
import os
from pathlib import Path

import pytest

from st_extras.cli import options
from tests.cli.commands import COMMANDS, parameters, types
from tests.cli.conftest import files, shown
from tests.helpers import write
from tests.training.test_foreign_files import NAMES

SCORE = ("evaluate", "ENC", "--retrieval", "docs.jsonl", "--judged", "judged.tsv", "--quiet", "--ranks")


@pytest.fixture
def data(run, monkeypatch):
    """Files and folders in the test's folder, links to them, and an encoder; none may be loaded."""
    write(Path("docs.jsonl"), "".join(json.dumps({"id": f"d{i}", "text": f"text {i}"}) + "\n" for i in range(3)))
    write(Path("judged.tsv"), "query\tid\tgrade\na cat\td1\t1\n")
    write(Path("ids.tsv"), "query\tid\tgrade\na cat\t1\t1\n")  # its cells could be ranks
    write(Path("notes.tsv"), "my diary\n")
    write(Path("beir/corpus.jsonl"), '{"_id": "d1", "text": "one"}\n')
    write(Path("beir/queries.jsonl"), '{"_id": "q1", "text": "a cat"}\n')
    write(Path("beir/qrels/test.tsv"), "query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    write(Path("texts/a.txt"), "a cat\n")
    write(Path("mine/enc/config.json"), "{}")
    write(Path("mine/queries.txt"), "a cat\n")
    Path("link.tsv").symlink_to("judged.tsv")
    Path("link").symlink_to("mine")
    Path("enc-link").symlink_to("mine/enc")
    os.link("judged.tsv", "hard.tsv")
    monkeypatch.setattr("st_extras.encoders.load_encoder", lambda path, **_: pytest.fail(f"loaded {path}"))


INPUTS = {
    (*SCORE, "judged.tsv"): "--judged",
    (*SCORE, "docs.jsonl"): "--retrieval",
    (*SCORE, "texts/../judged.tsv"): "--judged",
    (*SCORE, "link.tsv"): "--judged",
    (*SCORE, "hard.tsv"): "--judged",
    ("search", "ENC", "docs.jsonl", "cat", "--index", "docs.jsonl"): "DOCUMENTS",
    ("search", "ENC", "texts", "cat", "--index", "./texts/"): "DOCUMENTS",
    ("search", "mine/enc", "docs.jsonl", "cat", "--index", "link/enc"): "ENCODER",
    ("search", "ENC", "texts/*.txt", "cat", "--index", "texts"): "DOCUMENTS",
    ("search", "ENC", "texts/*.txt", "cat", "--index", "texts/a.txt"): "DOCUMENTS",
    ("search", "ENC", "docs.jsonl", "--queries", "mine/queries.txt", "--index", "mine"): "--queries",
    ("adapt", "mine/enc", "texts", "-o", "mine/enc", "--overwrite"): "ENCODER",
    ("adapt", "mine/enc", "texts", "-o", "link", "--overwrite"): "ENCODER",
    ("adapt", "enc-link", "texts", "-o", "mine", "--overwrite"): "ENCODER",
    ("adapt", "ENC", "docs.jsonl", "texts", "-o", "texts", "--overwrite"): "TEXT",
    ("adapt", "ENC", "texts/**", "-o", "texts", "--overwrite"): "TEXT",
    ("adapt", "ENC", "texts", "-o", "notes.tsv", "--labeled", "notes.tsv"): "--labeled",
    ("adapt", "ENC", "texts", "-o", "beir", "--dev", "beir", "--overwrite"): "--dev",
    ("adapt-search", "ENC", "docs.jsonl", "-o", "beir", "--retrieval", "beir", "--overwrite"): "--retrieval",
    ("adapt-search", "ENC", "beir", "-o", "beir/qrels/..", "--overwrite"): "DOCUMENTS",
    ("train", "simcse", "mine/enc", "texts", "-o", "mine", "--overwrite"): "ENCODER",
}
"""Commands with an output that they read, and the argument that names it as an input."""
OTHERS = ("ids.tsv", "notes.tsv", "beir/corpus.jsonl", "beir/qrels/test.tsv", "texts", "nowhere/ranks.tsv", os.devnull)
"""What is not to be replaced by a table of ranks."""


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("words", INPUTS, ids=" ".join)
def test_an_output_that_is_an_input_is_refused_at_once(run, words):
    before = files(Path.cwd())
    code, _, err = run(*words)
    (message,) = shown(err)
    assert (code, f"must not replace what {INPUTS[words]} reads" in message) == (2, True), err
    assert files(Path.cwd()) == before


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("option", ["--ranks", "--index"])
def test_ranks_and_an_index_replace_nothing_of_another_kind(run, option, other):
    before = files(Path.cwd())
    code, _, err = run(*(SCORE if option == "--ranks" else ("search", "ENC", "texts", "cat", "--index")), other)
    (message,) = shown(err)
    refused = message.startswith((f"Error: {option} must be a new file", f"Error: {option} must be a file in"))
    assert (code, refused or other == "texts", other in message) == (2, True, True), err
    assert files(Path.cwd()) == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("command", ["train", "adapt", "adapt-search", "search"])
def test_a_folder_of_others_is_refused(run, command, overwrite):
    for name in NAMES:
        write(Path("out", name), f"mine: {name}")
    before = files(Path.cwd())
    words = COMMANDS[command] if command != "search" else (*COMMANDS[command], "--index", "out")
    code, _, err = run(*words, *(["--overwrite"] if overwrite and command != "search" else []))
    assert (code, "out" in err, files(Path.cwd())) == (2, True, before), err


def test_every_argument_is_read_or_written_or_no_file():
    """So that the check knows each new option."""
    no_files = {
        *("query", "column", "query_column", "text_column", "label_column", "language", "prompt", "query_prompt"),
        *("document_prompt", "split", "sets", "dev_set", "strength", "objective", "set_", "trainer", "baseline"),
        "where",
    }
    for name in COMMANDS:
        hints = types(name)
        for one in parameters(name):
            if Path in hints[one.name]:
                assert one.name in options.WRITTEN, (name, one.name)
            elif hints[one.name] & {str, list, list[str]} and one.name not in no_files:
                assert one.name in options.READ, (name, one.name)
