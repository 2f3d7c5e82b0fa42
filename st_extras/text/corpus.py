"""Corpora: sentences held in Python or named by files and data sets, read once and in flat memory."""

from __future__ import annotations

import heapq
import logging
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice, pairwise
from os import PathLike
from pathlib import Path
from typing import Any

from st_extras.checks import check_count, check_seed, has_lone_surrogate, shown
from st_extras.text.tables import Table, dataset_table, is_missing, open_tables, text_columns, warn_of_faults
from st_extras.text.words import INVISIBLE, SPACED_WORD

FEWEST_WITH_LETTERS = 0.5
"""A smaller share of texts with letters is taken for numbers or signs."""
Sources = str | PathLike[str] | Iterable[str | PathLike[str]]
"""One or several names of files, folders, patterns or data sets."""
_SPACE = re.compile(rf"[\s\u200b{INVISIBLE}]*")
_MAX_SAMPLE = 2**31 - 1
_CHECKED_FILES = 100  # whose first rows are read at once, so that a mistake is known before an encoder is loaded
_CHECKED_ROWS = 10
logger = logging.getLogger(__name__)


def iterate_sentences(source: Any, *, name: str = "sentences") -> Iterator[str]:
    """Iterate over sentences held in Python, one at a time: an iterable of strings, or a data set with a text column.

    Args:
        source: a list, a generator, a column, or a ``datasets.Dataset`` or ``IterableDataset``, of which the first
            column of sentence, text, sentence1, content, contents that exists is read, with the column title before
            it; otherwise the only column of strings.
        name: name of the argument, for the messages.

    Yields:
        The sentences, unchanged.

    Raises:
        ValueError: if ``source`` is a string, a path, a data set with splits (a ``DatasetDict``) or a data frame, there
            is no such column, or a sentence is not a string or holds a lone surrogate.
    """
    if is_dataset(source, name=name):
        columns = text_columns(remedy=f"keep one, as in {name}.select_columns(NAME)")
        yield from texts_of(dataset_table(source, name, columns))
        return
    yield from (check_sentence(value, f"{name}, row {row}") for row, value in enumerate(source))


def is_dataset(source: Any, *, name: str = "sentences") -> bool:
    """Return whether ``source`` is a data set with columns, rather than an iterable of values.

    Raises:
        ValueError: if it is neither: a string, a path, a dictionary (such as a ``DatasetDict`` with its splits), a data
            frame, or nothing that can be iterated over.
    """
    if isinstance(source, str):
        raise ValueError(f"{name} must be an iterable of strings, got the string {shown(source)}.")
    if isinstance(source, Mapping):
        keys = ", ".join(map(repr, list(source)[:10])) or "none"
        given = f"a {type(source).__name__} with the keys {keys}"
        if all(isinstance(value, str) for value in source.values()):
            hint = ": give its values, as in data.values()"
        else:
            hint = f": give one of them, as in data[{next(iter(source))!r}]"
    elif hasattr(source, "columns") and not hasattr(source, "column_names"):
        given, hint = f"a {type(source).__name__}", ": give a column of it, as in frame['sentence']"
    elif isinstance(source, Iterable) and not isinstance(source, bytes) and getattr(source, "shape", None) != ():
        return hasattr(source, "column_names")
    else:
        given = f"{type(source).__name__} {shown(source)}"
        hint = ": read it first with read_sentences" if isinstance(source, PathLike) else ""
    raise ValueError(f"{name} must be an iterable of strings or a data set, got {given}{hint}.")


def check_sentence(value: Any, where: str) -> str:
    """Return ``value`` if it is a string that can be written to a file.

    Raises:
        ValueError: if it is not a string, or holds a lone surrogate; the message begins with ``where``.
    """
    if not isinstance(value, str):
        hint = ": leave its row out, or fill it" if is_missing(value) else ""
        hint = ": name the column, as in dataset['sentence']" if isinstance(value, Mapping) else hint
        raise ValueError(f"{where}: expected a sentence, got {value!r:.80}{hint}.")
    if has_lone_surrogate(value):
        raise ValueError(f"{where}: a text must be valid, got a lone surrogate in {value!r:.80}.")
    return value


