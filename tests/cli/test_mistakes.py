"""What a command refuses by itself: one line that names the option, nothing made and nothing changed."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from st_extras.cli.objectives import loss_settings
from tests.cli.commands import COMMANDS, command, options, types
from tests.cli.conftest import shown

MISTAKES = {
    "adapt ENC none.txt -o out": r"none\.txt",
    "adapt ENC TEXT -o out --dev STS --labeled TSV": "--dev does not go with --labeled",
    "adapt ENC TEXT -o out --dev-set stsb_dev": "--dev-set needs --dev",
    "adapt ENC TEXT -o out --label-column label": "--label-column needs --labeled",
    "adapt ENC TEXT -o out --labeled TEXT": r"^Error: --labeled must be a file whose name ends in",
    "evaluate ENC --labeled TEXT": r"^Error: --labeled must be a file whose name ends in",
    "adapt ENC TEXT -o out --text-column text": "--text-column needs --labeled",
    "adapt ENC TEXT -o out --labeled TSV --dev-set a": "--dev-set needs --dev",
    "adapt ENC TEXT -o out --labeled TSV": r"no column label.*--label-column.* can name another",
    "adapt ENC TEXT -o out --strength strong": "strength must be one of 'slight', .*'whitening'",
    "adapt ENC TEXT -o out --strength medium --max-general-loss 2": "strength must be left out",
    "adapt ENC TEXT -o out --threshold 2": "threshold must be between -1 and 1",
    "adapt ENC TEXT -o out --column text": "--column is not for",
    "evaluate ENC --text TEXT --threshold 0.8": "threshold needs a second encoder, .* got 1",
    "evaluate ENC --threshold 0.8 --sts STS": "--threshold needs --text",
    "evaluate ENC ENC --text TEXT": "ENCODER must be different ones, got '.*' twice",
    "evaluate ENC ENC --labeled TSV": "ENCODER must be different ones",
    "evaluate ENC demo --text TEXT --threshold 80": "threshold must be between -1 and 1",
    "evaluate ENC --text TEXT --column text": "--column is not for",
    "evaluate ENC --text TEXT --labeled TSV": "--text does not go with --labeled: score on one of them",
    "adapt-search ENC TEXT -o out --column text": "--column is not for",
    "adapt-search ENC TEXT -o out --query-column text": "--query-column needs --queries",
    "search ENC TEXT cat --query-column text": "--query-column needs --queries",
    "demo FOLDER": "folder must be new or empty, got .* with 'mine'",
    "adapt ENC TEXT -o FOLDER": "output must be a new or empty folder, got .* with 'mine'",
    "adapt-search ENC TEXT -o FOLDER": "output must be a new or empty folder, got .* with 'mine'",
    "train simcse ENC TEXT -o FOLDER": "output must be a new or empty folder, got .* with 'mine'",
    "evaluate FOLDER --sts STS": "could not be loaded as an encoder",
    "evaluate ENC --sts TSV --sets a --sets b": r"one name .*stsb_dev\.tsv",
    "evaluate ENC --labeled TSV --sts hub": "--sts does not go with --labeled: score on one",
    "evaluate ENC --split dev": "--split needs --retrieval",
    "evaluate ENC --retrieval FOLDER --labeled TSV": "--retrieval does not go with --labeled",
    "evaluate ENC --retrieval FOLDER --setting all": "--setting needs --sts",
    "evaluate ENC demo --retrieval SEARCH --index i.parquet": "--index needs one encoder, .* got 2",
    "evaluate ENC --retrieval SEARCH --index FOLDER": "--index must be a new file or the Parquet file",
    "evaluate ENC --judged TSV": "--judged needs --retrieval",
    "evaluate ENC --retrieval FOLDER --judged TSV --split dev": "--split does not go with --judged",
    "evaluate ENC --retrieval SEARCH --retrieval SEARCH": "--retrieval must be one folder without --judged, got 2",
    "evaluate ENC --retrieval SEARCH --whole-files": "--whole-files needs --judged",
    "evaluate ENC --labeled TSV --labeled TSV": "--labeled must be given once, got it 2 times",
    "evaluate ENC --retrieval TEXT --judged TSV --judged TSV": "--judged must be given once",
    "search ENC TEXT --queries TEXT --queries TEXT": "--queries must be given once",
    "adapt ENC TEXT -o out --dev STS --dev STS": "--dev must be given once",
    "evaluate ENC --retrieval SEARCH --baseline best": "--baseline must be bm25 or one of .* \\+ BM25.*got .best",
    "search ENC TEXT -cat": "No such option.*-c.* put -- before a text that begins with a hyphen",
    "adapt ENC": "Missing argument '(text|TEXT...)'",
    "adopt ENC": "No such command 'adopt'",
    "search ENC TEXT cat --queries TEXT": "--queries does not go with QUERY",
    "search ENC TEXT cat --index FOLDER": "--index must be a new file or the Parquet file",
    "train word2vec ENC TEXT -o out": "objective must be one of",
    "train my:Loss ENC TEXT -o out": "objective must name a class .*'my:Loss': ModuleNotFoundError: No module",
    "train st_extras.losses:MyLoss ENC TEXT -o out": "objective must name a class .*no attribute 'MyLoss'",
    "train a.b:c:d ENC TEXT -o out": "objective must be one of",
    "train simcse ENC TEXT -o out --trainer bf16": "--trainer must be NAME=VALUE .*'bf16': near it are bf16",
    "train simcse ENC TEXT -o out --trainer weigth_decay=0": "--trainer must be NAME=VALUE .* near it are weight_decay",
    "train simcse ENC TEXT -o out --trainer weight_decay=x": "--trainer weight_decay .*type, got 'x': invalid float",
    "train simcse ENC TEXT -o out --trainer optim=adam": "--trainer optim .*type, got 'adam': invalid choice",
    "train simcse ENC TEXT -o out --trainer max_steps=3": "--trainer .* use --steps",
    "train simcse ENC TEXT -o out --trainer bf16=true --trainer bf16=true": "--trainer .*'bf16' twice",
    "train simcse ENC TEXT -o out --trainer accelerator_config=x": "got accelerator_config='x': FileNotFoundError: ",
    "train simcse ENC TEXT -o out --trainer lora=x": "--trainer lora must have a value of its type",
    "train simcse ENC TEXT -o out --column text": "--column is not for",
    "train simcse ENC TEXT -o out --resume": "resume needs an interrupted training",
    "train simcse ENC TEXT -o out --trainer patience=2": "patience .*--dev",
    "train simcse ENC TEXT -o out --trainer loss_learning_rate=1e-3": "loss_learning_rate needs a loss",
    "train simcse ENC TEXT -o out --set temperature=0": "temperature .*0",
    "train simcse ENC TEXT -o out --set temperature=1 --set temperature=2": "--set must .* 'temperature' twice",
    "train simcse ENC TEXT -o out --steps -5": "Error: --steps, unless it is -1, must be ",
    "train simcse ENC TEXT -o out --max-length 100000": "Error: --max-length must be ",
    "train dclr ENC TEXT -o out --set complementary_model=./none": "'./none' could not be loaded",
    "train paser ENC TEXT -o out --set on_missing_mask=x": "on_missing_mask .*x",
}
BEFORE_THE_TEXT_IS_READ = {
    "train simcse ENC TEXT -o out --set 1x=2": "--set must be NAME=VALUE with one of .*1x=2",
    "train simcse ENC TEXT -o out --set base_loss=dclr": "--set must be NAME=VALUE with one of .*base_loss=dclr",
    "train simcse ENC TEXT -o out --set top_k=3": "--set must be NAME=VALUE with one of .*top_k=3",
    "train paser ENC TEXT -o out --set mini_batch_size=2": "--set must be NAME=VALUE with one of .*mini_batch_size=2",
    "train slt-fai ENC TEXT -o out --set base_loss=mnrl": "--set base_loss must be one of",
    "train slt-fai ENC TEXT -o out --set base_loss=paser": "--set base_loss must be one of",
}


@pytest.mark.parametrize("value", ["-5", "nan"])
def test_a_number_out_of_range(assert_refused, value):
    """Of every option that takes one."""
    for name, option in options():
        if types(name)[option.name] & {int, float}:
            spelled = max(option.opts, key=len)
            assert_refused((*COMMANDS[name], spelled, value), rf"{spelled}|{option.name}")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(("true", True), ("True", True), ("false", False), ("none", "none"), ("None", None), ("null", None)),
        *(("2", 2), ("1e2", 100.0), ("0.1", 0.1), ("unit", "unit"), ("[1", "[1"), ("a=b", "a=b"), ("", "")),
        *(("shuffle+dropout", ["shuffle", "dropout"]), ('["a", "b"]', ["a", "b"])),
    ],
)
def test_the_value_of_a_setting(written, value):
    read = loss_settings("simcse", [f"augmentations={written}"])["augmentations"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake(assert_refused, line):
    assert_refused(tuple(shlex.split(line)), MISTAKES[line])


def test_of_a_setting_that_is_no_data_the_last_one_counts(run):
    code, out, err = run(
        "search", "ENC", "TEXT", "a cat", "--top-k", "5", "--top-k", "2", "--bm25-weight", "1", "--json"
    )
    assert (code, len(json.loads(out)["searches"][0]["hits"])) == (0, 2), err


@pytest.mark.parametrize("line", BEFORE_THE_TEXT_IS_READ)
def test_a_mistake_before_the_text_is_read(assert_refused, monkeypatch, line):
    def read(*_: object, **__: object) -> Any:
        yield pytest.fail("read")

    monkeypatch.setattr("st_extras.text.corpus.stream_sentences", read)
    assert_refused(tuple(shlex.split(line)), BEFORE_THE_TEXT_IS_READ[line])


def test_every_option_of_evaluate_is_refused_with_other_data(assert_refused):
    """One that belongs to no data would be ignored."""
    for name, option in options():
        if name == "evaluate" and option.name not in ("labeled", "retrieval", "text", "sts", "quiet", "as_json"):
            other = ("--labeled", "TSV") if option.name in ("sets", "setting") else ("--sts", "STS")
            value = "1" if types(name)[option.name] & {int, float} else "all" if option.name == "setting" else "english"
            spelled = max(option.opts, key=len)
            assert_refused(("evaluate", "ENC", *other, spelled, value), f"{spelled} needs --")


FILES_FIRST = {
    "search ENC TEXT cat --language en": "language",
    "adapt-search ENC TEXT -o out --language English": "language",
    "evaluate ENC --retrieval FOLDER --language turkish": "language",
    "adapt ENC semicolons.csv -o out": "semicolons.csv",
    "adapt ENC TEXT semicolons.csv -o out": "semicolons.csv",
    "adapt ENC good.csv --column nope -o out": "nope",
    "adapt-search ENC semicolons.csv -o out": "semicolons.csv",
    "train simcse ENC semicolons.csv -o out": "semicolons.csv",
    "adapt ENC TEXT --labeled semicolons.csv -o out": "semicolons.csv",
    "adapt ENC TEXT --labeled good.csv -o out": "--labeled must hold at least two different labels",
    "adapt ENC TEXT --strength none -o out": "strength",
    "adapt ENC TEXT --max-general-loss=-1 -o out": "max_general_loss",
    "adapt ENC TEXT --threshold 2 -o out": "threshold",
    "adapt ENC TEXT --dev semicolons.csv -o out": "semicolons.csv",
    "adapt-search ENC TEXT --queries semicolons.csv -o out": "semicolons.csv",
    "adapt-search ENC TEXT --retrieval FOLDER -o out": "corpus",
    "search ENC TEXT cat --where product=x": "--where",
    "evaluate ENC --text semicolons.csv": "semicolons.csv",
    "evaluate ENC --text good.csv --column nope": "nope",
    "evaluate ENC --labeled semicolons.csv": "semicolons.csv",
    "evaluate ENC ./none --labeled good.csv": "./none",
    "evaluate ENC ./none --text TEXT": "./none",
    "evaluate ENC --text TEXT --text none.txt": "none.txt",
    "adapt ENC TEXT none.txt -o out": "none.txt",
    "evaluate ENC --retrieval FOLDER": "corpus",
    "evaluate ENC --sts semicolons.csv": "semicolons.csv",
    "search ENC semicolons.csv cat": "semicolons.csv",
    "search ENC TEXT --queries semicolons.csv": "semicolons.csv",
    "train simcse ENC TEXT --dev semicolons.csv -o out": "semicolons.csv",
}
"""Commands with a file that cannot be read, and what the message names."""


@pytest.mark.parametrize("name", ["adapt", "adapt-search", "train simcse"])
def test_what_was_refined_is_not_refined_again(assert_refused, tmp_path, name):
    refined = tmp_path / "refined"
    refined.mkdir()
    (refined / "modules.json").write_text('[{"type": "st_extras.modules.repal.RepALPostProcessor"}]')
    words = (*name.split(), refined, "TEXT", "-o", "out")
    assert_refused(words, "encoder must be without post-processing of this package, got '.*refined'")


@pytest.mark.parametrize("line", FILES_FIRST)
def test_files_are_checked_before_an_encoder_is_loaded(run, places, monkeypatch, line):
    Path("semicolons.csv").write_text("a;b\n1;2\n")
    Path("good.csv").write_text("label,text\na,b\n")

    def load(path: Any, **_: Any) -> None:
        pytest.fail(f"loaded {path}")

    monkeypatch.setattr("st_extras.encoders.load_encoder", load)
    monkeypatch.setattr("st_extras.modules.load", load)
    code, _, err = run(*(places.get(word, word) for word in shlex.split(line)))
    assert (code, FILES_FIRST[line] in shown(err)[-1]) == (2, True), err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_message_names_what_this_command_has(run, name):
    """One wrong value each, for every option: it is named as the command line or Python has it."""
    parameters = [option for command, option in options() if command == name]
    known = {word for option in command(name).params for word in (option.name, option.name.upper(), *option.opts)}
    for option in parameters:
        for value in ("", "-1", "nan", "no-such\ud800thing", "none.xyz"):
            spelled = max(option.opts, key=len)
            words = (*COMMANDS[name], spelled) if option.is_flag else (*COMMANDS[name], spelled, value)
            if option.is_flag or option.name in ("output", "quiet", "as_json"):
                continue
            code, _, err = run(*words, *([] if name in ("demo", "search", "evaluate") else ["--quiet"]))
            line = shown(err)[-1] if code else ""
            if code == 0:
                continue
            assert (code, "failed: " in line) == (2, False), (words, err)
            named = re.findall(r"^Error: ([a-z]\w*|--[\w-]+) (?:must|needs|does not go)", line)
            assert {*named} <= known, (words, line)
