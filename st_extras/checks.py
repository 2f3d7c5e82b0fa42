"""Checks of an argument: each returns the value, or raises a ValueError that names the argument.

Numbers are Python's or numpy's, of any width; booleans, strings, lists and tensors do not count as numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

_LONGEST_SHOWN = 80


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a number with what is counted: "1 document", "2,000 documents"."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def shown(value: Any) -> str:
    """Return ``repr(value)`` on one line for a message, shortened to 80 characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a whole number of thousands of digits has no repr
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


@contextmanager
def argument_called(name: str, inner: str) -> Iterator[None]:
    """Let messages of the block name an argument as the caller has it.

    Args:
        name: of the argument for the caller, such as "--index".
        inner: its name where the message is made, with which that begins.

    Raises:
        ValueError: that of the block.
    """
    try:
        yield
    except ValueError as error:
        if not re.match(rf"{re.escape(inner)}(,[^,]*,)? must ", str(error)):  # "name, unless it is None, must"
            raise
        raise ValueError(f"{name}{str(error).removeprefix(inner)}") from error


def _is_number(value: Any) -> bool:
    """Return whether ``value`` is a finite real number and not a boolean."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the floats
        return False


def check_bool(name: str, value: Any) -> bool:
    """Return ``value`` as a bool if it is one (Python's or numpy's).

    Raises:
        ValueError: if it is anything else: the string "False" is true in Python, and a 0 may be meant for another
            argument.
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {shown(value)}.")
    return bool(value)


def _real(name: str, value: Any, allowed: str, least: float = -math.inf) -> float:
    if not _is_number(value) or value < least:
        raise ValueError(f"{name} must be {allowed}, got {shown(value)}.")
    return float(value)


def check_finite(name: str, value: Any) -> float:
    """Return ``value`` if it is a finite number.

    Raises:
        ValueError: if it is not.
    """
    return _real(name, value, "a finite number")


def check_positive(name: str, value: Any) -> float:
    """Return ``value`` if it is a finite number > 0.

    Raises:
        ValueError: if it is not.
    """
    return _real(name, value, "a finite number > 0", math.ulp(0.0))


def check_not_negative(name: str, value: Any) -> float:
    """Return ``value`` if it is a finite number >= 0.

    Raises:
        ValueError: if it is not.
    """
    return _real(name, value, "a finite number >= 0", 0)


def check_interval(
    name: str, value: Any, low: float, high: float, *, low_included: bool = True, high_included: bool = True
) -> float:
    """Return ``value`` if it is a number between ``low`` and ``high``.

    Args:
        name: the argument's name, for the message.
        value: the value given.
        low: lowest value.
        high: highest value.
        low_included: whether ``low`` itself is allowed.
        high_included: whether ``high`` itself is allowed.

    Raises:
        ValueError: if it is not.
    """
    if (
        not _is_number(value)
        or not low <= value <= high
        or (value == low and not low_included)
        or (value == high and not high_included)
    ):
        excluded = [f"{end:.10g}" for end, included in ((low, low_included), (high, high_included)) if not included]
        ends = "both" if len(excluded) == 2 else "".join(excluded)
        suffix = f", {ends} excluded" if ends else ""
        raise ValueError(f"{name} must be between {low:.10g} and {high:.10g}{suffix}, got {shown(value)}.")
    return float(value)


def check_fraction(name: str, value: Any) -> float:
    """Return ``value`` if it lies strictly between 0 and 1.

    Raises:
        ValueError: if it does not.
    """
    return check_interval(name, value, 0, 1, low_included=False, high_included=False)


def check_count(name: str, value: Any, at_least: int = 0, at_most: int | None = None) -> int:
    """Return ``value`` as an int if it is a whole number between ``at_least`` and ``at_most`` (None: no limit).

    Raises:
        ValueError: if it is not, or a float: 3.0 would pass here, and fail where something is cut or repeated 3 times.
    """
    whole = _is_number(value) and isinstance(value, Integral)
    if not whole or value < at_least or (at_most is not None and value > at_most):
        allowed = f">= {at_least}" if at_most is None else f"between {at_least} and {at_most}"
        raise ValueError(f"{name} must be a whole number {allowed}, got {shown(value)}.")
    return int(value)


