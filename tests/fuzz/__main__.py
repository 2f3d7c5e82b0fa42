"""``python -m tests.fuzz``: run the fuzzer, print what is not right, then the number of cases in each class."""

import argparse
import sys

from tests.fuzz.families import FAMILIES, draw, report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the weekly number of cases")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    counts = {name: max(1, int(options.share * FAMILIES[name].weekly)) for name in options.families or FAMILIES}
    sys.stdout.write(report({name: draw(options.seed, name, count) for name, count in counts.items()}))


if __name__ == "__main__":
    main()
