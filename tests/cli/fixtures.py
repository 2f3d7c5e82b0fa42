"""Fixtures of the command line's tests; conftest.py imports them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from st_extras import cli
from st_extras.evaluation import SEVEN_STS

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder, a text file and the STS sets."""
    from tests.conftest import SENTENCES, build_encoder

    folder = tmp_path_factory.mktemp("inputs")
    build_encoder(folder / "encoder")
    (folder / "text.txt").write_text("\n".join(SENTENCES) + "\n\n")
    for shift, name in enumerate([*SEVEN_STS, "stsb_dev"], start=1):
        rows = [
            f"{'a' if i < 4 else 'b'}\t{(i * 3 + shift) % 6}\t{one}\t{SENTENCES[(i + 1 + shift % 3) % 8]}\n"
            for i, one in enumerate(SENTENCES)
        ]
        (folder / f"{name}.tsv").write_text("subset\tscore\tsentence1\tsentence2\n" + "".join(rows))
    return folder


@pytest.fixture
def run(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("train", ...)`` -> exit code, stdout, stderr; in an empty folder, with ENC, TEXT and STS filled in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(cli, "_quiet_libraries", lambda: None)  # it would silence the tests that follow
    monkeypatch.setenv("COLUMNS", "200")
    places = {"ENC": inputs / "encoder", "TEXT": inputs / "text.txt", "STS": inputs}

    def call(*arguments: object) -> tuple[int, str, str]:
        words = [str(places.get(str(word), word)) for word in arguments]
        monkeypatch.setattr(sys, "argv", ["st-extras", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        return int(exit_.value.code or 0), out, err

    return call
