"""Labels of texts: what a label may be, and labels as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from st_extras.checks import shown


def check_label(value: Any, where: str) -> str:
    """Return a label as text: 3 and "3" are the same label.

    Raises:
        ValueError: if it is neither a string nor a whole number, or is empty; the message begins with ``where``.
    """
    if isinstance(value, bool) or not isinstance(value, str | Integral):
        raise ValueError(f"{where}: a label must be a string or a whole number, got {shown(value)}.")
    if not str(value).strip():
        raise ValueError(f"{where}: a label must not be empty, got {shown(value)}.")
    return str(value)


def check_labels(name: str, labels: Any, count: int, texts: str = "texts") -> list[str]:
    """Return the labels of ``count`` texts as text.

    Args:
        name: the argument's name, for the messages.
        labels: a list, an array, a tensor or another iterable of strings or whole numbers.
        count: how many there must be.
        texts: name of the argument that they are the labels of, for the messages.

    Raises:
        ValueError: if they are none of these, one is not allowed, or their number is another.
    """
    if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Iterable) or getattr(labels, "ndim", 1) == 0:
        raise ValueError(f"{name} must be a list of strings or whole numbers, got {shown(labels)}.")
    values = labels.tolist() if isinstance(labels, Tensor | np.ndarray) else labels
    listed = [check_label(value, f"{name}, row {row}") for row, value in enumerate(values)]
    if len(listed) != count:
        raise ValueError(f"{name} must have one label for each of the {texts}, got {len(listed)} for {count}.")
    return listed


def check_together(name: str, value: Any, labels_name: str, labels: Any) -> None:
    """Check that texts or embeddings and their labels are both given, or neither.

    Raises:
        ValueError: if one of them is None alone.
    """
    if (value is None) != (labels is None):
        missing = name if value is None else labels_name
        raise ValueError(f"{name} and {labels_name} must be given together, got {missing}=None: give both, or neither.")


def check_different(name: str, labels: list[str]) -> None:
    """Check that there are two labels to tell apart.

    Raises:
        ValueError: if all labels are the same, or there is none.
    """
    if len(set(labels)) < 2:
        found = f"only {shown(labels[0])}" if labels else "none"
        raise ValueError(f"{name} must hold at least two different labels, got {found}.")


def label_numbers(*lists: list[str]) -> list[Tensor]:
    """Return each list of labels as a tensor of whole numbers from 0; equal labels get equal numbers in all lists."""
    numbers = {label: number for number, label in enumerate(sorted({label for labels in lists for label in labels}))}
    return [torch.tensor([numbers[label] for label in labels]) for labels in lists]
