"""What a case is, and what must come of it: a clear refusal or a right result; nothing silent or half-written."""

import hashlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

SECONDS = 5.0
REFUSE, ACCEPT, EITHER = "refuse", "accept", "either"


class UsageError(Exception):
    """The command line's refusal: exit code 1 or 2 and one line on stderr."""


class Fault(AssertionError):
    """A case that was neither refused clearly nor accepted rightly."""


@dataclass(frozen=True)
class Case:
    """One call, and what must come of it.

    Args:
        name: the call, as it is written in a report.
        run: makes the call and returns what ``verify`` looks at.
        expected: whether the input must be refused, must be accepted, or may be either.
        names: an error must contain one of them: the argument or the file. Empty: no demand.
        verify: the oracle of a result: None if it is right, otherwise what is wrong with it.
        untouched: a folder that must hold the same files after an error as before.
        foreign: errors of Python and the system are fine: for values of a wrong type.
    """

    name: str
    run: Callable[[], Any]
    expected: str = EITHER
    names: tuple[str, ...] = ()
    verify: Callable[[Any], str | None] = lambda result: None
    untouched: Path | None = None
    foreign: bool = False


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


def check(case: Case) -> str:
    """Run a case; return "refused" or "accepted".

    Raises:
        Fault: if it is refused without a name or wrongly, accepted with a wrong result, hangs, or leaves files behind.
    """
    before = _listing(case.untouched)
    try:
        with time_limit(SECONDS):
            result = case.run()
    except _Hang:
        raise Fault(f"{case.name}: hangs for over {SECONDS:g} s") from None
    except Exception as error:
        message = f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())}"[:400]
        if changed := before.items() ^ _listing(case.untouched).items():
            raise Fault(f"{message}, and left {sorted(changed)[:4]}") from error
        if not _is_clear(case, error):
            raise Fault(f"{message}, which names nothing") from error
        if case.expected == ACCEPT:
            raise Fault(f"{message}, although it is right") from error
        return "refused"
    if case.expected == REFUSE:
        raise Fault(f"{case.name}: accepted, with {result!r:.100}")
    if (wrong := case.verify(result)) is not None:
        raise Fault(f"{case.name}: {wrong}")
    return "accepted"


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
