"""Draw cases of each family with hypothesis, classify them, count the classes."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz import artefacts, command_line, constructors, files, texts
from tests.fuzz.classify import CLASSES, CLEAR, RIGHT, Case, Outcome, classify


class Family(NamedTuple):
    """A family of cases, and how many of them the weekly and the daily suite draw."""

    cases: Callable[[], st.SearchStrategy[Case]]
    weekly: int
    daily: int


FAMILIES = {
    "constructors": Family(constructors.cases, 1600, 80),
    "files": Family(files.cases, 1200, 100),
    "texts": Family(texts.cases, 500, 20),
    "artefacts": Family(artefacts.cases, 400, 15),
    "command line": Family(command_line.cases, 300, 10),
}


def draw(start: int, name: str, count: int) -> list[Outcome]:
    """Classify ``count`` cases of a family, drawn with a seed."""
    found: list[Outcome] = []
    phases, checks = (Phase.generate,), tuple(HealthCheck)

    @seed(start)
    @settings(max_examples=count, database=None, deadline=None, phases=phases, suppress_health_check=checks)
    @given(FAMILIES[name].cases())
    def attempt(case: Case) -> None:
        found.append(classify(case))

    attempt()
    return found


def bad(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes that are neither a clear error nor accepted rightly."""
    return [outcome for outcome in outcomes if outcome.kind not in (CLEAR, RIGHT)]


def report(outcomes: dict[str, list[Outcome]]) -> str:
    """What is not right in two lines each, then a table: a line for each family, a column for each class."""
    lines = [f"[{o.kind}] {name}: {o.case.name}\n    {o.detail}" for name in outcomes for o in bad(outcomes[name])]
    lines.append(f"{'family':14}" + "".join(f"{kind:>18}" for kind in (*CLASSES, "all")))
    every = {**outcomes, "all": [outcome for found in outcomes.values() for outcome in found]}
    for name, found in every.items():
        kinds = Counter(outcome.kind for outcome in found)
        lines.append(f"{name:14}" + "".join(f"{n:18,}" for n in (*(kinds[k] for k in CLASSES), kinds.total())))
    return "\n".join(lines) + "\n"
