"""What goes wrong ends in one line on stderr: exit code 2 for a wrong request, 1 for a run that failed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer

import st_extras
from st_extras.cli import app
from st_extras.text.frequency import FrequencyTable
from tests.cli.conftest import Run, files

ROOT = Path(st_extras.__file__).parents[1]


def _decode_error() -> UnicodeDecodeError:
    return UnicodeDecodeError("utf8", b"\xff", 0, 1, "invalid start byte")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("steps must be\nsmall, got 3."), 2, "steps must be small, got 3."),
        (ImportError("needs the package x."), 2, "needs the package x."),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x/y"), 2, "'x/y': No such file or directory."),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, "'x': Permission denied."),
        (OSError("nobody/nothing is not a model."), 1, "nobody/nothing is not a model."),
        (OverflowError("int too large to convert to float"), 2, "OverflowError: int too large to convert to float."),
        (_decode_error(), 2, "UnicodeDecodeError: 'utf8' codec can't decode byte 0xff in position 0: invalid start"),
        (json.JSONDecodeError("Expecting value", "x", 0), 2, "JSONDecodeError: Expecting value"),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 1, "'x': No space left on device."),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device."),
        (OSError(errno.EFBIG, "File too large"), 1, "File too large."),
        (SafetensorError("I/O error: File too large (os error 27)"), 1, "SafetensorError: I/O error: File too large"),
        (RuntimeError("CUDA out of memory.\nTried to"), 1, "RuntimeError: CUDA out of memory. Tried to."),
        (FloatingPointError("Training diverged at step 3."), 1, "Training diverged at step 3."),
        (MemoryError(), 1, "MemoryError."),
        (KeyboardInterrupt(), 130, "Interrupted"),
    ],
)
def test_every_error_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("st_extras.training.demonstrate", fail)
    found, out, err = run("demo", "--json")
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"Error: {message}")


@pytest.mark.parametrize(("words", "goes_on"), [(("demo",), False), (("train", "simcse"), True), (("adapt",), True)])
def test_an_interrupted_command_names_resume_if_it_has_it(words: tuple[str, ...], goes_on: bool) -> None:
    assert ("--resume" in app._options([*words, "encoder", "--steps", "3"])) == goes_on


def test_a_fault_of_the_program_keeps_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("st_extras.training.demonstrate", lambda *_, **__: {}["missing"])
    with pytest.raises(KeyError):
        run("demo", "--json")


def test_what_cannot_be_encoded_is_escaped(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A report in a terminal that knows ASCII only must not fail after the work was done."""
    command = "from st_extras.cli.console import *; escape_output(); print_line('caf\\xe9 \\udcff')"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "caf\\xe9 \\udcff\n"), done.stderr


class TestBrokenFiles:
    @pytest.fixture(scope="class")
    @staticmethod
    def fitted(run_in: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("fitted")
        assert run_in(folder, "repal", "fit", "ENC", "TEXT", "-o", "fitted", "--redundancy", "pooled")[0] == 0
        return folder / "fitted"

    @pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[", b"[]", b'{"a": 1}', b"\x00" * 100])
    @pytest.mark.parametrize("name", ["modules.json", "config.json", "model.safetensors", "2_*/*.safetensors"])
    @pytest.mark.parametrize("command", ["evaluate", "repal evaluate"])
    def test_a_broken_encoder_is_named(self, run: Run, fitted: Path, command: str, name: str, content: bytes) -> None:
        shutil.copytree(fitted, "broken")
        broken = next(Path("broken").glob(name))
        broken.write_bytes(content)
        code, _, err = run(*command.split(), "broken", "--sts", "STS")
        lines = [line for line in err.splitlines() if line and "Loading weights" not in line]
        assert (code, len(lines)) == (2, 1), err
        assert "'broken" in lines[0]

    @pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{", b"[]", b'{"a": {}}', b"\x00" * 100])
    def test_a_broken_table_is_named(self, run: Run, content: bytes) -> None:
        Path("table.json").write_bytes(content)
        code, _, err = run("frequencies", "info", "table.json")
        assert (code, err.count("\n"), "table.json" in err) == (2, 1, True), err


class TestFailedRuns:
    COMMANDS = (
        ("repal", "fit", "ENC", "TEXT", "-o", "deep/out", "--redundancy", "pooled"),
        ("whiten", "fit", "ENC", "TEXT", "-o", "deep/out"),
        ("whiten", "fit", "ENC", "TEXT", "-o", "deep/out", "--stock"),
    )

    @pytest.mark.parametrize(
        "error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("os error 28")]
    )
    @pytest.mark.parametrize("command", COMMANDS)
    def test_a_full_disk_leaves_nothing(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], error: Exception
    ) -> None:
        def half(self: SentenceTransformer, path: str, *_: Any, **__: Any) -> None:
            Path(path).mkdir(parents=True)
            (Path(path) / "modules.json").write_text("[")
            raise error

        monkeypatch.setattr(SentenceTransformer, "save", half)
        code, _, err = run(*command)
        lines = [line for line in err.splitlines() if line and "Loading weights" not in line]
        assert (code, len(lines), "Writing to 'deep/out' failed" in lines[-1]) == (1, 1, True), err
        assert list(Path.cwd().iterdir()) == []
        monkeypatch.undo()

    def test_a_training_that_diverges(self, run: Run) -> None:
        words = ("--steps", 4, "--eval-steps", 2, "--batch-size", 4, "--lr", "1e30", "--quiet", "--json")
        code, out, err = run("train", "simcse", "ENC", "TEXT", "-o", "out", *words)
        lines = [line for line in err.splitlines() if line.startswith("Error: ")]
        assert (code, out, len(lines), "diverged" in lines[0]) == (1, "", 1, True), err
        assert list(Path.cwd().iterdir()) == []

    def test_a_full_disk_keeps_the_old_result(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        fit = ("whiten", "fit", "ENC", "TEXT", "-o", "out", "--overwrite")
        assert run(*fit)[0] == 0
        before = files(Path("out"))
        monkeypatch.setattr(SentenceTransformer, "save", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "full")))
        assert run(*fit, "--dimensions", 2)[0] == 1
        assert files(Path("out")) == before

    def test_a_table_that_cannot_be_written(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("os.fsync", fail)
        code, _, err = run("frequencies", "count", "ENC", "TEXT", "-o", "t.json", "--quiet")
        assert (code, err) == (1, "Error: 't.json': No space left on device.\n")
        assert list(Path.cwd().iterdir()) == []


@pytest.mark.slow
class TestRealProcess:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Path:
        FrequencyTable(["a", "b"], [1, 2]).save(tmp_path / "table.json")
        return tmp_path / "table.json"

    def start(self, table: Path, **options: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "st_extras.cli", "frequencies", "info", str(table), *options.pop("more", [])]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, **options)

    @pytest.mark.parametrize("more", [[], ["--json"]])
    def test_a_broken_pipe_is_quiet(self, table: Path, more: list[str]) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with self.start(table, stdout=writer, more=more) as process:
            os.close(writer)
            assert process.communicate()[1] == b""
            assert process.returncode == 1

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_a_full_standard_output_is_one_line(self, table: Path) -> None:
        with open("/dev/full", "wb") as full, self.start(table, stdout=full, more=["--json"]) as process:
            assert process.communicate()[1] == b"Error: No space left on device.\n"
            assert process.returncode == 1