def check_batch_size(value: Any) -> int:
    """Return ``batch_size``, texts per forward pass, if it is a whole number from 1 to 2**20.

    Raises:
        ValueError: if it is not.
    """
    return check_count("batch_size", value, 1, 2**20)


def check_temperature(name: str, value: Any) -> float:
    """Return ``value`` if it lies between 1e-4 and 1e4: outside, a softmax of cosines overflows or is uniform.

    Raises:
        ValueError: if it does not.
    """
    return check_interval(name, value, 1e-4, 1e4)


def check_weight(name: str, value: Any) -> float:
    """Return ``value``, a factor or a rate, if it lies between 0 and 1e6: a larger one would overflow in float32.

    Raises:
        ValueError: if it does not.
    """
    return check_interval(name, value, 0, 1e6)


def check_instance(name: str, value: Any, kind: type, *, or_none: bool = False) -> Any:
    """Return ``value`` if it is an object of the class ``kind``, or None if ``or_none`` is set.

    Raises:
        ValueError: if it is not.
    """
    if not isinstance(value, kind) and not (or_none and value is None):
        allowed = f"a {kind.__name__}{' or None' if or_none else ''}"
        raise ValueError(f"{name} must be {allowed}, got {shown(value)}.")
    return value


def check_choice(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return ``value`` if it is one of ``allowed``.

    Raises:
        ValueError: if it is not.
    """
    if not any(isinstance(value, type(choice)) and value == choice for choice in allowed):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {shown(value)}.")
    return value


def check_seed(name: str, value: Any) -> int:
    """Return ``value`` as an int if it is a whole number (Python's or numpy's), negative or not.

    Raises:
        ValueError: if it is not: 1.0 and 1 would give different random numbers.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {shown(value)}.")
    return int(value)


def check_strings(name: str, value: Any, *, at_least: int = 0) -> tuple[str, ...]:
    """Return the strings of the collection ``value`` in their order, if there are at least ``at_least`` of them.

    Raises:
        ValueError: if there are fewer, or it is a string itself, a dict, no collection, or holds anything but strings.
    """
    allowed = f"{name} must be a {'non-empty ' if at_least else ''}collection of strings"
    if isinstance(value, str):
        raise ValueError(f"{allowed}, got the string {shown(value)}.")
    if isinstance(value, Mapping):  # BEIR's queries: their ids would be taken for texts
        keys = ", ".join(map(repr, list(value)[:5]))
        columns = [key for key, texts in value.items() if not isinstance(texts, str)]
        hint = f"its column, as in {name}[{columns[0]!r}]" if columns else "its values"
        raise ValueError(f"{allowed}, got a dict with the keys {keys}: give {hint}.")
    try:
        items = tuple(value)
    except TypeError:
        raise ValueError(f"{allowed}, got {shown(value)}.") from None
    wrong = [item for item in items if not isinstance(item, str)]
    if wrong:
        raise ValueError(f"{allowed}, got {shown(value)} with the item {shown(wrong[0])}.")
    if len(items) < at_least or (not items and hasattr(value, "dtype")):  # an empty tensor is no collection of strings
        raise ValueError(f"{allowed}, got {shown(value)}.")
    return items


def check_rows(name: str, embeddings: Any, at_least: int = 1, dimension: int | None = None) -> Tensor:
    """Return embeddings given as a tensor, an array, lists or a table: (N, D), in float32 or float64.

    Args:
        name: the argument's name, for the message.
        embeddings: (N, D) numbers.
        at_least: smallest N.
        dimension: D; None: any but 0.

    Raises:
        ValueError: if they have another shape, are not real numbers, are quantised (int8, uint8, packed bits, bool), or
            one is not finite.
    """
    import torch  # here: the command line parses numbers without it

    from st_extras.functional import finite_rows, full_precision

    try:
        if not isinstance(embeddings, torch.Tensor):
            embeddings = torch.as_tensor(np.require(embeddings, None, ["C", "W"]))
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be numbers of the shape (N, D), got {shown(embeddings)}.") from None
    if embeddings.dtype in (torch.int8, torch.uint8, torch.bool):  # codes and bits, whose cosines are other ones
        raise ValueError(
            f"{name} must be plain numbers, got quantised ones ({embeddings.dtype}): encode with precision='float32'."
        )
    if embeddings.is_complex():
        raise ValueError(f"{name} must be real numbers, got {embeddings.dtype}.")
    shape = tuple(embeddings.shape)
    if len(shape) != 2 or shape[0] < at_least or shape[1] != (dimension or max(1, shape[1])):
        fewest = f" with N >= {at_least}" if at_least else ""
        raise ValueError(f"{name} must be (N, {dimension or 'D'}){fewest}, got the shape {shape}.")
    rows = full_precision(embeddings)
    finite = finite_rows(rows)
    if not bool(finite.all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity in row {int((~finite).int().argmax())}.")
    return rows


def has_lone_surrogate(text: str) -> bool:
    """Return whether ``text`` holds half of a surrogate pair, which no file and no tokenizer takes."""
    try:
        text.encode()  # several times as fast as a search
    except UnicodeEncodeError:
        return True
    return False


def check_text_pairs(name: str, pairs: Any) -> list[tuple[str, str]]:
    """Return pairs of sentences as a list of tuples.

    Raises:
        ValueError: if ``pairs`` holds anything but pairs of strings, or a lone surrogate.
    """
    listed = list(pairs)
    for pair in listed:
        are_texts = isinstance(pair, tuple | list) and all(isinstance(text, str) for text in pair)
        if not are_texts or len(pair) != 2 or any(map(has_lone_surrogate, pair)):
            raise ValueError(f"{name} must hold pairs of valid texts, got {shown(pair)}.")
    return [(first, second) for first, second in listed]


def check_pairs(
    pairs: Any, scores: Any, groups: Sequence[object] | None = None
) -> tuple[list[tuple[str, str]], list[float]]:
    """Return the pairs as tuples and the scores as floats, one for each pair.

    Raises:
        ValueError: if there are fewer than two pairs, or one is not a pair of strings; the scores do not match them,
            are not finite numbers or are all equal; or the groups do not match them, or one of the groups has no two
            different scores.
    """
    pairs = check_text_pairs("pairs", pairs)
    scores = scores.tolist() if hasattr(scores, "tolist") else list(scores)
    scores = [check_finite("each number in scores", score) for score in scores]
    if len(pairs) != len(scores) or len(set(scores)) < 2:
        raise ValueError(
            "pairs and scores must be at least two pairs and one score for each, not all equal, "
            f"got {counted(len(pairs), 'pair')}, {counted(len(scores), 'score')}, {len(set(scores))} distinct."
        )
    if groups is None:
        return pairs, scores
    if len(groups) != len(scores):
        raise ValueError(
            f"groups must be one for each pair, got {counted(len(groups), 'group')} for {counted(len(scores), 'pair')}."
        )
    by_group: dict[object, set[float]] = {}
    for group, score in zip(groups, scores, strict=True):
        by_group.setdefault(group, set()).add(score)
    constant = [group for group, different in by_group.items() if len(different) < 2]
    if constant:
        raise ValueError(f"groups must each hold two different scores, but {sorted(map(str, constant))} do not.")
    return pairs, scores


def check_iterable(name: str, value: Any, allowed: str) -> Iterable[Any]:
    """Return ``value`` if its items can be listed: text, mappings and arrays without a dimension are refused.

    Raises:
        ValueError: if it is one of these, or nothing to list; the message has what is ``allowed``.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise ValueError(f"{name} must be {allowed}, got {shown(value)}.")
    return value


def check_finite_embeddings(embeddings: Tensor, sentences: Sequence[str]) -> None:
    """Check the embeddings (N, D) of N sentences.

    Raises:
        ValueError: if one is not finite; the error shows the sentence, as its number need not be the caller's.
    """
    from st_extras.functional import finite_rows  # here: the command line checks without torch

    finite = finite_rows(embeddings)
    if not finite.all():
        sentence = sentences[int((~finite).int().argmax())]
        raise ValueError(f"the embedding of {shown(sentence)} is not finite (NaN or infinity).")
