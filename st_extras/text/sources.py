"""Opening what names a corpus: files, folders, patterns, data set ids and addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from glob import escape, has_magic
from itertools import chain
from pathlib import Path
from typing import Any

from st_extras.text.columns import TextColumns, can_be_split, iterate_rows
from st_extras.text.files import file_kind, is_unpacked, parse_json, read_lines, read_records
from st_extras.text.folders import files_of_folder, files_of_pattern, find_search_folder

Texts = Iterator[tuple[str, Any, Any]]
"""``(place, id or None, text)``; the place is a file with its line or row, for messages."""

_LINES = (".txt", ".jsonl", ".csv", ".tsv")  # read here, with errors that name the line
_LOADERS: dict[str, tuple[str, dict[str, Any]]] = {  # read by datasets: the name of its loader, and its settings
    ".parquet": ("parquet", {"batch_size": 1000}),
    ".arrow": ("arrow", {}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t", "quoting": 3}),
    ".txt": ("text", {}),
}
_AHEAD = 1000  # rows of a file that are read together


@dataclass(frozen=True)
class DataSource:
    """A file or data set that is being read.

    Attributes:
        name: what the user called it, or its path.
        texts: its texts with their places and ids, read once.
        is_split: whether ``texts`` are those of one shard alone.
    """

    name: str
    texts: Texts
    is_split: bool = False


def open_sources(
    name: str, columns: TextColumns, max_line: int, shard: tuple[int, int] | None = None
) -> list[DataSource]:
    """Open what ``name`` stands for: one source, or each file of a folder or pattern; of a search folder, its corpus.

    Files are read when their texts are asked for; data sets are found, and downloaded, at once.

    Raises:
        ValueError: if there is nothing of that name, or it is not clear which files are meant.
    """
    if not name.strip():
        raise ValueError(f"A source of text must be a file, folder, pattern or data set, got {name!r}.")
    path = Path(name)
    if "://" in name:
        return [_of_dataset(name, partial(_load_address, name), columns, shard)]
    if path.is_file() or path.is_fifo():
        return [_of_file(path, columns, max_line)]
    if path.is_dir():
        if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            return [_of_dataset(name, partial(_load_saved, path), columns, shard)]
        collection = find_search_folder(path)
        files = files_of_folder(path) if collection is None else [collection.corpus]
        return [_of_file(file, columns, max_line) for file in files]
    if has_magic(name):
        return [_of_file(file, columns, max_line) for file in files_of_pattern(name)]
    check_no_missing_file(name)
    return [_of_dataset(name, partial(_load_hub, name, streaming=False), columns, shard)]


def check_no_missing_file(name: str) -> None:
    """Refuse the name of a file or folder that is not there; a data set's id and a pattern pass.

    Raises:
        ValueError: with that name.
    """
    path = Path(name)
    looks_like_file = any(file_kind(path)) or path.is_absolute() or name.startswith((".", "~"))
    if (looks_like_file or name.count("/") > 1) and not (path.exists() or "://" in name or has_magic(name)):
        raise ValueError(f"There is no file {name!r}.")


# --- files ---


def _of_file(path: Path, columns: TextColumns, max_line: int) -> DataSource:
    kind, packed = file_kind(path)
    original = file_kind(
        path.with_name(path.name.removesuffix("~")) if path.name.endswith("~") else path.with_suffix("")
    )
    if not is_unpacked(path):
        raise ValueError(f"{str(path)!r} must be plain, .gz, .bz2 or .xz, got a file that ends in {packed}: unpack it.")
    if not kind and original[0] not in ("", ".txt"):
        raise ValueError(f"{str(path)!r} looks like a copy of a {original[0]} file: rename it if it shall be read.")
    if kind == ".parquet" and not packed:
        return DataSource(str(path), _in_one_line(str(path), partial(_parquet, path, columns)))
    if kind and kind not in _LINES:
        return DataSource(str(path), _texts_of_rows(str(path), partial(_load_files, escape(str(path))), columns))
    if kind == ".jsonl":
        return DataSource(str(path), _jsonl(path, columns, max_line))
    if kind in (".csv", ".tsv"):
        return DataSource(str(path), _table(path, columns, max_line, is_csv=kind == ".csv"))
    lines = read_lines(path, max_line=max_line)
    return DataSource(str(path), ((f"{path}, line {number}", None, line) for number, line in lines))


def _jsonl(path: Path, columns: TextColumns, max_line: int) -> Texts:
    for number, line in read_lines(path, max_line=max_line):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        row = parse_json(line, where)
        key, text = columns.choose(where, row).read(row) if isinstance(row, dict) else (None, row)
        yield where, key, text


def _table(path: Path, columns: TextColumns, max_line: int, *, is_csv: bool) -> Texts:
    rows = read_records(path, delimiter="," if is_csv else "\t", quoted=is_csv, max_line=max_line)
    _, names = next(rows, (1, None))
    if names is None:
        return
    hint = "; its first row must be a header that names the columns (add one if that is text)"
    hint += "" if columns.ids else ", and --column (column=) can name another"
    if len(names) == 1 and any(sign in names[0] for sign in ",;\t"):
        hint = f"; fields must be separated by {'commas' if is_csv else 'tabs'}"
    chosen = columns.choose(str(path), names, hint=hint)
    for number, row in rows:
        yield f"{path}, line {number}", *chosen.read(dict.fromkeys(names) | dict(zip(names, row, strict=False)))


def _parquet(path: Path, columns: TextColumns) -> Iterator[tuple[int, Any, Any]]:
    """Yield ``(row, id or None, text)``; ``datasets`` would keep the row groups read so far in memory."""
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    with ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
        strings = (pyarrow.string(), pyarrow.large_string())
        textual = [field.name for field in file.schema_arrow if field.type in strings]
        chosen = columns.choose(str(path), file.schema_arrow.names, textual)
        batches = file.iter_batches(_AHEAD, columns=[name for name in chosen if name is not None])
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        yield from ((number, *chosen.read(row)) for number, row in enumerate(rows))


# --- what datasets reads ---


def _of_dataset(name: str, load: Callable[[], Any], columns: TextColumns, shard: tuple[int, int] | None) -> DataSource:
    try:
        dataset = load()
    except Exception as error:
        raise ValueError(f"{name!r} is neither a file nor a data set that could be loaded {_reason(error)}.") from error
    if shard is None or not can_be_split(dataset, shard[1]):
        return DataSource(name, _texts_of_rows(name, lambda: dataset, columns))
    part = f"{name}, shard {shard[0]}/{shard[1]}"
    return DataSource(name, _texts_of_rows(part, lambda: dataset.shard(shard[1], shard[0]), columns), is_split=True)


def _texts_of_rows(name: str, load: Callable[[], Any], columns: TextColumns) -> Texts:
    """Yield the texts of a data set that ``load`` returns."""
    return _in_one_line(name, lambda: iterate_rows(load(), columns, name=name, ahead=_AHEAD))


def _in_one_line(name: str, read: Callable[[], Iterator[tuple[int, Any, Any]]]) -> Texts:
    """Yield the texts with their places; an error inside of another package becomes one line that names the place."""
    row = -1
    try:
        for row, key, text in read():
            yield f"{name}, row {row}", key, text
    except Exception as error:
        if type(error) is ValueError and str(error).startswith(name):
            raise  # our own, about the column
        place = f"{name}: could not be read" if row < 0 else f"{name}: could not be read after row {row}"
        raise ValueError(f"{place} {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"({type(error).__name__}: {lines[0] if lines else 'no reason given'})"


def _load_files(files: str) -> Any:
    """Return the stream of the files that a path, a pattern or an address names."""
    from datasets import load_dataset

    kind, _ = file_kind(files)
    loader, settings = _LOADERS[kind]
    return load_dataset(loader, data_files=files, split="train", streaming=True, **settings)


def _load_saved(folder: Path) -> Any:
    """Return the data set that ``save_to_disk`` wrote, mapped to memory."""
    from datasets import load_from_disk

    if not (folder / "state.json").is_file():
        splits = sorted(part.name for part in folder.iterdir() if part.is_dir())
        raise ValueError(
            f"it has the splits {', '.join(splits)}: give one of its folders, as in '{folder / splits[0]}'"
        )
    return load_from_disk(str(folder))


def _load_hub(name: str, *, streaming: bool) -> Any:
    """Return a split of a data set of the Hub: ``owner/name``, ``...:split`` or ``...:configuration:split``."""
    from datasets import load_dataset

    repository, *rest = name.split(":")
    if len(rest) > 2:
        raise ValueError("expected owner/name, owner/name:split or owner/name:configuration:split")
    options: dict[str, Any] = {"name": rest[0]} if len(rest) == 2 else {}
    options |= {"streaming": True} if streaming else {}
    repository, _, revision = repository.partition("@")
    options |= {"revision": revision} if revision else {}
    return load_dataset(repository, split=(rest[-1] if rest else "") or "train", **options)


def _load_address(name: str) -> Any:
    """Return the stream of an address: ``hf://datasets/owner/name`` as a data set, everything else as files."""
    rest = name.removeprefix("hf://").removeprefix("datasets/")
    if name.startswith("hf://") and rest.count("/") <= 1:
        return _load_hub(rest, streaming=True)
    if not file_kind(name)[0]:
        raise ValueError(f"expected an address that ends in {', '.join(_LOADERS)}, such as hf://.../*.parquet")
    return _load_files(name)
