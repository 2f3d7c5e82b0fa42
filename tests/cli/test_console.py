"""What the commands print with."""

import json
import logging
import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from st_extras.cli import app
from st_extras.cli.console import print_json, print_line, print_scores, print_table, short_names, shows_bars


@pytest.mark.parametrize("to_stderr", [False, True])
def test_a_line_is_printed_as_it_is_however_long(capsys, to_stderr):
    text = "saved to runs[/red]/[bold]x: " + "word " * 100 + "end"
    print_line(text, to_stderr=to_stderr)
    out, err = capsys.readouterr()
    assert (err if to_stderr else out) == f"{text}\n"
    assert (out if to_stderr else err) == ""


WORDS = ["a", "+1.20 (+0.30 to +2.10)", "x" * 30, "word " * 30 + "end", "", "[bold]red[/]", "100.00", "y" * 100]


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("count", [2, 3, 7, 12])
def test_a_table_leaves_nothing_out(capsys, monkeypatch, columns, count):
    """A column that does not fit goes on below; a cell that does not fit goes on in the next line."""
    monkeypatch.setenv("COLUMNS", str(columns))
    titles = [f"title{number}" for number in range(count)]
    rows = [[f"row{row}", *(WORDS[(row + place) % len(WORDS)] for place in range(count - 1))] for row in range(5)]
    print_table("Scores of [bold]everything[/]", titles, rows, justify="right")
    out = capsys.readouterr().out
    assert out.startswith("Scores of [bold]everything[/]\n")
    assert max(map(len, out.splitlines())) <= columns
    lines = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in out.splitlines() if line[0] in "│┃"]
    assert {title for title in titles for line in lines if title in line} == {*titles}
    found: dict[str, str] = {}  # all that stands in a row of a part, by the title of its column
    heads: list[str] = []
    row = ""
    for first, *cells in lines:
        if first == "title0":
            heads = cells
        else:
            row = first or row
            for head, cell in zip(heads, cells, strict=True):
                found[f"{row} {head}"] = found.get(f"{row} {head}", "") + cell
    for name, *cells in rows:
        for head, cell in zip(titles[1:], cells, strict=True):
            assert found[f"{name} {head}"].replace(" ", "") == cell.replace(" ", "")


def test_short_names_of_encoders():
    long = "/home/somebody/projects/encoders/adapted-to-the-manuals-of-machines"
    paths = [long, f"{long}-2", "demo", "org/a-model", f"/srv/{'x/' * 20}demo", f"/var/{'x/' * 20}demo"]
    names = short_names(paths)
    assert list(names) == paths
    assert list(names.values()) == [
        "adapted-to-the-manuals-…", "adapted-to-the-manua (2)", "demo", "org/a-model", "demo (2)", "demo (3)",
    ]  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="needs a terminal of a POSIX system")
def test_on_a_terminal_of_80_columns_and_below_an_open_bar():
    """A real one: nothing is wider, and an error stands on a line of its own."""
    import fcntl
    import pty
    import struct
    import termios

    code = (
        "import time\nfrom tqdm.auto import tqdm\nfrom st_extras.cli.console import print_error, print_table\n"
        f"print_table('Scores', ['encoder', 'a', 'b'], [[{'x' * 90!r}, '1.00', {'word ' * 20!r}]])\n"
        "bar = tqdm(range(9), desc='Encoding')\nnext(iter(bar))\nprint_error('Interrupted')"
    )
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    out = b""
    with suppress(OSError):  # the end of a terminal
        while part := os.read(main, 4096):
            out += part
    os.close(main)
    assert process.wait() == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.decode())
    lines = [line.split("\r")[-1] for line in plain.replace("\r\n", "\n").splitlines()]
    assert (plain.count("x") % 90, plain.count("word")) == (0, 20)
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "Error: Interrupted"
    assert lines[-2].startswith("Encoding:")


def test_json_has_null_for_what_is_not_finite(capsys):
    print_json({"a": float("nan"), "b": [1, float("inf"), (2.5,)], "c": {"d": -float("inf"), "e": "nan"}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1, None, [2.5]], "c": {"d": None, "e": "nan"}}


def test_of_several_processes_the_first_prints(capsys, monkeypatch):
    for rank, said in (("1", False), ("0", True)):
        monkeypatch.setenv("RANK", rank)
        print_json({"a": 1})
        print_line("warned", to_stderr=True)
        print_scores("title", {"before": {"sts12": 1.0}}, as_json=False)
        out, err = capsys.readouterr()
        assert ('{"a": 1}\n' in out, "sts12" in out, err == "warned\n") == (said, said, said)


@pytest.mark.parametrize(("error", "said"), [(ValueError("text is missing."), False), (RuntimeError("memory"), True)])
def test_what_is_wrong_in_every_process_is_said_once(run, monkeypatch, error, said):
    """A run may fail in one process alone."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("st_extras.adaptation.demonstrate", fail)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (str(error).rstrip(".") in run("demo")[2]) == said


@pytest.mark.parametrize(("rank", "speaks"), [("0", True), ("1", False)])
def test_of_several_processes_the_first_shows_bars_and_warns(monkeypatch, rank, speaks):
    handler = logging.StreamHandler()  # in the place of the one that logs where nobody has set up logging
    monkeypatch.setattr(logging, "lastResort", handler)
    monkeypatch.setattr(logging.getLogger("sentence_transformers"), "setLevel", lambda level: None)
    for name in ("TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_PROGRESS_BARS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("RANK", rank)
    app._quiet_libraries()
    assert (shows_bars(False, False), handler.level <= logging.WARNING) == (speaks, speaks)
    assert not shows_bars(True, False)
