"""Files of each format, changed, through their readers; a second, slow and plain reader is the oracle."""

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from st_extras.evaluation import load_labeled_texts, load_retrieval, load_sts
from st_extras.text import read_sentences
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.changes import HARMLESS, MOST, PACKERS, changed
from tests.fuzz.classify import ACCEPT, EITHER, REFUSE, Case

TEXTS = [*SENTENCES, "naïve café — ß", "日本語 の 文", "it's 5 o'clock, \"now\""]
_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress
}  # fmt: skip
Expected = tuple[str, Any]
"""REFUSE, ACCEPT or EITHER, and what an accepted file must be read as (None: anything)."""
_NO: Expected = REFUSE, None
_ANY: Expected = EITHER, None


# --- the oracle ---


def decoded(data: bytes, packed: str) -> str | None:
    """The text of a file, None if it must be refused."""
    try:
        data = _UNPACKERS[packed](data)
        text = data.decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, OSError, zlib.error, lzma.LZMAError):
        return None
    return None if "\0" in text or max(map(len, re.split(rb"[\r\n]", data))) > MOST else text


def _lines(text: str) -> list[str]:
    """Lines end at LF or CRLF; in a file without LF, at CR."""
    return re.split(r"\r\n|\n" if "\n" in text else "\r", text)


def _stripped(values: list[str]) -> Expected:
    kept = [value.strip() for value in values if value.strip()]
    return (EITHER, kept) if kept else _NO


def _jsonl(text: str) -> Expected:
    try:
        rows = [json.loads(line) for line in _lines(text) if line.strip()]
        values = [row["sentence"] if isinstance(row, dict) else row for row in rows]
        "".join(values).encode("utf8")
    except (ValueError, KeyError, TypeError):
        return _ANY if '"sentence"' not in text else _NO
    return _stripped(values)


def _csv(text: str) -> Expected:
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except (csv.Error, ValueError):
        return _NO
    if "sentence" not in header:
        return _ANY
    wrong = any(len(row) != len(header) for row in rows)
    return _NO if wrong else _stripped([row[header.index("sentence")] for row in rows])


def _rows(text: str, *columns: str) -> list[list[str]] | None:
    """The values of the columns of a tab-separated table, row by row; None if it has not each of them once, or a row
    is too short or too long.
    """
    header, *rows = [line.split("\t") for line in _lines(text) if line] or [[""]]
    if any(header.count(column) != 1 for column in columns) or any(len(row) != len(header) for row in rows):
        return None
    return [[row[header.index(column)] for column in columns] for row in rows]


def _tsv(text: str) -> Expected:
    rows = _rows(text, "sentence")
    return _ANY if rows is None else _stripped([value for (value,) in rows])


def _labelled(text: str) -> Expected:
    rows = _rows(text, "text", "label")
    if rows is None:
        return _ANY
    pairs = [(one.strip(), label.strip()) for one, label in rows]
    return (EITHER, pairs) if pairs and all(map(all, pairs)) else _NO


def _sts(text: str) -> Expected:
    rows = _rows(text, "score", "sentence1", "sentence2")
    if rows is None:
        return _ANY
    try:
        scores = [float(score) for score, *_ in rows]
    except ValueError:
        return _NO
    return (EITHER, scores) if all(map(math.isfinite, scores)) and len(set(scores)) > 1 else _NO


def _corpus(text: str) -> Expected:
    try:
        rows = [json.loads(line) for line in _lines(text) if line.strip()]
        found = {str(row["_id"]): row["text"].strip() for row in rows}
        "".join(found.values()).encode("utf8")
    except (ValueError, KeyError, TypeError, AttributeError):
        return _NO if '"title"' not in text else _ANY
    if len(found) < len(rows) or any(type(row["_id"]) is not int or len(row) > 2 for row in rows):
        return _ANY
    return EITHER, {key: text for key, text in found.items() if text}


def _judged(rows: list[list[str]]) -> Expected:
    """Judgements of known ids; of a pair not two that differ."""
    found: dict[str, dict[str, float]] = {}
    try:
        known = [(q.strip(), d.strip(), float(g)) for q, d, g in rows]
    except ValueError:
        return _NO
    if any(not math.isfinite(g) or found.setdefault(q, {}).setdefault(d, g) != g for q, d, g in known):
        return _NO
    pairs = {(q, d): g for q, d, g in known if g > 0}
    kept = {(q, d): g for (q, d), g in pairs.items() if q in "ab" and d in ("0", "1", "2")}
    if not kept or len(pairs) > 2 * len(kept):
        return _NO
    return EITHER, {one: {d: g for (q, d), g in kept.items() if q == one} for one in dict.fromkeys(q for q, _ in kept)}


def _qrels(text: str) -> Expected:
    rows = _rows(text, "query-id", "corpus-id", "score")
    return _ANY if rows is None or any(not all(row) for row in rows) else _judged(rows)


