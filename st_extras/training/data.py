"""The text of ``train_encoder``: the data set that the trainer reads, and what a sample of it shows before training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from datasets import Dataset, Features, IterableDataset
from sentence_transformers.base.data_collator import DEFAULT_LABEL_COLUMNS

from st_extras.checks import shown
from st_extras.text.corpus import FEWEST_WITH_LETTERS, is_dataset, iterate_sentences, share_with_letters

logger = logging.getLogger(__name__)
_ROWS = 1000
"""Rows read at a time."""
_SAMPLED, _STREAMED = 2000, 500
"""Texts that are looked at: of a Dataset, and of a stream."""
_FEWEST_SAMPLED = 8
"""Fewer texts show nothing about the others."""


def training_dataset(data: Any) -> Dataset | IterableDataset:
    """Return sentences as a Dataset with the column ``sentence``, and a Dataset unchanged.

    An IterableDataset skips rows with an empty text, such as blank lines, and raises when it reaches one that is None.

    Raises:
        ValueError: if ``data`` has splits or no row, a text is empty or not a string, a label is missing, or a column
            other than the labels has no texts.
    """
    is_list = not is_dataset(data, name="data")
    if is_list:
        data = Dataset.from_dict({"sentence": list(iterate_sentences(data, name="data"))})
    begin = list(data.take(1)) if isinstance(data, IterableDataset) else data
    if len(begin) == 0:
        raise ValueError("data must hold at least one sentence, got none.")
    if isinstance(data, IterableDataset):
        if data.features is None:  # the trainer needs to know the columns
            data = data.cast(Dataset.from_list(begin).features)
        return data.filter(_has_texts, with_indices=True, fn_kwargs={"texts": _text_columns(data.features)})
    texts = _text_columns(data.features)
    rows_of_all = data.with_format(None).iter(_ROWS)  # without the user's transform
    for first, rows in zip(range(0, len(data), _ROWS), rows_of_all, strict=True):
        for name, column in rows.items():
            for i, value in enumerate(column, first):
                if name not in texts:
                    _check_label(value, i, name)
                elif not (value or "").strip():
                    place, remedy = f"data[{i}]", "leave it out"
                    if not is_list:
                        place += f"[{name!r}]"
                        remedy = f"leave such rows out with data.filter(lambda row: (row[{name!r}] or '').strip())"
                    raise ValueError(f"{place} must be a non-empty string, got {shown(value)}: {remedy}.")
    return data


def _check_label(value: Any, i: int, name: str) -> None:
    if value is None:
        raise ValueError(
            f"data[{i}][{name!r}] must be a number, got None: leave the column out with data.remove_columns({name!r})."
        )


def _text_columns(features: Features) -> list[str]:
    """Return the names of the columns of texts.

    Raises:
        ValueError: if there are none, labels are texts, or another column has no texts.
    """
    dtypes = {name: str(getattr(kind, "dtype", kind)) for name, kind in features.items()}
    texts = [name for name, dtype in dtypes.items() if dtype in ("string", "large_string")]
    wrong = [name for name in dtypes if (name in texts) == (name in DEFAULT_LABEL_COLUMNS)]
    if wrong or not texts:
        name = next(iter(wrong or dtypes))
        raise ValueError(
            "data must have texts in each column, except numbers in a column of labels named "
            f"{', '.join(DEFAULT_LABEL_COLUMNS[:-1])} or {DEFAULT_LABEL_COLUMNS[-1]}, got {name!r} ({dtypes[name]}): "
            f"leave it out with data.remove_columns({name!r})."
        )
    return texts


def _has_texts(row: dict[str, Any], i: int, texts: list[str]) -> bool:
    for name, value in row.items():
        if name not in texts:
            _check_label(value, i, name)
        elif value is None:
            raise ValueError(f"data[{i}][{name!r}] must be a string, got None.")
    return all(row[name].strip() for name in texts)


def spaced_texts(data: Dataset | IterableDataset) -> list[str]:
    """Return some texts of the first column of texts: 2,000 evenly spaced rows, or the first 500 of a stream."""
    name = _text_columns(data.features)[0]
    if isinstance(data, IterableDataset):
        return [row[name] for row in data.take(_STREAMED)]
    rows = range(0, len(data), -(-len(data) // _SAMPLED))
    return list(data.with_format(None).select_columns(name).select(rows)[name])


def warn_of_labels(data: Dataset | IterableDataset, texts: Sequence[str]) -> None:
    """Warn if the only column of texts seems to hold labels: texts that repeat, single words or numbers."""
    if len(texts) < _FEWEST_SAMPLED or len(_text_columns(data.features)) > 1:
        return
    words = sum(text.isascii() and len(text.split()) == 1 for text in texts)  # other scripts may write no spaces
    different, lettered = len(set(texts)), share_with_letters(texts)
    if 2 * different <= len(texts) or 2 * words > len(texts) or lettered < FEWEST_WITH_LETTERS:
        logger.warning(
            "The text looks like a column of labels: of %s sampled texts, %s are different, %s are one word and %.0f%% "
            "have a letter, such as %s. Equal and similar texts are negatives of each other: data must be the column "
            "of the sentences (--column).",
            *(f"{len(texts):,}", f"{different:,}", f"{words:,}", 100 * lettered, shown(texts[0])),
        )
