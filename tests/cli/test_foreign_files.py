"""What no command wrote is never changed or removed, whether the command fails or succeeds."""

import os
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from tests.adaptation.texts import TEXTS
from tests.helpers import write
from tests.training.test_foreign_files import NAMES, contents, plant, raising

COMMANDS = {
    "train": ("train", "simcse", "ENC", "texts.txt", "-o", "out", "--steps", 1, "--batch-size", 4, "--quiet"),
    "adapt": ("adapt", "ENC", "texts.txt", "-o", "out", "--quiet"),
    "adapt-search": ("adapt-search", "ENC", "texts.txt", "-o", "out", "--quiet"),
}


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def texts(run):
    """A file of few texts, which is the same in each state of a folder that is compared."""
    return write(Path("texts.txt"), "\n".join(dict.fromkeys(TEXTS[:40])))


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_others_is_refused(run, command):
    plant(Path("out"))
    before = contents(Path())
    for options in ((), ("--overwrite",)):
        code, _, err = run(*COMMANDS[command], *options)
        assert (code, "out" in err) == (2, True), err
        assert contents(Path()) == before


@pytest.mark.slow
@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize("command", COMMANDS)
def test_files_beside_the_result_stay(run, command, monkeypatch):
    """A result is made, fails to be replaced at its encoding and at its last renames, and is replaced."""
    words = (*COMMANDS[command], "--overwrite")
    assert run(*words)[0] == 0
    plant(Path())
    mine = {path: path.read_text() for path in files_of(Path()) if path.read_bytes().startswith(b"mine: ")}
    assert len(mine) == len(NAMES)
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
