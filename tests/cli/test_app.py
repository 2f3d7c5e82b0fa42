"""The command line as a whole: completion, and one line and an exit code for everything that goes wrong."""

import errno
import functools
import io
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer

import st_extras
from st_extras.cli import app, console
from st_extras.losses import SimCSELoss
from st_extras.training import DivergenceError
from tests.cli.conftest import files, shown
from tests.helpers import write

HEAVY = ("torch", "transformers", "sentence_transformers", "datasets", "huggingface_hub", "scipy", "nltk", "sklearn")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(st_extras.__file__).parents[1])}
COMPLETING = {"_ST_EXTRAS_COMPLETE": "complete_bash", "COMP_CWORD": "2", "COMP_WORDS": "st-extras evaluate --"}


def test_it_completes_before_anything_heavy_is_imported():
    code = "import sys; sys.argv = ['st-extras']; from st_extras.cli.app import main\ntry:\n    main()\nfinally:\n    "
    code += f"print(sorted({{*{HEAVY!r}}} & {{*sys.modules}}), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT | COMPLETING, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "--labeled" in done.stdout, done.stderr) == (0, True, "[]\n")


WRONG = {
    "adapt ENC bad.csv -o out": "bad.csv has no column",
    "adapt ENC good.csv -o out --column nope": "no column nope",
    "adapt ENC good.csv -o out --labeled bad.csv": "bad.csv has no column",
    "adapt ENC good.csv -o out --dev bad.csv": "bad.csv has no column",
    "adapt ENC none.txt -o out": "none.txt",
    "adapt-search ENC bad.csv -o out": "bad.csv has no column",
    "adapt-search ENC good.csv -o out --queries bad.csv": "bad.csv has no column",
    "adapt-search ENC good.csv -o out --retrieval .": "corpus file",
    "search ENC bad.csv cat": "bad.csv has no column",
    "search ENC good.csv --queries bad.csv": "bad.csv has no column",
    "search ENC good.csv cat --language en": "language",
    "evaluate ENC --labeled bad.csv": "bad.csv has no column",
    "evaluate ENC --labeled good.csv --label-column nope": "no column nope",
    "evaluate ENC --retrieval good.csv --judged bad.csv": "bad.csv has no column",
    "evaluate ENC --retrieval .": "corpus file",
    "evaluate ENC --sts bad.csv": "bad.csv has no column",
    "evaluate ENC --text bad.csv": "bad.csv has no column",
    "evaluate ENC --text good.csv --column nope": "no column nope",
    "train simcse ENC bad.csv -o out": "bad.csv has no column",
    "train simcse ENC good.csv -o out --column nope": "no column nope",
    "train simcse ENC good.csv -o out --dev bad.csv": "bad.csv has no column",
    "adapt ENC good.csv -o mine": "mine",
    "train simcse ENC good.csv -o mine": "mine",
    "search ENC good.csv cat --index mine": "mine",
    "evaluate ENC --retrieval good.csv --judged bad.csv --ranks mine": "mine",
}
"""Commands that are wrong, and what the message names."""
WITHOUT_TORCH = """
import json, shlex, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise RuntimeError("torch is imported")

sys.meta_path.insert(0, NoTorch())
from st_extras.cli.app import main
for line in json.loads(sys.argv[1]):
    sys.argv = ["st-extras", *shlex.split(line)]
    try:
        main()
    except SystemExit as end:
        assert end.code == 2, line
"""


@pytest.mark.parametrize("command", ["adapt", "adapt-search", "evaluate", "search", "train"])
def test_what_is_wrong_with_a_file_is_found_without_torch(inputs, tmp_path, command):
    """Its import takes seconds, on a busy machine half a minute."""
    wrong = {line: named for line, named in WRONG.items() if line.startswith(f"{command} ")}
    write(tmp_path / "bad.csv", "a,b\n1,2\n")
    write(tmp_path / "good.csv", "id,label,text\n1,a,b\n2,c,d\n")
    write(tmp_path / "mine/diary", "mine")
    lines = json.dumps([line.replace("ENC", str(inputs / "encoder")) for line in wrong])
    command = [sys.executable, "-c", WITHOUT_TORCH, lines]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=False)
    messages = done.stderr.splitlines()
    assert (done.returncode, len(messages)) == (0, len(wrong)), done.stderr
    assert [got for named, got in zip(wrong.values(), messages, strict=True) if named not in got] == []


QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}


@pytest.mark.parametrize(
    "asked", [{}, {"HF_HUB_DISABLE_PROGRESS_BARS": "0"}, {"TRANSFORMERS_VERBOSITY": "info"}, {"RANK": "1"}]
)
def test_other_libraries_are_quiet_unless_the_user_asks(monkeypatch, asked):
    """And of several processes, those after the first do not warn."""
    levels = {}
    loggers = {"sentence_transformers": logging.getLogger("sentence_transformers"), "last": logging.lastResort}
    for name, logger in loggers.items():
        monkeypatch.setattr(logger, "setLevel", functools.partial(levels.__setitem__, name))
    monkeypatch.setattr(os, "environ", {**asked})
    app._quiet_libraries()
    assert os.environ == QUIET | asked
    last = {"last": logging.ERROR} if "RANK" in asked else {}
    assert levels == {"sentence_transformers": logging.WARNING, **last}


