"""What the commands print with."""

import json
import logging
import re
import sys

import pytest
from tqdm import tqdm

from st_extras.cli import app
from st_extras.cli.console import (
    print_error,
    print_json,
    print_line,
    print_scores,
    print_table,
    short_names,
    shows_bars,
)


@pytest.mark.parametrize("to_stderr", [False, True])
def test_a_line_is_printed_as_it_is_however_long(capsys, to_stderr):
    text = "saved to runs[/red]/[bold]x: " + "word " * 100 + "end"
    print_line(text, to_stderr=to_stderr)
    assert capsys.readouterr()[to_stderr] == f"{text}\n"


@pytest.mark.parametrize("columns", [40, 80])
def test_a_table_leaves_nothing_out(capsys, monkeypatch, columns):
    """A column that does not fit goes on below; a cell that does not fit goes on in the next line."""
    monkeypatch.setenv("COLUMNS", str(columns))
    words = ["+1.20 (+0.30 to +2.10)", "word " * 30 + "end", "", "[bold]red[/]", "100.00", "y" * 100]
    titles = [f"title{number}" for number in range(7)]
    rows = [[f"row{row}", *(words[(row + place) % 6] for place in range(6))] for row in range(3)]
    print_table("Scores of [bold]everything[/]", titles, rows, justify="right")
    out = capsys.readouterr().out
    assert out.startswith("Scores of [bold]everything[/]\n")
    assert max(map(len, out.splitlines())) <= columns
    found: dict[tuple[str, str], str] = {}  # by row and title
    heads: list[str] = []
    name = ""
    for line in out.splitlines():
        if line[0] in "│┃":
            first, *cells = (cell.strip() for cell in re.split("[│┃]", line)[1:-1])
            heads = cells if first == "title0" else heads
            name = first or name
            for head, cell in zip(heads, cells, strict=True):
                found[name, head] = found.get((name, head), "") + cell
    for name, *cells in rows:
        for head, cell in zip(titles[1:], cells, strict=True):
            assert found[name, head].replace(" ", "") == cell.replace(" ", "")


def test_a_cell_that_fits_is_not_folded(capsys, monkeypatch):
    cells = ["a" * 9, "b" * 7, "c" * 12, "d" * 5]
    for columns in range(24, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        print_table("", ["row", "1", "2", "3", "4"], [["row", *cells]])
        out = capsys.readouterr().out
        assert [cell for cell in cells if cell not in out] == [], columns


def test_short_names_of_encoders():
    long = "/home/somebody/projects/encoders/adapted-to-the-manuals-of-machines"
    paths = [long, f"{long}-2", "demo", "org/a-model", f"/srv/{'x/' * 20}demo", f"/var/{'x/' * 20}demo"]
    names = ["adapted-to-the-manuals-…", "adapted-to-the-manua (2)", "demo", "org/a-model", "demo (2)", "demo (3)"]
    assert short_names(paths) == dict(zip(paths, names, strict=True))


def test_an_error_below_an_open_bar_has_a_line(capsys):
    bar = iter(tqdm(range(9), desc="Encoding", file=sys.stderr))
    next(bar)  # without the name, Python would close it
    print_error("Interrupted")
    assert re.search(r"Encoding:[^\n]*\nError: Interrupted\n$", capsys.readouterr().err)


def test_json_has_null_for_what_is_not_finite(capsys):
    print_json({"a": float("nan"), "b": [1, float("inf"), (2.5,)], "c": {"d": -float("inf"), "e": "nan"}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1, None, [2.5]], "c": {"d": None, "e": "nan"}}


@pytest.mark.parametrize(("rank", "speaks"), [("0", True), ("1", False)])
def test_of_several_processes_the_first_prints_and_warns(capsys, monkeypatch, rank, speaks):
    handler = logging.StreamHandler()  # in the place of the one that logs where nobody has set up logging
    monkeypatch.setattr(logging, "lastResort", handler)
    monkeypatch.setattr(logging.getLogger("sentence_transformers"), "setLevel", lambda level: None)
    for name in ("TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_PROGRESS_BARS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("RANK", rank)
    app._quiet_libraries()
    assert (shows_bars(False, False), handler.level <= logging.WARNING) == (speaks, speaks)
    assert not shows_bars(True, False)
    print_json({"a": 1})
    print_line("warned", to_stderr=True)
    print_scores("title", {"before": {"sts12": 1.0}}, as_json=False)
    out, err = capsys.readouterr()
    assert ('{"a": 1}\n' in out, "sts12" in out, err == "warned\n") == (speaks, speaks, speaks)


@pytest.mark.parametrize(("error", "printed"), [(ValueError("no text."), False), (RuntimeError("memory"), True)])
def test_what_is_wrong_in_every_process_is_reported_once(run, monkeypatch, error, printed):
    """A run may fail in one process alone."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("st_extras.adaptation.demonstrate", fail)
    monkeypatch.setenv("RANK", "1")
    assert (str(error).rstrip(".") in run("demo")[2]) == printed
