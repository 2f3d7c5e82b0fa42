"""Which files of a folder are meant: those with known endings, and never one of two that could both be meant.

Hidden files and copies that editors and merges leave behind (``corpus.jsonl~``, ``test.tsv.orig``) are not read. Files
of two kinds are refused together, and so are a file and its packed form, such as ``a.txt`` and ``a.txt.gz``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import escape, glob, has_magic
from itertools import takewhile
from os import PathLike
from pathlib import Path

from st_extras.text.files import KINDS, file_kind

logger = logging.getLogger(__name__)
TABLES = (".jsonl", ".csv", ".tsv", ".parquet")
"""The kinds of files that hold texts with ids."""
JUDGEMENTS = (*TABLES, ".txt", ".qrel", ".qrels", ".trec")
"""The kinds of files that hold judgements of relevance."""
_COPIES = ("~", ".bak", ".bk", ".old", ".orig", ".part", ".swp", ".tmp")
"""Endings of what editors, merges and downloads leave beside a file."""
_ENCODER_FILES = {"modules.json", "config_sentence_transformers.json"}
"""A folder with these files is that of an encoder: its card and other files are not read as text."""
KEY_OF_SEARCH = b"st_extras.search"
"""In the metadata of a file that HybridSearch.save wrote: what it says about the search."""
_TEXTS = tuple(kind for kind in KINDS if kind != ".json")  # folders of data sets describe themselves in .json


def stem_of(file: Path, kinds: Sequence[str]) -> str | None:
    """Return the name of a file without its endings; None if it is hidden or has no ending of ``kinds``."""
    plain = file.with_suffix("") if file_kind(file)[1] else file
    kind = file_kind(plain)[0] or plain.suffix.lower()
    if file.name.startswith(".") or kind not in kinds:
        return None
    return plain.name[: len(plain.name) - len(plain.suffix)]


def is_copy(path: str | PathLike[str]) -> bool:
    """Return whether a file is a copy that an editor, a merge or a download left, as its name says."""
    return str(path).lower().endswith(_COPIES)


def find_files(folder: Path, stem: str, kinds: Sequence[str]) -> list[Path]:
    """Return the files of a folder that are called ``stem`` with an ending of ``kinds``, packed or not."""
    return sorted(file for file in folder.iterdir() if stem_of(file, kinds) == stem and file.is_file())


def find_file(folder: Path, stem: str, kinds: Sequence[str]) -> Path:
    """Return the only file of a folder that is called ``stem`` with an ending of ``kinds``, packed or not.

    Raises:
        ValueError: if there is none, or more than one.
    """
    return only_one(find_files(folder, stem, kinds), folder, f"{stem} file ({', '.join(kinds)}, also .gz)")


def only_one(files: Sequence[Path], folder: Path, what: str) -> Path:
    """Return the only one of ``files``.

    Raises:
        ValueError: if there is none, or more than one; the message names them.
    """
    if len(files) != 1:
        names = " and ".join(str(file.relative_to(folder)) for file in files) or "none"
        raise ValueError(f"{str(folder)!r} must hold one {what}, got {names}.")
    return files[0]


# --- texts ---


def files_of_folder(folder: Path) -> list[Path]:
    """Return the files with texts in a folder and below it, sorted by name, without encoders and files of searches.

    The log has these, and the number of other files that are not hidden.

    Raises:
        ValueError: if there are none, they are of several kinds, or one is there twice, packed and not.
    """
    files: list[Path] = []
    others: list[Path] = []
    known: set[Path] = set()  # folders that links lead to again
    for root, below, names in os.walk(folder, followlinks=True):  # unlike Path.rglob
        place = Path(root)
        is_encoder = {*names} >= _ENCODER_FILES
        if is_encoder:
            logger.warning("%s holds an encoder, and is not read as text.", place)
        if is_encoder or place.resolve() in known:
            below.clear()
            continue
        known.add(place.resolve())
        below[:] = sorted(name for name in below if name[0] != ".")
        for file in (place / name for name in names if name[0] != "."):
            (files if stem_of(file, _TEXTS) and file.is_file() else others).append(file)
    files = _without_searches(sorted(files))
    if not files:
        raise ValueError(f"'{folder}' is a folder without {', '.join(_TEXTS)} files: give files.")
    return _check_one_kind(files, others, str(folder))


def files_of_pattern(pattern: str) -> list[Path]:
    """Return the files that match a pattern, sorted by name, without files of searches; if some have known endings,
    those alone.

    The log has the searches, and the number of the others.

    Raises:
        ValueError: if there are none, they are of several kinds, or one is there twice, packed and not.
    """
    files = _without_searches(sorted(file for file in map(Path, glob(pattern, recursive=True)) if file.is_file()))
    if not files:
        raise ValueError(f"There is no file that matches {pattern!r}.")
    known = {file for file in files if stem_of(file, KINDS)} or {file for file in files if not is_copy(file)}
    others = [file for file in files if file not in known] if known else []
    return _check_one_kind(sorted(known) or files, others, pattern)


def _without_searches(files: list[Path]) -> list[Path]:
    """Return the files that ``HybridSearch.save`` did not write; the log has those that it wrote."""
    kept = []
    for file in files:
        if _holds_search(file):
            logger.warning("%s holds a search, and is not read as text.", file)
        else:
            kept.append(file)
    return kept


def _holds_search(file: Path) -> bool:
    if file_kind(file) != (".parquet", ""):
        return False
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow.parquet import read_metadata  # type: ignore[import-untyped]

    try:
        return KEY_OF_SEARCH in (read_metadata(file).metadata or {})
    except (pyarrow.ArrowException, OSError):  # which is reported where the file is read
        return False


def _check_one_kind(files: list[Path], others: list[Path], where: str) -> list[Path]:
    """Return ``files`` if they are of one kind; the log has the number of the others, if there are any."""
    by_kind: dict[str, list[Path]] = {}
    for file in files:
        by_kind.setdefault(file_kind(file)[0], []).append(file)
    if len(by_kind) > 1:
        kinds = sorted(by_kind, key=lambda kind: (-len(by_kind[kind]), kind == ".md"))  # a README describes the others
        got = " and ".join(f"{len(by_kind[kind]):,} {kind} (such as {by_kind[kind][0]})" for kind in kinds)
        endings = {"".join(file.suffixes[-1 - bool(file_kind(file)[1]) :]) for file in by_kind[kinds[0]]}
        parts = Path(where).parts
        root = (
            Path(escape(where)) if Path(where).is_dir() else Path(*takewhile(lambda part: not has_magic(part), parts))
        )
        patterns = [repr(str(root / "**" / f"*{ending}")) for ending in sorted(endings)]
        raise ValueError(
            f"{where!r} must stand for files of one kind, got {got}: give patterns of those to read, such as "
            f"{' and '.join(patterns)}."
        )
    plain: dict[Path, Path] = {}
    for file in files:
        other = plain.setdefault(file.with_suffix("") if file_kind(file)[1] else file, file)
        if other != file:
            raise ValueError(f"{where!r} must stand for each file once, got {other} and {file}: give one of them.")
    if others:
        read, unread = f"{len(files):,}", f"{len(others):,}"
        logger.warning("%s: files read: %s, not read: %s, such as %s.", where, read, unread, min(others))
    return files


# --- search collections ---


@dataclass(frozen=True)
class SearchFolder:
    """A folder in BEIR's layout: ``corpus.jsonl``, ``queries.jsonl``, and judgements such as ``qrels/test.tsv``.

    Attributes:
        corpus: the file of the documents.
        queries: the file of the queries, if there is one.
        judgements: files of judgements by the name of their split; that of ``qrels.tsv`` is "qrels".
    """

    corpus: Path
    queries: Path | None
    judgements: dict[str, Path]


def find_search_folder(path: str | PathLike[str]) -> SearchFolder | None:
    """Return what a folder in BEIR's layout holds; None if it is something else.

    It is one if it has a table of documents called ``corpus``, and one of ``queries`` or judgements.

    Raises:
        ValueError: if two of its files could be meant.
    """
    folder = Path(path)
    if not folder.is_dir() or not find_files(folder, "corpus", TABLES):
        return None
    judgements = find_judgements(folder)
    queries = find_file(folder, "queries", TABLES) if find_files(folder, "queries", TABLES) else None
    if queries is None and not judgements:
        return None
    return SearchFolder(find_file(folder, "corpus", TABLES), queries, judgements)


def find_judgements(folder: Path) -> dict[str, Path]:
    """Return the files of judgements by their splits: ``qrels/SPLIT.tsv``, ``qrels.SPLIT.tsv`` or ``qrels.tsv``.

    Raises:
        ValueError: if there are two of a split.
    """
    inside: Iterable[Path] = sorted((folder / "qrels").iterdir()) if (folder / "qrels").is_dir() else ()
    by_split: dict[str, list[Path]] = {}
    for file in (*inside, *sorted(folder.glob("qrels.*"))):
        stem = stem_of(file, JUDGEMENTS)
        if stem is not None and file.is_file():
            by_split.setdefault(stem.removeprefix("qrels."), []).append(file)
    return {split: only_one(files, folder, f"file of the judgements {split}") for split, files in by_split.items()}
