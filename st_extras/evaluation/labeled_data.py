"""A reader of texts with labels."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

from st_extras.checks import shown
from st_extras.text.corpus import check_sentence
from st_extras.text.files import file_kind
from st_extras.text.tables import TEXT_COLUMNS, Column, open_file

_TABLES = (".tsv", ".csv", ".jsonl", ".parquet", ".json")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabeledTexts:
    """Texts and their labels, such as the intent of a question or the topic of a title.

    Attributes:
        texts: N texts.
        labels: N labels.
    """

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)


def load_labeled_texts(
    path: str | PathLike[str], *, text_column: str | None = None, label_column: str = "label"
) -> LabeledTexts:
    """Read labelled texts from a .tsv, .csv, .jsonl, .json or .parquet file; the first three also with .gz.

    The first row of a .tsv or .csv file names the columns. Texts and labels are stripped; a label that is a whole
    number becomes text.

    Args:
        path: the file.
        text_column: the texts' column. None: the first of sentence, text, sentence1, content that exists.
        label_column: the labels' column.

    Raises:
        ValueError: if there is no such file or column, the file is of another kind, empty or damaged, a text is no
            string or empty, or a label is neither a string nor a whole number, or empty. The message names the file
            with its line or row.

    Example:
        >>> from pathlib import Path
        >>> from st_extras.evaluation import load_labeled_texts
        >>> _ = Path("intents.tsv").write_text("label\\ttext\\nlost\\tWhere is my card?\\npin\\tI forgot my PIN.\\n")
        >>> load_labeled_texts("intents.tsv").labels
        ['lost', 'pin']
    """
    file = Path(path)
    if file.is_dir() or not file.exists():
        raise ValueError(f"There is no file of labelled texts {str(file)!r}.")
    if file_kind(file)[0] not in _TABLES:
        raise ValueError(f"path must be a file whose name ends in {', '.join(_TABLES)}, got {str(file)!r}.")
    texts: list[str] = []
    labels: list[str] = []
    columns = {
        "text": Column(TEXT_COLUMNS, text_column, "text_column (--text-column) can name another"),
        "label": Column((), label_column, "label_column (--label-column) can name another"),
    }
    for where, row in open_file(file, columns).rows():
        text, label = row["text"], row["label"]
        if not check_sentence(text, where).strip():
            raise ValueError(f"{where}: a text must not be empty, got {shown(text)}: leave its row out.")
        texts.append(text.strip())
        labels.append(check_label(label, where).strip())
    if not texts:
        raise ValueError(f"{str(file)!r} holds no labelled text.")
    return LabeledTexts(texts, labels)


def without_labeled(texts: Sequence[str], labeled: Iterable[str]) -> list[str]:
    """Return the texts without a label, so that nothing is fitted on texts that choose or score it.

    Args:
        texts: N texts of a corpus.
        labeled: texts that have labels; spaces do not count.

    Returns:
        The other texts, in order; the log has their number.

    Raises:
        ValueError: if most of the texts have labels.
    """
    known = {" ".join(text.split()) for text in labeled}
    others = [text for text in texts if " ".join(text.split()) not in known]
    found = len(texts) - len(others)
    if 2 * found > len(texts):
        raise ValueError(
            f"labelled texts must be apart from those to fit on, got a label for {found} of {len(texts)}: give other "
            "texts, or labels for a small part of these."
        )
    if found:
        logger.warning("Texts that have a label are not fitted on: %d of %d.", found, len(texts))
    return others


def check_label(value: Any, where: str) -> str:
    """Return a label as text: 3 and "3" are the same.

    Raises:
        ValueError: if it is neither a string nor a whole number, or is empty; the message begins with ``where``.
    """
    if isinstance(value, bool) or not isinstance(value, str | Integral):
        raise ValueError(f"{where}: a label must be a string or a whole number, got {shown(value)}.")
    if not str(value).strip():
        raise ValueError(f"{where}: a label must not be empty, got {shown(value)}.")
    return str(value)