def test_the_list_of_commands_cuts_no_summary(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "..." not in out.partition("Commands")[2].replace("encoder...", "")


def test_the_list_of_commands_begins_with_what_most_users_want(run):
    _, out, _ = run("--help")
    named = re.findall(r"^│ ([\w-]+) ", out.partition("Commands")[2], re.MULTILINE)
    assert named == ["demo", "adapt", "adapt-search", "search", "evaluate", "train"]


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("adapt", "ENC", "seed=1.txt", "-o", "out"), "'seed=1.txt'"),
        (("adapt", "ENC", "text must be", "TEXT", "resume=True.txt", "-o", "out"), "'resume=True.txt'"),
        (("evaluate", "seed=1/overwrite=True", "--sts", "STS"), "'seed=1/overwrite=True'"),
        (("adapt", "ENC", "rows.jsonl", "-o", "out"), "['seed=3', 'model is 1 and was 2']"),
        (("search", "ENC", "TEXT", "a", "--queries", "top_k=3.txt"), "--queries does not go with QUERY"),
        (("search", "ENC", "TEXT", "--queries", "top_k=3.txt"), "'top_k=3.txt'"),
        (("adapt-search", "ENC", "TEXT", "--retrieval", "max_line=2", "-o", "out"), "'max_line=2'"),
    ],
)
def test_what_the_user_wrote_is_shown_as_it_is(run, words, said):
    """A path, a row or a query may look like an argument."""
    Path("rows.jsonl").write_text('["seed=3", "model is 1 and was 2"]\n')
    code, _, err = run(*words)
    assert (code, said in shown(err)[-1]) == (2, True), err


def test_log_messages_are_printed_as_they_are(caplog):
    logging.getLogger("st_extras.losses").warning("Set %s.", "dropout=0.1")
    assert caplog.messages == ["Set dropout=0.1."]


@pytest.mark.parametrize("option", ["--query-prompt", "--document-prompt", ""])
@pytest.mark.parametrize("wrong", ["caf\udce9", "\ud800"])
def test_a_query_or_prompt_that_is_no_text(assert_refused, option, wrong):
    words = ("search", "ENC", "TEXT", *([option, wrong, "a query"] if option else ["a query", wrong]))
    assert_refused(words, f"^Error: {option or 'QUERY'} must be valid text in UTF-8, got '.*ud")


@pytest.mark.parametrize(
    ("piped", "code", "seen"),
    [
        (b"\xef\xbb\xbfa cat\r\n\n the dog", 0, ["a cat", "the dog"]),
        ("caf\xe9\n".encode(), 0, ["caf\xe9"]),
        ("caf\xe9\n".encode("latin1"), 2, []),
        ("a cat".encode("utf-16"), 2, []),
        (b"", 0, []),
    ],
)
def test_queries_on_stdin(run, monkeypatch, piped, code, seen):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
    found, out, err = run("search", "ENC", "TEXT", "--json", "--bm25-weight", "0.1", "--quiet")
    assert (found, [json.loads(line)["query"] for line in out.splitlines()]) == (code, seen), err
    assert code == 0 or shown(err)[-1].startswith("Error: stdin must be valid text in UTF-8, got ")


def test_a_byte_order_mark_is_no_part_of_a_query(run):
    code, out, err = run("search", "ENC", "TEXT", "\ufeffa cat", "--json", "--bm25-weight", "0.1")
    assert (code, json.loads(out)["searches"][0]["query"]) == (0, "a cat"), err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            ValueError("steps must be\nsmall, got 3."),
            1,
            "st-extras demo failed: ValueError: steps must be small, got 3;",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x/y"), 2, "'x/y': No such file or directory."),
        (UnicodeDecodeError("utf8", b"\xff", 0, 1, "x"), 1, "st-extras demo failed: UnicodeDecodeError: 'utf8' codec"),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 1, "'x': No space left on device."),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device."),
        (OSError("the disk is full"), 1, "OSError: the disk is full."),
        (
            SafetensorError("I/O error: File too large"),
            1,
            "st-extras demo failed: SafetensorError: I/O error: File",
        ),
        (
            RuntimeError("CUDA out of memory.\nTried to"),
            1,
            "st-extras demo failed: RuntimeError: CUDA out of memory.",
        ),
        (MemoryError(), 1, "st-extras demo failed: MemoryError; ST_EXTRAS_DEBUG=1 shows the traceback."),
        (KeyboardInterrupt(), 130, "Interrupted."),
    ],
)
def test_every_error_is_one_line(run, monkeypatch, error, code, message):
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("st_extras.samples.write_samples", fail)
    found, out, err = run("demo", "--json")
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"Error: {message}")


