"""Values of options before a command starts: a number out of range, and an option given twice."""

import re

import pytest

from tests.cli.commands import COMMANDS, options, types

HUGE = str(10**400)
COUNT = ("0", "-1", HUGE)
POSITIVE = ("0", "-1", "inf", "nan", "1e999")
NOT_NEGATIVE = ("-0.5", "inf", "nan")
SEED = ("-1", str(2**32), HUGE)
LINE = (*COUNT, str(2**30 + 1))
PROCESSES = (*COUNT, "100000")

ADAPTING = {"--limit": ("0", "499", "50001", HUGE), "--max-line": LINE, "--minutes": ("-1", "inf", "nan", "10001")}
ADAPTING |= {"--batch-size": COUNT, "--seed": SEED}
COUNTED = ["limit", "batch-size", "mini-batch-size", "eval-steps", "patience", "layers", "length-buckets", "top-k"]
OUT_OF_RANGE: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {f"--{name}": COUNT for name in COUNTED}
    | {f"--{name}": POSITIVE for name in ("learning-rate", "loss-learning-rate", "epochs")}
    | {
        "--max-line": LINE,
        "--steps": ("0", "-2", HUGE),
        "--max-length": ("0", "1", "2", "-1"),
        "--dropout": ("-0.1", "1", "1.5", "nan", "inf"),
        "--lora": (*COUNT, "4097"),
        "--warmup-epochs": NOT_NEGATIVE,
        "--processes": PROCESSES,
        "--seed": SEED,
    },
    "adapt": ADAPTING | {"--max-general-loss": NOT_NEGATIVE},
    "adapt-search": ADAPTING | {"--passages": COUNT},
    "search": {"--top-k": COUNT, "--max-line": LINE, "--bm25-weight": NOT_NEGATIVE, "--batch-size": COUNT},
    "calibrate": {"--max-line": LINE, "--batch-size": COUNT, "--seed": SEED},
    "demo": {"--steps": COUNT, "--seed": SEED},
    "frequencies count": {"--max-line": LINE, "--processes": PROCESSES},
    "frequencies info": {"--ratio": ("0", "1", "-0.1", "nan", "inf")},
    "refine": {"--max-line": LINE, "--batch-size": COUNT},
    "statistics compute": {"--max-line": LINE, "--batch-size": COUNT},
}


def test_every_number_of_every_command_has_a_row():
    numbers = {(name, max(o.opts, key=len)) for name, o in options() if types(name)[o.name] & {int, float}}
    assert numbers == {(command, option) for command, rows in OUT_OF_RANGE.items() for option in rows}


@pytest.mark.parametrize("command", OUT_OF_RANGE)
def test_a_number_out_of_range_is_one_line(assert_refused, command):
    for option, values in OUT_OF_RANGE[command].items():
        for value in values:
            assert_refused((*COMMANDS[command], option, value), rf"^Error: {re.escape(option)}(, unless .*)? must be ")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_given_twice_is_refused_unless_there_may_be_several(assert_refused, command):
    for name, option in options():
        if name == command and not (option.multiple or option.is_flag or option.is_eager):
            spelled = max(option.opts, key=len)
            assert_refused((*COMMANDS[command], spelled, "1", spelled, "2"), f"{spelled} must be given once")
