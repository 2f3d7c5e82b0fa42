"""Corpora: sentences held in Python or named by files and data sets, read once and in flat memory."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice, pairwise
from os import PathLike
from typing import Any

from st_extras.checks import check_count, check_seed, shown
from st_extras.text.columns import TextColumns, can_be_split, is_dataset, iterate_values
from st_extras.text.files import MAX_LINE, has_lone_surrogate
from st_extras.text.sources import DataSource, open_sources
from st_extras.text.words import INVISIBLE, SPACELESS

MAX_PROCESSES = 1024
"""Upper limit of the number of processes that work on a corpus."""
FEWEST_WITH_LETTERS = 0.5
"""A smaller share of texts with letters is taken for numbers or signs."""
Shard = tuple[int, int]
"""``(index, count)``: part ``index``, from 0, of ``count`` parts of a corpus."""
_MAX_SHARDS = 1_000_000
_SPACE = re.compile(rf"[\s\u200b{INVISIBLE}]*")
_MAX_SAMPLE = 2**31 - 1
_WORD = re.compile(rf"[{SPACELESS}]|[^\s{SPACELESS}]+")


def iterate_sentences(
    source: Any, column: str | None = None, *, name: str = "sentences", shard: Shard | None = None
) -> Iterator[str]:
    """Iterate over sentences held in Python, one at a time: an iterable of strings, or a data set with a text column.

    Args:
        source: a list, a generator, a column, or a ``datasets.Dataset`` or ``IterableDataset``.
        column: column of a data set. None: the usual ones, see :class:`~st_extras.text.columns.TextColumns`.
        name: name of the argument, for the messages.
        shard: ``(index, count)``, to yield every ``count``-th sentence from number ``index`` on. A stream of at least
            ``count`` files is split by its files instead, so that no shard reads all of them.

    Yields:
        The sentences, unchanged.

    Raises:
        ValueError: if ``source`` is a string, a path, a data set with splits (a ``DatasetDict``) or a data frame, the
            column does not exist, ``shard`` is not allowed, or a sentence is not a string or holds a lone surrogate.
    """
    if shard is not None:
        index, count = shard = check_shard(shard)
        if is_dataset(source, name=name) and can_be_split(source, count):
            source, name, shard = source.shard(count, index), f"{name}, shard {index}/{count}", None
    index, count = shard or (0, 1)
    for row, value in islice(iterate_values(source, TextColumns(column), name=name), index, None, count):
        yield check_sentence(value, f"{name}, row {row}")


def check_sentence(value: Any, where: str) -> str:
    """Return ``value`` if it is a string that can be written to a file.

    Raises:
        ValueError: if it is not a string, or holds a lone surrogate; the message begins with ``where``.
    """
    if not isinstance(value, str):
        hint = ": name the column, as in dataset['sentence']" if isinstance(value, Mapping) else ""
        raise ValueError(f"{where}: expected a sentence, got {value!r:.80}{hint}.")
    if has_lone_surrogate(value):
        raise ValueError(f"{where}: a sentence must be valid text, got a lone surrogate in {value!r:.80}.")
    return value


def is_blank(text: str) -> bool:
    """Return whether a text holds nothing but space and invisible characters, which ``str.strip`` leaves."""
    return _SPACE.fullmatch(text) is not None


def share_with_letters(texts: Sequence[str]) -> float:
    """Return the share of N >= 1 texts that hold a letter."""
    return sum(any(map(str.isalpha, text)) for text in texts) / len(texts)


def check_shard(shard: Any) -> Shard:
    """Return ``(index, count)`` if it is a part of a corpus: ``index`` counts from 0 to ``count - 1``.

    Raises:
        ValueError: if it is not.
    """
    index, count = shard
    count = check_count("shard's count", count, 1, _MAX_SHARDS)
    return check_count(f"shard's index, of {count} shards,", index, 0, count - 1), count


def parse_shard(text: str) -> Shard:
    """Return ``(index, count)`` of a text such as "3/16".

    Raises:
        ValueError: if it is anything else, or ``index`` is not below ``count``.
    """
    try:
        index, count = map(int, text.split("/"))
    except ValueError:
        raise ValueError(f'shard must be INDEX/COUNT with INDEX from 0, such as "3/16", got {shown(text)}.') from None
    return check_shard((index, count))


def distinct_sample(texts: Iterable[str], count: int, seed: int = 0) -> list[str]:
    """Draw a sample of the distinct texts of a stream, read once, with no more than the sample in memory.

    A text's number is a hash of it, and the ``count`` lowest stay (bottom-k sampling), so the sample does not depend on
    how often or in which order texts come. The global random state is left untouched.

    Args:
        texts: any iterable.
        count: number of texts to draw; all of them if there are fewer.
        seed: random seed.

    Returns:
        The sample, in the order of the stream (by first appearance).

    Raises:
        ValueError: if a setting is not allowed, or an item is not a string.
    """
    count = check_count("count", count, 1, _MAX_SAMPLE)
    key = blake2b(str(check_seed("seed", seed)).encode()).digest()
    heap: list[tuple[int, int, str]] = []  # (-number, -position, text): the highest number comes first
    kept: set[int] = set()  # numbers of the texts in the heap
    for position, text in enumerate(texts):
        content = check_sentence(text, f"texts, row {position}").encode()
        number = int.from_bytes(blake2b(content, digest_size=16, key=key).digest(), "big")
        if (len(heap) == count and number >= -heap[0][0]) or number in kept:
            continue
        heapq.heappush(heap, (-number, -position, text))
        kept.add(number)
        if len(heap) > count:
            kept.discard(-heapq.heappop(heap)[0])
    return [text for _, _, text in sorted(heap, key=lambda entry: -entry[1])]


def passages(texts: Iterable[str], words: int) -> Iterator[str]:
    """Cut each text into passages of at most ``words`` words, or characters of scripts without spaces."""
    for text in texts:
        ends = [word.end() for word in _WORD.finditer(text)]
        cuts = [0, *ends[words - 1 : -1 : words], len(text)]
        yield from (" ".join(text[start:end].split()) for start, end in pairwise(cuts))


def stream_sentences(
    sources: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    column: str | None = None,
    limit: int | None = None,
    max_line: int = MAX_LINE,
    shard: Shard | None = None,
) -> Iterator[str]:
    """Read the sentences of files, folders and data sets one after another, in flat memory.

    Args:
        sources: one or several of

            * a file: text with a sentence per line (any name), .jsonl (.ndjson), .csv or .tsv, also with .gz; .parquet,
              .arrow or .json; in upper or lower case. The first line of a .csv or .tsv file names the columns; quotes
              have a meaning in .csv files only;
            * a folder, which stands for all .txt, .jsonl, .csv, .tsv (also .gz), .parquet or .arrow files in it and
              below it, in the order of their names; they must be of one kind. Hidden files and copies such as
              ``a.txt~`` are not read, and ``a.txt`` beside ``a.txt.gz`` is refused. Or a folder in BEIR's layout, which
              stands for its documents; or what ``Dataset.save_to_disk`` wrote;
            * a pattern of files, such as ``data/*.parquet`` or ``data/**/*.txt``; again of one kind;
            * a data set id, ``owner/name``, ``owner/name:split`` or ``owner/name:configuration:split`` (the default
              split is train): downloaded once into the cache of ``datasets``;
            * ``hf://datasets/owner/name`` with the same endings: streamed, with nothing kept on disk; also the address
              of files, such as ``hf://datasets/owner/name/data/*.parquet`` or ``https://host/a.jsonl.gz``.
        column: column of jsonl, csv, tsv and parquet files and of data sets. None: the first of sentence, text,
            sentence1, content, contents that exists, with the column title before it; of parquet files and data sets,
            otherwise the only column of strings.
        limit: number of sentences after which to stop. None: read all.
        max_line: longest line of a local text file allowed, in bytes.
        shard: ``(index, count)``, to read every ``count``-th sentence from number ``index`` on, so that ``count``
            machines share a corpus. A stream of at least ``count`` files is split by its files.

    Returns:
        An iterator over the sentences in order, stripped, without empty ones. It can be read once.

    Raises:
        ValueError: at once if there is no such file or data set, or a setting is not allowed; while reading if a file
            is empty or damaged, a line of it is broken, too long, or not UTF-8, a value is not a string, or the column
            does not exist. The message names the file with its line or row.
    """
    names = [sources] if isinstance(sources, str | PathLike) else list(sources)
    if not names:
        raise ValueError("sources must name at least one text file or data set, got none.")
    if limit is not None:
        limit = check_count("limit", limit, 1)
    if shard is not None:
        shard = check_shard(shard)
    opened = [source for name in names for source in open_sources(str(name), TextColumns(column), max_line, shard)]
    return islice(_stripped(opened, shard), limit)


def _stripped(sources: list[DataSource], shard: Shard | None) -> Iterator[str]:
    index, count = shard or (0, 1)
    number = 0  # of sentences in the sources that are not split by their files
    for source in sources:
        empty = True
        for where, _, value in source.texts:
            if not is_blank(sentence := check_sentence(value, where).strip()):
                empty = False
                if source.is_split or number % count == index:
                    yield sentence
                number += not source.is_split
        if empty and not source.is_split:
            raise ValueError(f"{source.name!r} holds no sentences.")


def read_sentences(
    sources: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    column: str | None = None,
    limit: int | None = None,
    max_line: int = MAX_LINE,
    shard: Shard | None = None,
) -> list[str]:
    """Return all sentences of files, folders and data sets as a list; arguments and errors: ``stream_sentences``."""
    return list(stream_sentences(sources, column=column, limit=limit, max_line=max_line, shard=shard))
