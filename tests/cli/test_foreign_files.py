"""What no command wrote is never changed or removed, whether the command fails or succeeds."""

import os
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from tests.adaptation.texts import TEXTS
from tests.helpers import write
from tests.training.test_foreign_files import NAMES, plant, raising
from tests.training.test_output import contents

COMMANDS = {
    "train": ("train", "simcse", "ENC", "texts.txt", "-o", "out", "--steps", 1, "--batch-size", 4, "--quiet"),
    "adapt": ("adapt", "ENC", "texts.txt", "-o", "out", "--quiet"),
    "adapt-search": ("adapt-search", "ENC", "texts.txt", "-o", "out", "--quiet"),
    "search": ("search", "ENC", "texts.txt", "a cat", "--index", "out", "--bm25-weight", 0.1, "--quiet"),
}
INDEX = [
    *("embeddings.safetensors", f"embeddings-{'0' * 32}.safetensors", f"embeddings-{'0' * 32}.safetensors.1.partial"),
    *("bm25/vocab.index.json", f"bm25-{'0' * 32}/vocab.index.json", f"ids-{'0' * 32}.json", "ids.json"),
    *("parts/notes.txt", f"parts/{'0' * 32}.safetensors", f"parts/{'0' * 32}.json", ".notes.swp", "notes.txt"),
]
"""What could be taken for an index's files."""


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def texts(run):
    """A file of few texts, which is the same in each state of a folder that is compared."""
    return write(Path("texts.txt"), "\n".join(dict.fromkeys(TEXTS[:40])))


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_others_is_refused(run, command):
    for name in (*NAMES, *INDEX):
        write(Path("out", name), f"mine: {name}")
    write(Path("out/hybrid_search.json"), "mine")
    before = contents(Path())
    for options in [(), *([("--overwrite",)] if command != "search" else [])]:
        code, _, err = run(*COMMANDS[command], *options)
        assert (code, "out" in err) == (2, True), err
        assert contents(Path()) == before
    if command == "search":
        Path("out/hybrid_search.json").unlink()
        assert run(*COMMANDS[command])[0] == 2
        assert contents(Path()) == {
            path: content for path, content in before.items() if path.name != "hybrid_search.json"
        }


@pytest.mark.slow
@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize("command", COMMANDS)
def test_files_beside_the_result_and_in_an_index_stay(run, command, monkeypatch):
    """A result is made, fails to be replaced at its encoding and at its last renames, and is replaced."""
    words = (*COMMANDS[command], *(["--overwrite"] if command != "search" else []))
    planted = Path("out") if command == "search" else Path()
    assert run(*words)[0] == 0
    if command == "search":
        for name in INDEX:
            write(planted / name, f"mine: {name}")
    else:
        plant(planted)
    mine = {path: path.read_text() for path in files_of(planted) if path.read_bytes().startswith(b"mine: ")}
    assert len(mine) == len(INDEX if command == "search" else NAMES)
    write(Path("texts.txt"), "\n".join(dict.fromkeys(TEXTS[20:80])))
    before = {path: path.read_bytes() for path in files_of(Path("out"))}
    for fault in ((SentenceTransformer, "forward"), (os, "rename"), (os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(*fault, raising(RuntimeError("a fault")))
            run(*words)
        assert {path: path.read_text() for path in mine} == mine
    assert run(*words)[0] == 0
    assert {path: path.read_text() for path in mine} == mine
    assert {path: path.read_bytes() for path in files_of(Path("out"))} != before