def test_a_wrong_path_is_a_wrong_request_and_a_failing_disk_a_failed_run():
    """The exit codes of errors of the system, of a missing package and of wrong values."""
    wrong = ("ENOENT", "EEXIST", "EACCES", "EISDIR", "ENOTDIR", "ENAMETOOLONG", "ELOOP", "EINVAL", "EROFS")
    for code, names in ((2, wrong), (1, ("ENOSPC", "EIO", "EMFILE"))):
        assert {app.exit_code(OSError(getattr(errno, name), "said")) for name in names} == {code}
    errors = {ValueError: 2, ImportError: 2, ModuleNotFoundError: 2, RuntimeError: 1, KeyError: 1, DivergenceError: 1}
    assert {kind: app.exit_code(kind("said")) for kind in errors} == errors


@pytest.mark.parametrize("step", [0, 1, 3])
def test_an_interrupted_training_names_resume_if_it_has_saved_anything(run, monkeypatch, caplog, step):
    """It had a checkpoint at step 2; else nothing is left of it, and the same command begins again."""
    forward, calls = SimCSELoss.forward, []

    def interrupted(self: SimCSELoss, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > step:
            raise KeyboardInterrupt
        return forward(self, *arguments)

    monkeypatch.setattr(SimCSELoss, "forward", interrupted)
    words = ("--steps", 4, "--eval-steps", 2, "--batch-size", 4, "--quiet")
    code, _, err = run("train", "simcse", "ENC", "TEXT", "-o", "out", *words)
    advised = [message for message in caplog.messages if "--resume" in message]
    assert (code, shown(err)[-1], len(advised), "--overwrite" in err + caplog.text) == (
        130,
        "Error: Interrupted.",
        step == 3,
        False,
    )
    assert Path("out.checkpoints").exists() == (step == 3)


@pytest.mark.parametrize("kind", [KeyError, EOFError, AttributeError, ZeroDivisionError, RecursionError])
def test_any_other_error_is_one_line_with_its_type_and_what_was_done(run, monkeypatch, kind):
    """Click turns EOFError into "Abort", without a word of what happened."""

    def fails(*_: object, **__: object) -> None:
        raise kind("missing")

    monkeypatch.setattr("st_extras.samples.write_samples", fails)
    code, _, err = run("demo", "--json")
    shown_of = "'missing'" if kind is KeyError else "missing"
    said = f"Error: st-extras demo failed: {kind.__name__}: {shown_of}; ST_EXTRAS_DEBUG=1 shows the traceback."
    assert (code, shown(err)) == (1, [said])
    monkeypatch.setenv("ST_EXTRAS_DEBUG", "1")
    code, _, err = run("demo", "--json")
    assert (code, shown(err)[0], "in fails" in err) == (1, "Traceback (most recent call last):", True)


def test_the_traceback_of_a_wrong_request_too(run, monkeypatch):
    monkeypatch.setenv("ST_EXTRAS_DEBUG", "1")
    code, _, err = run("adapt", "ENC", "TEXT", "-o", "out", "--strength", "strong")
    assert (code, shown(err)[0], shown(err)[-1][:15]) == (2, "Traceback (most recent call last):", "Error: strength")


def test_a_full_disk_leaves_what_was_there(run, monkeypatch):
    def half(self: SentenceTransformer, path: str, *_: Any, **__: Any) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / "modules.json").write_text("[")
        raise OSError(errno.ENOSPC, "No space left on device")

    fit = ("adapt", "ENC", "TEXT", "-o", "deep/out", "--overwrite")
    for before in (False, True):
        assert not before or run(*fit)[0] == 0
        kept = files(Path.cwd())
        with monkeypatch.context() as patch:
            patch.setattr(SentenceTransformer, "save", half)
            code, _, err = run(*fit)
        assert (code, "deep/out" in shown(err)[-1], files(Path.cwd())) == (1, True, kept), err


def test_a_training_that_diverges(run):
    words = ("--steps", 4, "--eval-steps", 2, "--batch-size", 4, "--lr", "1e30", "--quiet", "--json")
    code, out, err = run("train", "simcse", "ENC", "TEXT", "-o", "out", *words)
    lines = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert (code, out, len(lines), "diverged" in lines[0]) == (1, "", 1, True), err
    assert list(Path.cwd().iterdir()) == []


def test_what_cannot_be_encoded_is_escaped(monkeypatch):
    """A report in a terminal that knows ASCII only must not fail after the work was done."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    monkeypatch.setattr(app, "_quiet_libraries", lambda: None)
    monkeypatch.setattr(app, "app", lambda *_, **__: console.print_line("caf\xe9 \udcff"))
    with pytest.raises(SystemExit, match=r"^0$"):
        app.main()
    assert written.getvalue() == b"caf\\xe9 \\udcff\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.slow
def test_a_broken_pipe_is_quiet_and_a_full_disk_one_line():
    command = [sys.executable, "-m", "st_extras.cli", "--help"]
    options: dict[str, Any] = {"env": ENVIRONMENT, "stderr": subprocess.PIPE, "check": False}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, **options)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, **options)
    assert (done.returncode, done.stderr) == (1, b"Error: No space left on device.\n")
