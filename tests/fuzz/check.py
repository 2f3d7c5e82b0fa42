"""What must come of bad input: a clear refusal or a right result; nothing silent, slow or half-written."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

SECONDS = 20.0
"""Of processor time, which a busy machine does not use up: a slow one needs about 6 for the 260,000 dots of a text, and
minutes for what grows with their square."""
REFUSE, ACCEPT, EITHER = "refuse", "accept", "either"


def fuzz(daily: int, weekly: int, **strategies: Any) -> Callable[[Callable[..., str]], Callable[[int], None]]:
    """Make a test of what checks a drawn case by :func:`outcome`: the same cases each day, and weekly more and others.

    A weekly case that fails prints the decorator that repeats it; ``--hypothesis-seed`` repeats a whole week.
    """
    many = pytest.param(weekly, marks=[pytest.mark.weekly, pytest.mark.timeout(1800)])

    def decorate(check: Callable[..., str]) -> Callable[[int], None]:
        @pytest.mark.slow
        @pytest.mark.parametrize("count", [daily, many])
        def test(count: int) -> None:
            outcomes: Counter[str] = Counter()

            @settings(
                max_examples=count,
                derandomize=count == daily,
                database=None,
                deadline=None,
                print_blob=count != daily,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=[*HealthCheck],
            )
            @given(**strategies)
            def check_drawn(**case: Any) -> None:
                outcomes[check(**case)] += 1

            check_drawn()
            assert outcomes.total() > count / 2
            assert len(outcomes) == 2 or count == daily

        return test

    return decorate


def outcome(
    call: Callable[[], Any],
    *names: str,
    expected: str = EITHER,
    verify: Callable[[Any], str | None] = lambda result: None,
    untouched: Path | None = None,
    errors: tuple[type[Exception], ...] = (),
) -> str:
    """Make a call; return "refused" or "accepted".

    Args:
        call: returns what ``verify`` looks at.
        names: an error must contain one of them: the argument or the file. None: no demand.
        expected: whether the input must be refused, must be accepted, or may be either.
        verify: the oracle of a result: None if it is right, otherwise what is wrong with it.
        untouched: a folder that must hold the same files after an error as before.
        errors: of Python and the system, which are fine beside ours.

    Raises:
        AssertionError: if it is refused without a name or wrongly, accepted with a wrong result, too slow, or leaves
            files behind.
    """
    before, began = _listing(untouched), time.process_time()
    refusal = result = None
    try:
        result = call()
    except Exception as error:
        refusal = error
    assert time.process_time() - began < SECONDS, f"it takes over {SECONDS:g} s"
    if refusal is None:
        assert expected != REFUSE, f"accepted, with {result!r:.100}"
        assert (wrong := verify(result)) is None, wrong
        return "accepted"
    message = f"{type(refusal).__name__}: {' '.join(str(refusal).split())}"[:400]
    changed = before.items() ^ _listing(untouched).items()
    assert not changed, f"{message}, and left {sorted(changed)[:4]}"
    assert isinstance(refusal, errors) or _is_clear(refusal, names), f"{message}, which names nothing"
    assert expected != ACCEPT, f"{message}, although it is right"
    return "refused"


def _listing(folder: Path | None) -> dict[str, str]:
    """The files below a folder and the hash of what is in them."""
    paths = [] if folder is None else sorted(folder.rglob("*"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in paths}


def _is_clear(error: Exception, names: tuple[str, ...]) -> bool:
    """Whether an error is one that a user is meant to see, and names what is wrong."""
    named = isinstance(error, OSError) and error.filename is not None  # "No such file or directory: 'x'"
    if type(error) not in (ValueError, ImportError, ModuleNotFoundError) and not named:
        return False
    return not names or any(name.lower() in str(error).lower() for name in names)
