"""Numbers on the command line: what is out of range is one line that names the option, before anything is read."""

import re

import pytest

from tests.cli.commands import COMMANDS, options, types

COUNT = ("0", "-1", "-99999999999999999999", str(10**400))
POSITIVE = ("0", "-1", "inf", "-inf", "nan", "1e999")
NOT_NEGATIVE = ("-0.5", "inf", "nan")
RATE = ("-0.1", "1", "1.5", "nan", "inf")
STEPS = ("0", "-2", str(10**400))
SEED = ("-1", str(2**32), str(10**400))
LINE = (*COUNT, str(2**30 + 1))
LENGTH = ("0", "1", "2", "-1")

ADAPTING = {
    "--limit": ("0", "499", "50001", str(10**400)),
    "--max-line": LINE,
    "--minutes": (*POSITIVE, "10001")[1:],
    "--batch-size": COUNT,
    "--seed": SEED,
}
OUT_OF_RANGE: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "--limit": COUNT,
        "--max-line": LINE,
        "--batch-size": COUNT,
        "--mini-batch-size": COUNT,
        "--learning-rate": POSITIVE,
        "--loss-learning-rate": POSITIVE,
        "--steps": STEPS,
        "--epochs": POSITIVE,
        "--eval-steps": COUNT,
        "--patience": COUNT,
        "--max-length": LENGTH,
        "--layers": COUNT,
        "--dropout": RATE,
        "--lora": (*COUNT, "4097"),
        "--length-buckets": COUNT,
        "--warmup-epochs": NOT_NEGATIVE,
        "--top-k": COUNT,
        "--processes": (*COUNT, "100000"),
        "--seed": SEED,
    },
    "adapt": ADAPTING | {"--max-general-loss": NOT_NEGATIVE},
    "adapt-search": ADAPTING | {"--passages": COUNT},
    "search": {"--top-k": COUNT, "--max-line": LINE, "--bm25-weight": NOT_NEGATIVE, "--batch-size": COUNT},
    "calibrate": {"--max-line": LINE, "--batch-size": COUNT, "--seed": SEED},
    "demo": {"--steps": COUNT, "--seed": SEED},
    "frequencies count": {"--max-line": LINE, "--processes": (*COUNT, "100000")},
    "frequencies info": {"--ratio": ("0", "1", "-0.1", "nan", "inf")},
    "refine": {"--max-line": LINE, "--batch-size": COUNT},
    "statistics compute": {"--max-line": LINE, "--batch-size": COUNT},
}


def test_every_number_of_every_command_has_a_row():
    numbers = {(name, max(o.opts, key=len)) for name, o in options() if types(name)[o.name] & {int, float}}
    assert numbers == {(command, option) for command, rows in OUT_OF_RANGE.items() for option in rows}


@pytest.mark.parametrize(
    ("command", "option"), [(command, option) for command, rows in OUT_OF_RANGE.items() for option in rows]
)
def test_a_number_out_of_range_is_one_line(assert_refused, command, option):
    for value in OUT_OF_RANGE[command][option]:
        line = rf"^Error: {re.escape(option)}(, unless it is -1,)? must be .*, got .*\.$"
        assert_refused((*COMMANDS[command], option, value), line)
