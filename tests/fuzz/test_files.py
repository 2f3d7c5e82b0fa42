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

from st_extras.evaluation import load_labeled_texts, load_sts
from st_extras.text import read_sentences
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.check import ACCEPT, EITHER, REFUSE, fuzz, outcome

TEXTS = [*SENTENCES, "naïve café — ß", "日本語 の 文", "it's 5 o'clock, \"now\""]
_PACKERS: dict[str, Any] = {"": None, ".gz": gzip, ".bz2": bz2, ".xz": lzma}
Expected = tuple[str, Any]
"""REFUSE, ACCEPT or EITHER, and what an accepted file must be read as (None: anything)."""
_NO: Expected = REFUSE, None
_ANY: Expected = EITHER, None

# --- changes ---

_HARMLESS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": bytes,
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "no last newline": lambda data: data.rstrip(b"\n"),
}
"""Changes that change nothing of what is read."""
_WHOLE: dict[str, Callable[[bytes], bytes]] = {
    "UTF-16": lambda data: data.decode("utf8").encode("utf-16"),
    "Latin-1": lambda data: data.decode("utf8").encode("latin-1", "replace"),
    "empty": lambda data: b"",
    "blank lines": lambda data: data + b"\n\n",
}
_PIECES = (
    b",more", b"\tmore", b'"', b"'", b"\n", b"\r", b"\0", b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\x0b", b"\x85",
    b"NaN", b"-1", b"1e999", b"9" * 30, b"{", b"}", b"[", b"null", b"true",
)  # fmt: skip


@st.composite
def spliced(draw: st.DrawFn, data: bytes) -> bytes:
    """Data with one to three places cut off, overwritten or inserted at."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from(_PIECES) | st.binary(max_size=3))
        data = data[:at] + piece + data[at + draw(st.sampled_from([0, 0, 1, len(piece), len(data)])) :]
    return data


# --- the oracle ---


def _decoded(data: bytes, packed: str) -> str | None:
    """The text of a file, None if it must be refused."""
    try:
        data = _PACKERS[packed].decompress(data) if packed else data
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except (UnicodeDecodeError, EOFError, OSError, zlib.error, lzma.LZMAError):
        return None
    return None if "\0" in text else text


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
    place = header.index("sentence")
    wrong = any(field.strip() for row in rows for field in row[len(header) :])  # what is missing at the end is empty
    return _NO if wrong else _stripped([row[place] for row in rows if len(row) > place])


def _rows(text: str, *columns: str) -> list[list[str]] | None:
    """The columns of a tab-separated table; None if it has not each of them once, or a row has another length."""
    header, *rows = [line.split("\t") for line in _lines(text) if line] or [[""]]
    if any(header.count(column) != 1 for column in columns) or any(len(row) != len(header) for row in rows):
        return None
    return [[row[header.index(column)] for column in columns] for row in rows]


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


# --- the readers ---


class Format(NamedTuple):
    """How a name ends, a good file's text, its reader, the oracle, and what a message may name beside the file."""

    suffix: str
    text: str
    read: Callable[[Path], Any]
    oracle: Callable[[str], Expected]
    names: tuple[str, ...] = ()


def _csv_text() -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows([("id", "sentence"), *enumerate([*TEXTS, "two\nlines, quoted"])])
    return stream.getvalue()


_JSONL = "".join(json.dumps({"id": i, "sentence": t}, ensure_ascii=i % 2 == 0) + "\n" for i, t in enumerate(TEXTS))
FORMATS = {
    "txt": Format(".txt", "\n".join(TEXTS) + "\n", read_sentences, lambda text: _stripped(_lines(text))),
    "jsonl": Format(".jsonl", _JSONL, read_sentences, _jsonl),
    "csv": Format(".csv", _csv_text(), read_sentences, _csv),
    "sts": Format(".tsv", "score\tsentence1\tsentence2\n" + "".join(f"{s}\t{TEXTS[0]}\tb\n" for s in (0.0, 1.5, 4.0)),
                  lambda path: load_sts("sts12", path).scores, _sts, ("sts12",)),
    "labelled": Format(".tsv", "label\ttext\n" + "".join(f"{i % 3}\t{t}\n" for i, t in enumerate(TEXTS)),
                       lambda path: list(zip(*vars(load_labeled_texts(path)).values(), strict=True)), _labelled),
}  # fmt: skip


@fuzz(60, 1200, data=st.data())
def test_a_file_that_was_changed_packed_or_named_so(data):
    name = data.draw(st.sampled_from(sorted(FORMATS)), "format")
    kind, good = FORMATS[name], FORMATS[name].text.encode("utf8")
    named = {change: apply(good) for change, apply in (_HARMLESS | _WHOLE).items()}
    strange = st.tuples(st.just("other bytes"), spliced(good) | st.binary(max_size=80))
    change, content = data.draw(st.sampled_from(sorted(named.items())) | strange, "content")
    packed, is_packed = data.draw(st.sampled_from(["", "", *_PACKERS]), "packed"), data.draw(st.integers(0, 3)) > 0
    content = _PACKERS[packed].compress(content) if packed and is_packed else content
    text = _decoded(content, packed)
    expected, wanted = _NO if text is None else kind.oracle(text)
    if change in _HARMLESS and (is_packed or not packed):
        expected = ACCEPT
    file = f"data{kind.suffix}{packed}"
    path = world.new_folder() / data.draw(st.sampled_from([file, file.upper()]))
    path.write_bytes(content)

    def verify(found: Any) -> str | None:
        return None if wanted in (None, found) else f"read {found!r:.120}, not {wanted!r:.120}"

    return outcome(lambda: kind.read(path), "data.", *kind.names, expected=expected, verify=verify)
