"""``python -m tests.fuzz``: run the fuzzer, print what is not right, then the number of cases in each class."""

import argparse
import sys

from tests.fuzz.run import FAMILIES, bad, report, run, shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--how-many", choices=("fast", "slow", "all"), default="slow")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    outcomes = run(options.seed, options.families or list(FAMILIES), how_many=options.how_many)
    sys.stdout.write(shown(bad(outcomes)) + report(outcomes))


if __name__ == "__main__":
    main()