def texts_of(table: Table) -> Iterator[str]:
    """Yield the text of each row of a table with :func:`~st_extras.text.tables.text_columns`, its title before it.

    Raises:
        ValueError: as :meth:`Table.rows` and :func:`title_and_text`.
    """
    return (with_title(*title_and_text(row, where)) for where, row in table.rows())


def title_and_text(row: Mapping[str, Any], where: str) -> tuple[str, str]:
    """Return the title of a row, stripped and "" without one, and its text, which may be missing below a title.

    Raises:
        ValueError: as :func:`check_sentence`; the message begins with ``where``.
    """
    title, text = row.get("title"), row.get("text")
    if is_missing(title):
        return "", check_sentence(text, where)
    return check_sentence(title, f"{where}, title").strip(), "" if is_missing(text) else check_sentence(text, where)


def with_title(title: str, text: str) -> str:
    """Return a text with its title before it; one without a title as it is."""
    return f"{title} {text.strip()}".strip() if title else text


def is_blank(text: str) -> bool:
    """Return whether a text holds nothing but space and invisible characters, which ``str.strip`` leaves."""
    return _SPACE.fullmatch(text) is not None


def share_with_letters(texts: Sequence[str]) -> float:
    """Return the share of N >= 1 texts that hold a letter."""
    return sum(any(map(str.isalpha, text)) for text in texts) / len(texts)


def different_texts(texts: Iterable[str]) -> tuple[list[str], list[int]]:
    """Return the different ones of N texts, in the order in which they first come, and the place of each of the N.

    Encoded so, equal texts have equal embeddings, to the bit: the other texts of a batch change the last digits.
    """
    places: dict[str, int] = {}
    found = [places.setdefault(text, len(places)) for text in texts]
    return list(places), found


def sampled_texts(texts: Any, limit: int, seed: int, name: str = "texts") -> tuple[list[str], int]:
    """Sample different texts of a collection, a stream or a data set, in random order; blank ones are left out.

    Args:
        texts: read once.
        limit: at most this many.
        seed: which ones, and their order.
        name: of the argument that they are from, for messages.

    Returns:
        The sample, and how many texts were read.
    """
    read = 0

    def stripped() -> Iterator[str]:
        nonlocal read
        for text in map(str.strip, iterate_sentences(texts, name=name)):
            if not is_blank(text):
                read += 1
                yield text

    sample = distinct_sample(stripped(), limit, seed)
    random.Random(seed).shuffle(sample)  # text is often sorted by label or origin, and scored texts must be of all
    return sample, read


def distinct_sample(texts: Iterable[str], count: int, seed: int = 0) -> list[str]:
    """Draw a sample of the distinct texts of a stream, read once, with no more than the sample in memory.

    A text's number is a hash of it, and the ``count`` lowest stay (bottom-k sampling), so the sample does not depend on
    how often or in which order texts come. The global random state is left untouched.

    Args:
        texts: any iterable of valid texts.
        count: number of texts to draw; all of them if there are fewer.
        seed: random seed.

    Returns:
        The sample, in the order of the stream (by first appearance).

    Raises:
        ValueError: if a setting is not allowed.
    """
    count = check_count("count", count, 1, _MAX_SAMPLE)
    key = blake2b(str(check_seed("seed", seed)).encode()).digest()
    heap: list[tuple[int, int, str]] = []  # (-number, -position, text): the highest number comes first
    kept: set[int] = set()  # numbers of the texts in the heap
    for position, text in enumerate(texts):
        number = int.from_bytes(blake2b(text.encode(), digest_size=16, key=key).digest(), "big")
        if (len(heap) == count and number >= -heap[0][0]) or number in kept:
            continue
        heapq.heappush(heap, (-number, -position, text))
        kept.add(number)
        if len(heap) > count:
            kept.discard(-heapq.heappop(heap)[0])
    return [text for _, _, text in sorted(heap, key=lambda entry: -entry[1])]


def blocks_of_words(texts: Iterable[str], words: int) -> Iterator[str]:
    """Cut each text into blocks of at most ``words`` words, or characters of scripts without spaces, side by side."""
    for text in texts:
        ends = [word.end() for word in SPACED_WORD.finditer(text)]
        cuts = [0, *ends[words - 1 : -1 : words], len(text)]
        yield from (" ".join(text[start:end].split()) for start, end in pairwise(cuts))


