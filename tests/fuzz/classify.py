"""What a case is, and the class it falls into: nothing silent, nothing lost, nothing that hangs."""

import hashlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from safetensors import SafetensorError

CLEAR = "clear error"
RIGHT = "accepted rightly"
SILENT = "silent wrong"
NAMELESS = "names nothing"
HANG = "hang"
HALF = "half-written"
REFUSED = "refused wrongly"
CLASSES = (CLEAR, RIGHT, SILENT, NAMELESS, HANG, HALF, REFUSED)
SECONDS = 5.0

REFUSE, ACCEPT, EITHER = "refuse", "accept", "either"
Verify = Callable[[Any], "str | None"]
"""The oracle of a result: None if it is right, otherwise what is wrong with it."""


class UsageError(Exception):
    """The command line's own refusal: exit code 1 or 2 and one line on stderr."""


@dataclass(frozen=True)
class Case:
    """One call, and how its outcome is judged.

    Args:
        name: the call, as it is written in a report.
        run: makes the call and returns what ``verify`` looks at.
        expected: whether the input must be refused, must be accepted, or may be either.
        names: an error must contain one of them: the argument or the file. Empty: no demand.
        shows: and one of these: the value or the line. Empty: no demand.
        verify: the oracle of an accepted input.
        untouched: a folder that must hold the same files after an error as before.
        system: whether the system's own errors are fine: a full disk is no one's argument.
        python: whether Python's own errors are fine: what it says of a value of a wrong type.
    """

    name: str
    run: Callable[[], Any]
    expected: str = EITHER
    names: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    verify: Verify = lambda result: None
    untouched: Path | None = None
    system: bool = False
    python: bool = False


@dataclass(frozen=True)
class Outcome:
    """The class of a case, and the message or the reason."""

    case: Case
    kind: str
    detail: str


class _Hang(BaseException):
    """Raised by the timer; no ``except Exception`` swallows it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise _Hang after ``seconds`` of processor time, which a busy machine does not use up."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Hang

    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)


def listing(folder: Path | None) -> dict[str, str]:
    """The files below a folder and the hash of what is in them."""
    if folder is None:
        return {}
    paths = sorted(folder.rglob("*"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in paths}


def classify(case: Case) -> Outcome:
    """Run a case and say which class it falls into."""
    before = listing(case.untouched)
    began = time.process_time()
    try:
        with time_limit(SECONDS):
            result = case.run()
        failed = None
    except _Hang:
        return Outcome(case, HANG, f"over {SECONDS:g} s")
    except Exception as error:
        failed = error
    if time.process_time() - began > SECONDS:
        return Outcome(case, HANG, f"{time.process_time() - began:.0f} s")
    if failed is None:
        return _accepted(case, result)
    changed = [name for name, _ in set(before.items()) ^ set(listing(case.untouched).items())]
    if changed:
        return Outcome(case, HALF, f"{sorted(changed)[:4]} after {type(failed).__name__}: {failed}"[:300])
    message = f"{type(failed).__name__}: {' '.join(str(failed).split())}"
    if not _is_clear(case, failed):
        return Outcome(case, NAMELESS, message[:300])
    return Outcome(case, REFUSED if case.expected == ACCEPT else CLEAR, message[:300])


def _accepted(case: Case, result: Any) -> Outcome:
    if case.expected == REFUSE:
        return Outcome(case, SILENT, "accepted, though wrong")
    try:
        wrong = case.verify(result)
    except Exception as error:
        wrong = f"the result cannot be used: {type(error).__name__}: {error}"[:300]
    return Outcome(case, RIGHT, "") if wrong is None else Outcome(case, SILENT, wrong)


def _is_clear(case: Case, error: Exception) -> bool:
    """Whether an error is one that a user is meant to see, and says what is wrong and where."""
    if case.python and isinstance(error, TypeError | AttributeError | ValueError | OverflowError):
        return True
    if type(error) not in (ValueError, ImportError, ModuleNotFoundError, UsageError):
        named = isinstance(error, OSError) and error.filename is not None  # "No such file or directory: 'x'"
        if not named:
            return case.system and isinstance(error, OSError | SafetensorError)
    message = str(error).lower()
    return all(not words or any(word.lower() in message for word in words) for words in (case.names, case.shows))


def written(value: Any) -> tuple[str, ...]:
    """The ways in which a message may show a value: its repr, its text, its type."""
    return (_safe(repr, value)[:20], _safe(str, value)[:20], type(value).__name__)


def _safe(function: Callable[[Any], str], value: Any) -> str:
    try:
        return function(value)
    except Exception:
        return type(value).__name__


def sample(cases: list[Case], count: int, generator: random.Random) -> list[Case]:
    """Draw ``count`` different cases, all of them if there are fewer."""
    return generator.sample(cases, min(count, len(cases)))
