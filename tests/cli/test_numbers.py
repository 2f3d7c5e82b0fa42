"""Values of options before a command starts: a number out of range, and an option given twice."""

import re

import pytest

from st_extras.cli.sections import SectionedCommand
from tests.cli.commands import COMMANDS, command, options, types

HUGE = str(10**400)
OUT_OF_RANGE = {
    "train --batch-size": ("0", HUGE),
    "train --lr": ("0", "inf", "nan"),
    "train --warmup-epochs": ("-0.5", "inf", "nan"),
    "train --steps": ("0", "-2", HUGE),
    "train --max-length": ("0", "2"),
    "train --dropout": ("-0.1", "1", "nan"),
    "train --lora": ("0", "4097"),
    "train --processes": ("0", "100000"),
    "train --seed": ("-1", str(2**32)),
    "adapt --limit": ("499", "50001"),
    "adapt --minutes": ("0", "inf", "nan", "10001"),
}
"""For each kind of number, one option that has it."""


@pytest.mark.parametrize("line", OUT_OF_RANGE)
def test_a_number_out_of_range_is_one_line(assert_refused, line):
    name, _, option = line.rpartition(" ")
    for value in OUT_OF_RANGE[line]:
        assert_refused((*COMMANDS[name], option, value), rf"^Error: --[\w-]+(, unless .*)? must be .*{value[:50]}")


def test_every_number_is_checked_before_the_command_starts(assert_refused):
    for name, option in options():
        if types(name)[option.name] & {int, float}:
            spelled = max(option.opts, key=len)
            assert_refused((*COMMANDS[name], spelled, "-5"), rf"^Error: {re.escape(spelled)}(, unless .*)? must be ")


def test_an_option_given_twice_is_refused_unless_there_may_be_several(assert_refused):
    assert_refused((*COMMANDS["train"], "--lr", "1", "--learning-rate", "2"), "--learning-rate must be given once")
    assert_refused((*COMMANDS["train"], "--set", "a=1", "--set", "b=2"), "--set must name a setting")
    assert all(isinstance(command(name), SectionedCommand) for name in COMMANDS)