def source_names(sources: Sources) -> list[str]:
    """Return the names of one or several sources as a list.

    Raises:
        ValueError: if they are texts or data sets that are held in Python.
    """
    names = []
    for source in [sources] if isinstance(sources, str | PathLike | Mapping) else sources:
        if not isinstance(source, str | PathLike):
            raise ValueError(
                f"sources must name files, folders or data sets, got {shown(source)}: texts held in Python need no "
                "reading."
            )
        names.append(str(source))
    return names


def stream_sentences(
    sources: Sources, *, column: str | None = None, limit: int | None = None, whole_files: bool = False
) -> Iterator[str]:
    """Read the sentences of files, folders and data sets one after another, in flat memory.

    Args:
        sources: one or several of

            * a file: text with a sentence per line (any name but those of other markup, such as .html), .md (.mdx,
              .markdown, .mkd, .mdown; a file is one text), .jsonl (.ndjson), .csv or
              .tsv, also with .gz, .bz2 or .xz; .parquet; .json (a list, or one object per line), which is read whole;
              in upper or lower case. The first row of a .csv or .tsv file names the columns. Fields of .csv files are
              separated by commas, semicolons, tabs or bars: whichever gives the column. Quotes of a .tsv file enclose
              fields if all of it can be read so and one of them holds a quote, a tab or a line end. The title of a .md
              file, in its front matter (YAML, TOML or JSON) or else its first heading, stands before the text;
            * a folder, which stands for all .txt, .md, .jsonl, .csv, .tsv (also .gz) or .parquet files in it and below
              it, in the order of their names; they must be of one kind. Hidden files, copies such as ``a.txt~`` and
              folders of encoders are not read; the log has the number of files that are not. ``a.txt`` beside
              ``a.txt.gz`` is refused. Or a folder in BEIR's layout, which stands for its documents;
            * a pattern of files, such as ``data/*.parquet`` or ``data/**/*.txt``; again of one kind;
            * a data set id, ``owner/name``, ``owner/name:split`` or ``owner/name:configuration:split`` (the default
              split is train): downloaded once into the cache of ``datasets``;
            * ``hf://datasets/owner/name`` with the same endings: streamed, with nothing kept on disk.
        column: column of tables and data sets. None: the first of sentence, text, sentence1, content, contents that
            exists, with the column title before it; of parquet files and data sets, otherwise the only column of
            strings.
        limit: number of sentences after which to stop. None: read all.
        whole_files: a .txt file is one text, rather than a text for each line.

    Returns:
        An iterator over the sentences in order, stripped, without empty ones. It can be read once. The log names files
        without sentences.

    Raises:
        ValueError: at once if there is no such file or data set, a setting is not allowed, or the first rows of a file
            cannot be read; while reading if a file is damaged, a line of it is broken, too long, or not UTF-8, a value
            is not a string, or there is no sentence. The message names the file with its line or row.
    """
    names = source_names(sources)
    if not names:
        raise ValueError("sources must name at least one text file or data set, got none.")
    if limit is not None:
        limit = check_count("limit", limit, 1)
    tables = [table for name in names for table in open_tables(name, text_columns(column), whole_files=whole_files)]
    for table in [table for table in tables if Path(table.name).is_file()][:_CHECKED_FILES]:
        for _ in islice(texts_of(table), _CHECKED_ROWS):
            pass
    return islice(_stripped(tables), limit)


def _stripped(tables: list[Table]) -> Iterator[str]:
    empty = []
    try:
        for table in tables:
            has_text = False
            for sentence in texts_of(table):
                if not is_blank(sentence):
                    has_text = True
                    yield sentence.strip()
            if not has_text:
                empty.append(table.name)
    finally:  # also where the caller wants no more
        warn_of_faults(tables)
    if len(empty) == len(tables):
        raise ValueError(f"{empty[0]!r} holds no sentences.")
    if empty:
        logger.warning("%d of %d files hold no sentences, such as %r.", len(empty), len(tables), empty[0])


def read_sentences(sources: Sources, *, column: str | None = None, limit: int | None = None) -> list[str]:
    """Return all sentences of files, folders and data sets as a list; arguments and errors: ``stream_sentences``."""
    return list(stream_sentences(sources, column=column, limit=limit))
