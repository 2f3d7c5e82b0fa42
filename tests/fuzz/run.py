"""Draw the cases of each family, classify them, count the classes."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.fuzz import artefacts, checkpoints, command_line, constructors, files, texts
from tests.fuzz.classify import CLASSES, CLEAR, RIGHT, Case, Outcome, classify, sample


class Family(NamedTuple):
    """A family of cases, and how many of them the slow and the fast suite draw."""

    cases: Callable[[random.Random], list[Case]]
    slow: int
    fast: int


FAMILIES = {
    "constructors": Family(constructors.cases, 1600, 80),
    "files": Family(files.cases, 1200, 100),
    "texts": Family(texts.cases, 500, 20),
    "artefacts": Family(artefacts.cases, 450, 15),
    "checkpoints": Family(checkpoints.cases, 20, 0),
    "command line": Family(command_line.cases, 400, 8),
}


def run(seed: int, families: Sequence[str] = tuple(FAMILIES), *, how_many: str = "slow") -> list[tuple[str, Outcome]]:
    """Classify cases of the families, drawn with the seed: as many as "slow" or "fast" says, or "all"."""
    found = []
    for name in families:
        family = FAMILIES[name]
        wanted = {"slow": family.slow, "fast": family.fast, "all": 10**9}[how_many]
        generator = random.Random(f"{seed}{name}")
        if wanted:
            found += [(name, classify(case)) for case in sample(family.cases(generator), wanted, generator)]
    return found


def bad(outcomes: Sequence[tuple[str, Outcome]]) -> list[tuple[str, Outcome]]:
    """The outcomes that are neither a clear error nor accepted rightly."""
    return [(name, outcome) for name, outcome in outcomes if outcome.kind not in (CLEAR, RIGHT)]


def shown(outcomes: Sequence[tuple[str, Outcome]]) -> str:
    """Each outcome in two lines: its class and call, and the message or the reason."""
    return "".join(f"[{o.kind}] {name}: {o.case.name}\n    {o.detail}\n" for name, o in outcomes)


def report(outcomes: Sequence[tuple[str, Outcome]]) -> str:
    """A table: one line for each family and for all, one column for each class."""
    lines = [f"{'family':14}" + "".join(f"{kind:>18}" for kind in (*CLASSES, "all"))]
    for family in (*dict.fromkeys(name for name, _ in outcomes), "all"):
        kinds = Counter(outcome.kind for name, outcome in outcomes if family in (name, "all"))
        lines.append(f"{family:14}" + "".join(f"{n:18,}" for n in (*(kinds[k] for k in CLASSES), kinds.total())))
    return "\n".join(lines) + "\n"