# --- the readers ---


class Format(NamedTuple):
    """A format of files.

    Attributes:
        suffix: how the name ends.
        text: of a good file.
        read: reads a file and returns its values.
        oracle: from the text of a file to what must come of it.
        names: what a message may name, beside the file.
    """

    suffix: str
    text: str
    read: Callable[[Path], Any]
    oracle: Callable[[str], Expected]
    names: tuple[str, ...] = ()


def _csv_text() -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows([("id", "sentence"), *enumerate([*TEXTS, "two\nlines, quoted"])])
    return stream.getvalue()


_BEIR = {
    "corpus": "_id\ttitle\ttext\n0\t\tcats\n1\tOn\tdogs\n2\t\tbirds\n", "queries": "_id\ttext\na\tcat\nb\tdog\n",
    "qrels": "query-id\tcorpus-id\tscore\na\t0\t2\na\t1\t0\nb\t1\t1\nb\t2\t0.5\n",
}  # fmt: skip


def _in_folder(name: str, read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Read a search collection whose files are in order, but for the one of that name."""

    def reader(path: Path) -> Any:
        path.rename(path.with_name(name + path.name.lower().removeprefix("data")))
        for other in _BEIR.keys() - {name}:
            path.with_name(f"{other}.tsv").write_text(_BEIR[other], "utf8")
        return read(path.parent)

    return reader


_JSONL = "".join(json.dumps({"id": i, "sentence": t}, ensure_ascii=i % 2 == 0) + "\n" for i, t in enumerate(TEXTS))
_NUMBERED = "".join(f"{i}\t{t}\n" for i, t in enumerate(TEXTS))
_FOLDER = ("corpus", "queries", "qrels", "relevant")
FORMATS = {
    "txt": Format(".txt", "\n".join(TEXTS) + "\n", read_sentences, lambda text: _stripped(_lines(text))),
    "jsonl": Format(".jsonl", _JSONL, read_sentences, _jsonl),
    "csv": Format(".csv", _csv_text(), read_sentences, _csv),
    "tsv": Format(".tsv", "id\tsentence\n" + _NUMBERED, read_sentences, _tsv),
    "sts": Format(".tsv", "score\tsentence1\tsentence2\n" + "".join(f"{s}\t{TEXTS[0]}\tb\n" for s in (0.0, 1.5, 4.0)),
                  lambda path: load_sts("sts12", path).scores, _sts, ("sts12",)),
    "labelled": Format(".tsv", "label\ttext\n" + "".join(f"{i % 3}\t{t}\n" for i, t in enumerate(TEXTS)),
                       lambda path: list(zip(*vars(load_labeled_texts(path)).values(), strict=True)), _labelled),
    "counts": Format(".tsv", "token\tcount\nthe\t1\ncat\t2\n", lambda path: FrequencyTable.from_file(path).total,
                     lambda text: _ANY),
    "corpus": Format(".jsonl", _JSONL.replace('"id"', '"_id"').replace('"sentence"', '"text"'),
                     _in_folder("corpus", lambda p: load_retrieval(p).documents), _corpus, _FOLDER),
    "qrels": Format(".tsv", _BEIR["qrels"], _in_folder("qrels", lambda p: load_retrieval(p).relevant), _qrels, _FOLDER),
}  # fmt: skip


def case(name: str, change: str, data: bytes, packed: str, *, pack: bool = True, upper: bool = False) -> Case:
    """A file of a format with changed content, packed or with a name that says so."""
    kind = FORMATS[name]
    data = PACKERS[packed](data) if pack else data
    text = decoded(data, packed)
    expected, wanted = _NO if text is None else kind.oracle(text)
    if change in HARMLESS and (pack or not packed):
        expected = ACCEPT

    def run() -> Any:
        file = f"data{kind.suffix}{packed}"
        path = world.new_folder() / (file.upper() if upper else file)
        path.write_bytes(data)
        return kind.read(path)

    verify = lambda found: None if wanted in (None, found) else f"read {found!r:.120}, not {wanted!r:.120}"  # noqa: E731
    shown = f"{name}{packed}, {change}, {data[:60]!r}"
    return Case(shown, run, expected, ("data.", *kind.names), verify)


@st.composite
def _drawn(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(sorted(FORMATS)))
    change, data = draw(
        changed(FORMATS[name].text.encode("utf8")) | st.tuples(st.just("bytes"), st.binary(max_size=80))
    )
    packed, pack, upper = draw(st.sampled_from(["", "", *PACKERS])), draw(st.integers(0, 3)) > 0, draw(st.booleans())
    return case(name, change, data, packed, pack=pack, upper=upper)


def cases() -> st.SearchStrategy[Case]:
    """Every format with changed content."""
    return _drawn()
