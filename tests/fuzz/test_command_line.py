"""The command line, in this process: wrong options and values, classified by exit code, message and what is left."""

import functools
import io
import itertools
import random
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import note
from hypothesis import strategies as st

from st_extras.cli.app import app, main
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.check import ACCEPT, EITHER, REFUSE, UsageError, fuzz, outcome

_NOISE = re.compile(r"\d+/\d+ \[|warn", re.IGNORECASE)  # progress bars, and what other libraries warn of
_NUMBERS = ["nan", "inf", "1e-300x", "", "True", "1e999", "9" * 400, "-7"]
_TEXTS = ["", " ", "nothing-of-the-kind", "a+b", "🙂", "--", "../.."]
_FILES = ["nowhere.txt", "{folder}", "{binary}", "{empty}", "{nul}", "{utf16}", "{cut}", "{unknown}"]
_SETTINGS = {
    "train": ["temperature=nan", "temperature=", "temperature", "=0.5", "nothing=1", "temperature=0.1=2", "model=x"],
}  # fmt: skip
"""Values of ``--set`` that must be refused."""
_COMMANDS = {
    "train": "train simcse {encoder} {text} -o {output} --steps 2 --batch-size 4 --quiet",
    "evaluate --text": "evaluate {encoder} --text {domain}",
    "evaluate": "evaluate {encoder} --sts {sts} --sets mine", "labelled": "evaluate {encoder} --labeled {labelled}",
    "retrieval": "evaluate {encoder} --retrieval {judged}", "adapt": "adapt {encoder} {text} -o {output} --quiet",
    "search": "adapt-search {encoder} {domain} -o {output} --quiet --queries {queries}",
}  # fmt: skip


@functools.cache
def _places() -> dict[str, str]:
    """Good and bad files, and the encoders, by the names that stand for them in the arguments."""
    folder = world.new_folder()
    (folder / "folder").mkdir()
    (folder / "folder" / "mine.bin").write_bytes(b"mine")  # or else a case may save an encoder there
    lines = [*SENTENCES, *(f"{first} and {second}" for first, second in itertools.pairwise(SENTENCES))]
    pairs = "".join(f"s\t{i % 6}\t{a}\t{b}\n" for i, (a, b) in enumerate(itertools.pairwise(SENTENCES * 2)))
    for name, content in {
        "text.txt": "\n".join(lines), "empty.txt": "", "cut.jsonl": '{"sentence": "a cat"}\n{"sentence": "a d',
        "nul.txt": "a cat\nthe\0dog\n", "sts.tsv": "subset\tscore\tsentence1\tsentence2\n" + pairs,
        "domain.txt": "\n".join(world.corpus()[:120]), "queries.txt": "\n".join(t[3:] for t in world.corpus()[200:240]),
        "labelled.tsv": "label\ttext\n" + "".join(f"{i % 2}\t{text}\n" for i, text in enumerate(SENTENCES)),
    }.items():  # fmt: skip
        (folder / name).write_text(content, encoding="utf8")
    (folder / "binary.txt").write_bytes(random.Random(0).randbytes(500))
    (folder / "utf16.txt").write_bytes("\n".join(SENTENCES).encode("utf-16-le"))
    world.search_folder(folder / "judged")
    world.search_folder(folder / "unknown", "no\t1")
    return {path.stem: str(path) for path in folder.iterdir()} | {"encoder": str(world.encoder_folder())}


def filled(argument: str, output: Path) -> str:
    for name, path in {**_places(), "output": str(output)}.items():
        argument = argument.replace(f"{{{name}}}", path)
    return argument


def call(arguments: list[str]) -> str:
    """Run a command as the shell would and return what it printed.

    Raises:
        UsageError: if it ended with exit code 1 or 2; the message is what it wrote to stderr, of one line.
    """
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["st-extras", *arguments])
        patch.chdir(world.new_folder())  # where relative outputs go
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    if code in (0, None):
        return out.getvalue()
    lines = [line for line in err.getvalue().splitlines() if line.strip() and not _NOISE.search(line)]
    if code not in (1, 2) or "Traceback" in err.getvalue() or len(lines) > 1:
        raise RuntimeError(f"exit code {code}, {len(lines)} lines: {err.getvalue()[-300:]}")
    raise UsageError(lines[-1] if lines else "")


def run(words: list[str], *names: str, expected: str, taken: bool = False) -> str:
    """The outcome of a command; ``taken``: into a folder with somebody's files."""
    folder = world.new_folder()
    if taken:
        (folder / "out").mkdir()
        (folder / "out" / "config.json").write_text("mine")
    arguments = [filled(word, folder / "out") for word in words]
    note(" ".join(words)[:200])

    def verify(_: str) -> str | None:
        is_unsaved = "-o" in words and not list(folder.rglob("*.*"))
        return "it ended with 0 and saved nothing" if is_unsaved else None

    return outcome(lambda: call(arguments), *names, expected=expected, verify=verify, untouched=folder)


@fuzz(5, 180, data=st.data())
def test_a_value_of_an_option(data):
    """Of a number, one that is none; of others, one that is probably wrong."""
    command = data.draw(st.sampled_from(sorted(_COMMANDS)))
    words = _COMMANDS[command].split()
    found: Any = typer.main.get_command(app)
    for word in words:
        found = getattr(found, "commands", {}).get(word, found)
    parameters = found.params
    option = data.draw(st.sampled_from([p for p in parameters if p.param_type_name == "option" and not p.is_eager]))
    name = max(option.opts, key=len)
    for good in {name, "-o" if name == "--output" else name} & {*words}:
        del words[words.index(good) : words.index(good) + 2]
    if getattr(option, "is_flag", False):
        return run([*words, name], expected=EITHER)
    if name == "--set" and command in _SETTINGS:
        value = data.draw(st.sampled_from(_SETTINGS[command]))
        return run([*words, name, value], "set", value.split("=")[0] or "set", expected=REFUSE)
    kind = option.type_descriptor.annotation if hasattr(option, "type_descriptor") else option.type.name
    is_number = kind in (int, float, "integer", "float")  # as typer or click has it
    value = data.draw(st.sampled_from(_NUMBERS if is_number else [*_TEXTS, *_FILES]))
    if is_number and value != "-7" and name != "--max-general-loss":  # infinity is any loss
        return run([*words, name, value], name, expected=REFUSE)
    return run([*words, name, value], expected=EITHER)


@fuzz(4, 120, data=st.data())
def test_a_whole_command_one_with_a_wrong_input_or_one_into_a_folder_that_is_taken(data):
    words = _COMMANDS[data.draw(st.sampled_from(sorted(_COMMANDS)))].split()
    inputs = [place for place, word in enumerate(words) if word in ("{encoder}", "{text}", "{domain}")]
    changes = ["nothing", *["input"] * bool(inputs), *["taken"] * ("{output}" in words)]
    change = data.draw(st.sampled_from(changes))
    if change == "nothing":
        return run(words, expected=ACCEPT)
    if change == "taken":
        overwrite = ["--overwrite"] * data.draw(st.booleans())
        return run([*words, *overwrite], "out", expected=REFUSE, taken=True)
    at = data.draw(st.sampled_from(inputs))
    bad = ["nowhere", "", "{folder}", "{binary}"] if words[at] == "{encoder}" else ["", *_FILES[:-1]]
    wrong = words[at] = data.draw(st.sampled_from(bad))
    shown = _places().get(wrong.strip("{}"), wrong) or "''"
    return run(words, shown, "encoder", "text", "documents", "sentences", expected=REFUSE)
