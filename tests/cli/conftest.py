"""Fixtures that run ``st-extras`` in this process, in a folder of their own, on tiny inputs."""

import io
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import pytest

from st_extras.cli import app
from st_extras.evaluation import SEVEN_STS
from st_extras.samples import graded_pairs, write_samples
from tests.fixtures import SENTENCES, build_encoder

Run = Callable[..., tuple[int, str, str]]
"""``run("train", ...)`` -> exit code, stdout, stderr."""


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """A folder with an encoder, a text file and the STS sets."""
    folder = tmp_path_factory.mktemp("inputs")
    build_encoder(folder / "encoder")
    (folder / "text.txt").write_text("\n".join(SENTENCES) + "\n\n")
    for shift, name in enumerate([*SEVEN_STS, "stsb_dev"], start=1):
        rows = [
            f"{'a' if i < 4 else 'b'}\t{(i * 3 + shift) % 6}\t{sentence}\t{SENTENCES[(i + 1 + shift % 3) % 8]}\n"
            for i, sentence in enumerate(SENTENCES)
        ]
        (folder / f"{name}.tsv").write_text("subset\tscore\tsentence1\tsentence2\n" + "".join(rows))
    return folder


@pytest.fixture(scope="session")
def run_in(inputs):
    """``run_in(folder, "train", ...)``: run in that folder, with the words ENC, TEXT and STS filled in."""
    places = {"ENC": inputs / "encoder", "TEXT": inputs / "text.txt", "STS": inputs}

    few = tuple(column[::10] for column in graded_pairs())

    def call(folder: Path, *arguments: object, columns: int = 200) -> tuple[int, str, str]:
        words = [str(places.get(str(word), word)) for word in arguments]
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(folder)
            patch.setattr(app, "_quiet_libraries", lambda: None)  # it would silence the tests that follow
            patch.setenv("COLUMNS", str(columns))
            patch.setattr("st_extras.samples.graded_pairs", lambda: few)  # what train scores before it begins
            patch.setattr(sys, "argv", ["st-extras", *words])
            with pytest.raises(SystemExit) as exit_:
                app.main()
        return int(exit_.value.code or 0), out.getvalue(), err.getvalue()

    return call


@pytest.fixture
def run(run_in, tmp_path, monkeypatch):
    """``run("train", ...)`` in a new empty folder, which is also the test's working directory."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return partial(run_in, tmp_path / "work")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def shown(err: str) -> list[str]:
    """The lines on stderr, but for a bar that main() hides."""
    return [line for line in err.splitlines() if line and "Loading weights" not in line]


@pytest.fixture(scope="session")
def places(inputs, tmp_path_factory):
    """What words stand for: FOLDER for a folder with a file of somebody, TSV for a table, SEARCH for a collection."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "mine").write_text("mine")
    write_samples(folder.with_name("samples"))
    return {"FOLDER": folder, "TSV": inputs / "stsb_dev.tsv", "SEARCH": folder.with_name("samples") / "search"}


@pytest.fixture
def assert_refused(run, places):
    """Check that a command ends in one line on stderr that matches a pattern, and neither makes nor changes a file."""

    def check(arguments: tuple[object, ...], message: str) -> None:
        code, _, err = run(*(places.get(str(word), word) for word in arguments))
        assert (code, len(shown(err))) == (2, 1), err
        assert shown(err)[0].startswith("Error: ")
        assert re.search(message, shown(err)[0]), err
        assert list(Path.cwd().iterdir()) == []
        assert files(places["FOLDER"]) == {"mine": b"mine"}

    return check
