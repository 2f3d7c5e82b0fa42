"""Values to try, and domains: which of them a parameter allows, must refuse, or may do either with."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

Domain = Callable[[Any], "bool | None"]
"""Takes a value and returns True (must be accepted), False (must be refused) or None (either)."""

NUMBERS: list[Any] = [
    0, 1, 2, 3, 7, -1, 0.0, -0.0, 0.05, 0.5, 1.0, 2.5, -0.5, math.nan, math.inf, -math.inf, 1e-300, 5e-324, 1e300,
    10**11, 10**30, -(10**30), True, False, np.bool_(True), np.int64(2), np.uint8(1), np.float32(0.5), np.float64(0.05),
    np.float64("nan"), np.float32("inf"), np.int64(-3), Fraction(1, 2), Decimal("0.5"), np.array(0.5),
    torch.tensor(0.5),
    torch.tensor(math.nan),
]  # fmt: skip
OTHERS: list[Any] = [
    None, "", " ", "0.5", "nan", "none", "False", "\x00", "\ud800", b"x", [], (), {}, set(), [0.5], [1, 2],
    ["a b", "c"],
    ("dropout", "shuffle"), ["dropout"], ["dropout", "none"], [None], {"a": 1}, object(), 1j, int, len, Path("nowhere"),
    np.array([1.0, 2.0]), np.zeros((2, 3)), torch.zeros(0), torch.ones(2, 4), random.Random(0), range(3), ...,
]  # fmt: skip


def draw(generator: random.Random) -> Any:
    """A random number or text."""
    return generator.choice(
        [
            lambda: generator.choice([-1, 1]) * 10 ** generator.uniform(-320, 305),
            lambda: generator.uniform(-1, 2),
            lambda: generator.randint(-3, 40),
            lambda: generator.choice([-1, 1]) * generator.getrandbits(generator.randint(1, 120)),
            lambda: "".join(map(chr, generator.choices(range(0xD7FF), k=generator.randint(0, 8)))),
            lambda: np.float32(generator.uniform(-1, 2)),
            lambda: np.int32(generator.randint(-3, 40)),
        ]
    )()


def number(value: Any) -> bool | None:
    """Whether it is a finite real number and no boolean; None for numbers of unusual types."""
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, int | float | np.integer | np.floating):
        try:
            return math.isfinite(value)
        except OverflowError:
            return False
    if isinstance(value, Fraction | Decimal | np.ndarray | torch.Tensor):
        size = getattr(value, "size", 1)
        one = size == 1 or (isinstance(value, torch.Tensor) and value.ndim == 0)
        return None if one and math.isfinite(float(value)) else False
    return False


def real(low: float, high: float, *, closed: tuple[bool, bool] = (False, False), usual: tuple[float, float]) -> Domain:
    """Finite numbers from ``low`` to ``high``; those outside of ``usual`` may be refused too."""

    def fits(value: Any) -> bool | None:
        known = number(value)
        if known is False:
            return False
        value = float(value)
        if not (value > low or (closed[0] and value == low)) or not (value < high or (closed[1] and value == high)):
            return False
        return True if known and usual[0] <= value <= usual[1] else None

    return fits


POSITIVE = real(0, math.inf, usual=(1e-6, 1e6))
NOT_NEGATIVE = real(0, math.inf, closed=(True, False), usual=(0, 1e6))
FRACTION = real(0, 1, usual=(1e-6, 1 - 1e-6))
SHARE = real(0, 1, closed=(True, True), usual=(0, 1))
TEMPERATURE = real(1e-30, math.inf, usual=(1e-3, 1e3))  # cosines / 1e-300 are infinite


def count(at_least: int, most: float = math.inf) -> Domain:
    """Whole numbers >= ``at_least``; above ``most`` they must be refused, as nothing could hold or finish them."""

    def fits(value: Any) -> bool | None:
        known = number(value)
        if known is False or value < at_least or value != int(value) or value > most:
            return False
        return True if known and not isinstance(value, float | np.floating) and value <= 100 else None

    return fits


def optional(domain: Domain) -> Domain:
    return lambda value: True if value is None else domain(value)


def either(domain: Domain) -> Domain:
    """The same, but what it allows may be refused for other reasons."""
    return lambda value: domain(value) and None


def boolean(value: Any) -> bool | None:
    return None if isinstance(value, np.bool_) else isinstance(value, bool)


def choice(*allowed: Any) -> Domain:
    return lambda value: isinstance(value, str) and value in allowed


def text(value: Any) -> bool | None:
    return None if isinstance(value, str) else False


def seed(value: Any) -> bool | None:
    """Whole numbers; text and fractions may be refused or do as well, as ``random.Random`` takes them."""
    if isinstance(value, str | bytes | float | bool):
        return None
    known = number(value)
    if known is False or value != int(value):
        return False
    return True if isinstance(value, int | np.integer) and 0 <= value < 2**32 else None


def instance(*types: type) -> Domain:
    return lambda value: None if isinstance(value, types) else False


def function(value: Any) -> bool | None:
    return None if callable(value) else False


def sentences(at_least: int) -> Domain:
    """Sequences of that many strings."""

    def fits(value: Any) -> bool | None:
        if isinstance(value, str | bytes | dict) or not isinstance(value, Sequence):
            return None if isinstance(value, dict | set) and all(isinstance(item, str) for item in value) else False
        if not all(isinstance(item, str) for item in value) or len(value) < at_least:
            return False
        return None

    return fits


def numbers(at_least: int, domain: Domain = number) -> Domain:
    """Sequences (or arrays) of that many numbers."""

    def fits(value: Any) -> bool | None:
        if isinstance(value, str | bytes | dict | set) or not hasattr(value, "__len__") or value is ...:
            return False
        if isinstance(value, np.ndarray | torch.Tensor) and value.ndim != 1:
            return False
        if len(value) < at_least or any(domain(item) is False for item in value):
            return False
        return None

    return fits


def augmentations(value: Any) -> bool | None:
    names = {"dropout", "none", "shuffle", "token_cutoff", "span_cutoff", "feature_cutoff"}
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    return all(isinstance(name, str) and name in names for name in value) and set(value) != {"dropout", "none"}


def held(result: Any, name: str, value: Any) -> str | None:
    """The oracle of an accepted setting: an object that tells its settings tells this one."""
    config = result.get_config_dict() if hasattr(result, "get_config_dict") else {}
    missing = object()
    kept = config.get(name, getattr(result, name, missing))
    if kept is missing or number(value) is not True or number(kept) is False:
        return None
    return None if math.isclose(float(kept), float(value), rel_tol=1e-6) else f"{name} is {kept!r}, not {value!r}"


@dataclass(frozen=True)
class Target:
    """A callable, arguments that it accepts, and the domains of the parameters to vary."""

    call: Callable[..., Any]
    domains: dict[str, Domain]
    good: dict[str, Any] = field(default_factory=dict)
    runs: bool = True  # False: only values that must be refused are tried, as the others start long work
    name: str = ""
