"""What the commands print with."""

import json
import logging
import re

import pytest
import torch

from st_extras.checks import check_count
from st_extras.cli import app
from st_extras.cli.console import (
    print_json,
    print_line,
    print_table,
    shows_bars,
)


@pytest.mark.parametrize("to_stderr", [False, True])
def test_a_line_is_printed_as_it_is_however_long(capsys, to_stderr):
    text = "saved to runs[/red]/[bold]x: " + "word " * 100 + "end"
    print_line(text, to_stderr=to_stderr)
    assert capsys.readouterr()[to_stderr] == f"{text}\n"


@pytest.mark.parametrize("columns", [40, 80])
def test_a_table_leaves_nothing_out(capsys, monkeypatch, columns):
    """A cell that does not fit goes on in the next line."""
    monkeypatch.setenv("COLUMNS", str(columns))
    titles = ["set", "a/long/path/of/an/encoder", "other"]
    rows = [["sts12", "word " * 30 + "end", "[bold]red[/]"], ["sts13", "", "y" * 100]]
    print_table("Scores of [bold]everything[/]", titles, rows, justify="right")
    title, _, *lines = capsys.readouterr().out.splitlines()
    assert title == "Scores of [bold]everything[/]"
    assert max(map(len, lines)) <= columns
    cells = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in lines if line[0] in "│┃"]
    shown = ["".join(column).replace(" ", "") for column in zip(*cells, strict=True)]
    assert shown == ["".join(column).replace(" ", "") for column in zip(titles, *rows, strict=True)]


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
    print_table("title", ["set"], [["sts12"]])
    out, err = capsys.readouterr()
    assert ('{"a": 1}\n' in out, "sts12" in out, err == "warned\n") == (speaks, speaks, speaks)


@pytest.mark.parametrize(("wrong", "printed"), [("steps", False), (torch.empty, True)])
def test_what_is_wrong_in_every_process_is_reported_once(run, monkeypatch, wrong, printed):
    """A wrong request; a run may fail in one process alone."""

    def fail(*_: object, **__: object) -> None:
        check_count(wrong, 3, at_least=5) if wrong == "steps" else wrong(-1)

    monkeypatch.setattr("st_extras.samples.write_samples", fail)
    monkeypatch.setenv("RANK", "1")
    assert ("Error: " in run("demo")[2]) == printed
