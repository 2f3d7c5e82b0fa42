"""What the commands print with."""

import json
import logging

import pytest

from st_extras.cli import app
from st_extras.cli.console import print_json, print_line, print_scores, shows_bars


@pytest.mark.parametrize("to_stderr", [False, True])
def test_a_line_is_printed_as_it_is_however_long(capsys, to_stderr):
    text = "saved to runs[/red]/[bold]x: " + "word " * 100 + "end"
    print_line(text, to_stderr=to_stderr)
    out, err = capsys.readouterr()
    assert (err if to_stderr else out) == f"{text}\n"
    assert (out if to_stderr else err) == ""


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
