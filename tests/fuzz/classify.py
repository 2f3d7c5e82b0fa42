"""What a case is, and the class it falls into: nothing silent, nothing lost, nothing that hangs."""

import hashlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
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


class UsageError(Exception):
    """The command line's refusal: exit code 1 or 2 and one line on stderr."""


@dataclass(frozen=True)
class Case:
    """One call, and how its outcome is classified.

    Args:
        name: the call, as it is written in a report.
        run: makes the call and returns what ``verify`` looks at.
        expected: whether the input must be refused, must be accepted, or may be either.
        names: an error must contain one of them: the argument or the file. Empty: no demand.
        verify: the oracle of a result: None if it is right, otherwise what is wrong with it.
        untouched: a folder that must hold the same files after an error as before.
        foreign: errors of Python and the system are fine: for values of a wrong type, and full disks.
    """

    name: str
    run: Callable[[], Any]
    expected: str = EITHER
    names: tuple[str, ...] = ()
    verify: Callable[[Any], str | None] = lambda result: None
    untouched: Path | None = None
    foreign: bool = False


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

    def stop(*_: Any) -> None:
        raise _Hang

    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)


def _listing(folder: Path | None) -> dict[str, str]:
    """The files below a folder and the hash of what is in them."""
    paths = [] if folder is None else sorted(folder.rglob("*"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in paths}


def classify(case: Case) -> Outcome:
    """Run a case and return which class it falls into."""
    before = _listing(case.untouched)
    try:
        with time_limit(SECONDS):
            result = case.run()
    except _Hang:
        return Outcome(case, HANG, f"over {SECONDS:g} s")
    except Exception as error:
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        if changed := before.items() ^ _listing(case.untouched).items():
            return Outcome(case, HALF, f"{sorted(changed)[:4]} after {message}"[:300])
        if not _is_clear(case, error):
            return Outcome(case, NAMELESS, message)
        return Outcome(case, REFUSED if case.expected == ACCEPT else CLEAR, message)
    if case.expected == REFUSE:
        return Outcome(case, SILENT, f"accepted: {result!r:.100}")
    try:
        wrong = case.verify(result)
    except Exception as error:
        wrong = f"the result cannot be used: {type(error).__name__}: {error}"[:300]
    return Outcome(case, RIGHT, "") if wrong is None else Outcome(case, SILENT, wrong)


def _is_clear(case: Case, error: Exception) -> bool:
    """Whether an error is one that a user is meant to see, and names what is wrong."""
    if case.foreign and isinstance(
        error, TypeError | AttributeError | ValueError | ArithmeticError | OSError | SafetensorError
    ):
        return True
    named = isinstance(error, OSError) and error.filename is not None  # "No such file or directory: 'x'"
    if type(error) not in (ValueError, ImportError, ModuleNotFoundError, UsageError) and not named:
        return False
    return not case.names or any(name.lower() in str(error).lower() for name in case.names)
