"""``python -m tests.fuzz``: try bad input of every kind with a seed, print the faults and how many cases were tried."""

import argparse
import sys
from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz import artefacts, command_line, constructors, files, texts
from tests.fuzz.check import Case, Fault, check

FAMILIES = {
    "constructors": (constructors.cases, 1600, 60),
    "files": (files.cases, 1200, 60),
    "texts": (texts.cases, 500, 15),
    "artefacts": (artefacts.cases, 400, 15),
    "command line": (command_line.cases, 300, 8),
}
"""The strategy of each family, and how many of its cases the weekly and the daily suite draw."""


def draw(start: int, name: str, count: int) -> tuple[Counter[str], list[str]]:
    """Check ``count`` cases of a family, drawn with a seed; count the outcomes, and return the faults."""
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    quiet = {"database": None, "deadline": None, "phases": (Phase.generate,), "suppress_health_check": [*HealthCheck]}

    @seed(start)
    @settings(max_examples=count, **quiet)  # type: ignore[arg-type]
    @given(FAMILIES[name][0]())
    def attempt(case: Case) -> None:
        try:
            outcomes[check(case)] += 1
        except Fault as fault:
            faults.append(str(fault))

    attempt()
    return outcomes, faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the weekly number of cases")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    total = 0
    for name in options.families or FAMILIES:
        outcomes, faults = draw(options.seed, name, max(1, int(options.share * FAMILIES[name][1])))
        total += len(faults)
        found = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        sys.stdout.write("".join(f"{fault}\n" for fault in faults) + f"{name}: {found}, {len(faults)} faults\n")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
