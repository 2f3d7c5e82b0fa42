"""What comes of one method on one encoder: it works, its user was warned, or it was refused with a remedy."""

import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import st_extras

EQUAL_VIEWS = re.compile(r"same vector|no dropout")
"""In the warning that the views of this encoder are equal; other warnings are not about the encoder."""
PACKAGE = str(Path(st_extras.__file__).parent)
_REMEDY = re.compile(r"\b(use|set|give|choose|load|call|pass|train|make|attach|wrap|whiten)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """One cell of the table.

    Attributes:
        kind: "yes", "warned", "no" (refused in one sentence that names a remedy) or "fault" (anything else).
        note: the warning, the refusal or the fault.
        option: what it needs to work; "" if nothing.
    """

    kind: str
    note: str = ""
    option: str = ""


class Fault(Exception):
    """A method that was neither refused nor did what it should."""


def check(holds: object, fault: str) -> None:
    if not holds:
        raise Fault(fault)


@contextmanager
def heard() -> Iterator[list[str]]:
    """The warnings of the package while the context is open, logged or issued."""
    messages: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, ear = logging.getLogger("st_extras"), Ear(logging.WARNING)
    logger.addHandler(ear)
    try:
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            yield messages
        messages += [str(item.message) for item in issued if item.filename.startswith(PACKAGE)]
    finally:
        logger.removeHandler(ear)


def _is_refusal(error: Exception) -> bool:
    """Whether the package itself said no, in one sentence that names what is allowed or what to do instead."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    text = str(error)
    ours = type(error) is ValueError and last.startswith(PACKAGE)
    instead = re.split(r"[:;,] ", text, maxsplit=1)[-1]
    return ours and "\n" not in text and text.endswith(".") and bool(_REMEDY.search(instead))


def outcome_of(method: Callable[[], None]) -> Outcome:
    """Try a method, which raises ``Fault`` where its result is wrong."""
    with heard() as messages:
        try:
            method()
        except Fault as fault:
            return Outcome("fault", str(fault))
        except Exception as error:
            if _is_refusal(error):
                return Outcome("no", str(error))
            frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)]
            where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
            return Outcome("fault", f"{type(error).__name__}{where}: {' '.join(str(error).split())[:150]}")
    about = [message for message in messages if EQUAL_VIEWS.search(message)]
    return Outcome("warned", about[0]) if about else Outcome("yes")
