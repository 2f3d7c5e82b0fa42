"""Documents with their ids, as a search takes them: a dict by id, a data set with a column of ids, or a list."""

from __future__ import annotations

from typing import Any, NamedTuple

from st_extras.files import digest
from st_extras.text.corpus import is_blank
from st_extras.text.documents import as_documents

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
    read = as_documents(documents)
    ids, texts = [one.id for one in read], [one.full_text for one in read]
    places = [place for place, text in enumerate(texts) if not is_blank(text)]
    if not places:
        raise ValueError(f"documents must hold at least one text that is not blank, got {len(texts)} blank ones.")
    return Documents([ids[place] for place in places], [texts[place] for place in places], places, len(texts))
