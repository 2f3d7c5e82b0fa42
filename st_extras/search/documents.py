"""Documents with their ids, as a search takes them: a dict by id, a data set with a column of ids, or a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

from st_extras.checks import shown
from st_extras.files import digest
from st_extras.text.corpus import check_sentence, is_blank, is_dataset, iterate_sentences, text_rows
from st_extras.text.documents import check_id
from st_extras.text.tables import DOCUMENT_IDS, dataset_table, text_columns

Id = str | int


class Documents(NamedTuple):
    """N documents that have text.

    Attributes:
        ids: of each.
        texts: of each.
        places: where each stood among all, from 0.
        total: how many there are, those without text too.
    """

    ids: list[Id]
    texts: list[str]
    places: list[int]
    total: int

    def digest(self) -> str:
        """Return what recognizes ids and texts; an id that is a number is the same as text."""
        return digest([digest(map(str, self.ids)), digest(text.rstrip() for text in self.texts)])


def read_identified(documents: Any) -> Documents:
    """Return documents with their ids, without those that have no text.

    Args:
        documents: a dict of texts by id, a data set with a text column and one of ids, or any other iterable of texts,
            whose ids are their places from 0, blank ones counted.

    Raises:
        ValueError: if an id is neither a string nor a whole number or stands twice, a text is none, or all are blank.
    """
    if isinstance(documents, Mapping) and not any(hasattr(split, "column_names") for split in documents.values()):
        texts = [check_sentence(text, f"documents[{key!r}]") for key, text in documents.items()]
        ids = _checked_ids(documents)
    elif not isinstance(documents, Mapping) and is_dataset(documents, name="documents"):
        columns = text_columns(ids=("_id", *DOCUMENT_IDS, "id"), option="column")
        rows = [*text_rows(dataset_table(documents, "documents"), columns)]
        texts = [text for _, text, _ in rows]
        keys = [row.get("id") for _, _, row in rows]
        has_ids = any(key is not None for key in keys)
        ids = [check_id(key, where, "document") for key, (where, _, _) in zip(keys, rows, strict=True) if has_ids]
        ids = ids or [*range(len(texts))]
    else:
        texts = list(iterate_sentences(documents, name="documents"))
        ids = [*range(len(texts))]
        if hasattr(documents, "iloc") and list(documents.index) != ids:  # of pandas
            raise ValueError(
                "documents must be a dict by id, a data set or a list, got a Series with an index of its own: give "
                "series.to_dict(), or list(series) to number them from 0."
            )
    _check_different(ids)
    places = [place for place, text in enumerate(texts) if not is_blank(text)]
    if not places:
        raise ValueError(f"documents must hold at least one text that is not blank, got {len(texts)} blank ones.")
    return Documents([ids[place] for place in places], [texts[place] for place in places], places, len(texts))


def _checked_ids(given: Iterable[Any]) -> list[Id]:
    """Return ids as Python has them: those of numpy, too, are whole numbers."""
    ids: list[Id] = []
    for key in given:
        if isinstance(key, bool) or not isinstance(key, str | Integral):
            raise ValueError(f"documents must have strings or whole numbers as ids, got {shown(key)}.")
        ids.append(str(key) if isinstance(key, str) else int(key))
    return ids


def _check_different(ids: Sequence[Id]) -> None:
    if len(set(ids)) != len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise ValueError(f"documents must have different ids, got {shown(twice)} twice.")
