"""Reader of labelled texts: a table file with a column of texts and a column of labels."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from st_extras.checks import check_instance, shown
from st_extras.evaluation.labels import check_label
from st_extras.text.corpus import check_sentence
from st_extras.text.files import MAX_LINE, file_kind
from st_extras.text.sources import open_sources

_TABLES = (".tsv", ".csv", ".jsonl", ".parquet", ".json")


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
    path: str | PathLike[str],
    *,
    text_column: str | None = None,
    label_column: str = "label",
    max_line: int = MAX_LINE,
) -> LabeledTexts:
    """Read labelled texts from a .tsv, .csv, .jsonl, .json or .parquet file; the first three also with .gz.

    The first line of a .tsv or .csv file names the columns; quotes have a meaning in .csv files only. Texts and labels
    are stripped; a label that is a whole number becomes text.

    Args:
        path: the file.
        text_column: the texts' column. None: the first of sentence, text, sentence1, content that exists.
        label_column: the labels' column.
        max_line: longest line of a text file allowed, in bytes.

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
    if not isinstance(path, str | PathLike):
        raise ValueError(f"path must be the path of a file, got {shown(path)}.")
    check_instance("text_column", text_column, str, or_none=True)
    check_instance("label_column", label_column, str)
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"There is no file of labelled texts {str(file)!r}.")
    if file_kind(file)[0] not in _TABLES:
        raise ValueError(f"path must be a file whose name ends in {', '.join(_TABLES)}, got {str(file)!r}.")
    texts: list[str] = []
    labels: list[str] = []
    columns = [open_sources(str(file), column, max_line)[0].values for column in (text_column, label_column)]
    for (where, text), (_, label) in zip(*columns, strict=True):
        texts.append(_not_empty(check_sentence(text, where), where))
        labels.append(check_label(label, where).strip())
    if not texts:
        raise ValueError(f"{str(file)!r} holds no labelled text.")
    if texts == labels:  # lines of .jsonl that are strings, or one column asked for twice
        raise ValueError(f"{str(file)!r} must have a column of texts and one of labels, got the same for both.")
    return LabeledTexts(texts, labels)


def _not_empty(text: str, where: str) -> str:
    """Return a text, stripped.

    Raises:
        ValueError: if nothing is left.
    """
    if not text.strip():
        raise ValueError(f"{where}: a text must not be empty, got {shown(text)}: leave its line out.")
    return text.strip()
