"""Files: good ones of each format, mutated, through every reader; a second, slow and plain reader is the oracle."""

import csv
import gzip
import io
import json
import math
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from st_extras.evaluation import load_labeled_texts, load_retrieval, load_sts, read_askubuntu, read_question_pairs
from st_extras.text import read_sentences
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.classify import ACCEPT, EITHER, REFUSE, Case
from tests.fuzz.mutations import HARMLESS, MOST, MUTATIONS, PACKED, RANDOM

Expected = tuple[str, Any]
"""REFUSE, ACCEPT or EITHER, and what an accepted file must be read as (None: anything)."""

TEXTS = [*SENTENCES, "naïve café — ß", "日本語 の 文", "it's 5 o'clock, \"now\""]


# ------------------------------------------------------------------------------------------- the oracle


def decoded(data: bytes, packed: bool) -> str | None:
    """The text of a file, None if it must be refused."""
    try:
        data = gzip.decompress(data) if packed else data
        text = data.decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error):
        return None
    return None if "\0" in text or max(map(len, re.split(rb"[\r\n]", data))) > MOST else text


def _lines(text: str) -> list[str]:
    """Lines end at LF or CRLF; in a file without LF, at CR."""
    return re.split(r"\r\n|\n" if "\n" in text else "\r", text)


def _stripped(values: list[str]) -> Expected:
    kept = [value.strip() for value in values if value.strip()]
    return (EITHER, kept) if kept else (REFUSE, None)


def _txt(text: str) -> Expected:
    return _stripped(_lines(text))


def _jsonl(text: str) -> Expected:
    try:
        rows = [json.loads(line) for line in _lines(text) if line.strip()]
        values = [row["sentence"] if isinstance(row, dict) else row for row in rows]
        "".join(values).encode("utf8")
    except (ValueError, KeyError, TypeError):
        return (EITHER, None) if '"sentence"' not in text else (REFUSE, None)
    return _stripped(values)


def _csv(text: str) -> Expected:
    try:
        header, *rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        rows = [row for row in rows if row]
    except (csv.Error, ValueError):
        return REFUSE, None
    if "sentence" not in header:
        return EITHER, None
    if any(len(row) != len(header) for row in rows):
        return REFUSE, None
    return _stripped([row[header.index("sentence")] for row in rows])


def _tsv(text: str) -> Expected:
    header, *rows = [line.split("\t") for line in _lines(text)]
    if "sentence" not in header:
        return EITHER, None
    place = header.index("sentence")
    rows = [row for row in rows if row != [""]]
    if any(len(row) <= place for row in rows):
        return REFUSE, None
    wrong = any(len(row) != len(header) for row in rows)
    return (EITHER, None) if wrong else _stripped([row[place] for row in rows])


def _labelled(text: str) -> Expected:
    header, *rows = [line.split("\t") for line in _lines(text)]
    rows = [row for row in rows if row != [""]]
    if "label" not in header:
        return REFUSE, None
    if "text" not in header or any(len(row) != len(header) for row in rows):
        return EITHER, None
    pairs = [(row[header.index("text")].strip(), row[header.index("label")].strip()) for row in rows]
    return (EITHER, pairs) if pairs and all(map(all, pairs)) else (REFUSE, None)


def _sts(text: str) -> Expected:
    header, *rows = [line.split("\t") for line in _lines(text)]
    rows = [row for row in rows if row != [""]]
    columns = [header.index(name) if header.count(name) == 1 else 10**6 for name in ("score", "sentence1", "sentence2")]
    needed = 1 + max(*columns, header.index("subset") if "subset" in header else 0)  # a set may do without subsets
    if header.count("subset") > 1 or needed > len(header) or any(len(row) < needed for row in rows):
        return REFUSE, None
    try:
        scores = [float(row[columns[0]]) for row in rows]
    except ValueError:
        return REFUSE, None
    bad = not all(map(math.isfinite, scores)) or len(set(scores)) < 2
    return (REFUSE, None) if bad else (EITHER, scores)


def _counts(text: str) -> Expected:
    if text.lstrip().startswith("{"):
        return EITHER, None  # the family "artefacts" looks into these
    rows = [line for line in _lines(text) if line]
    rows = rows[1:] if rows[:1] == ["token\tcount"] else rows
    pairs = [row.rpartition("\t") for row in rows]
    if not pairs or any(not tab or not re.fullmatch(r"\s*\d+\s*", count) for _, tab, count in pairs):
        return REFUSE, None
    tokens, numbers = [pair[0] for pair in pairs], [int(pair[2]) for pair in pairs]
    if len(set(tokens)) < len(tokens) or not any(numbers) or max(numbers) >= 2**63:
        return REFUSE, None
    return EITHER, dict(zip(tokens, numbers, strict=True))


def _corpus(text: str) -> Expected:
    """Documents in .jsonl, of which three are judged."""
    try:
        rows = [json.loads(line) for line in _lines(text) if line.strip()]
        found = {str(row["_id"]): row["text"].strip() for row in rows}
        "".join(found.values()).encode("utf8")
    except (ValueError, KeyError, TypeError, AttributeError):
        return REFUSE, None
    right = len(found) == len(rows) and {"0", "1", "2"} <= found.keys() and all(found.values())
    return (EITHER, found) if right and all(type(row["_id"]) is int for row in rows) else (REFUSE, None)


def _judged(rows: list[list[str]], query: int, document: int, grade: int, fields: int) -> Expected:
    """Judgements: known ids, finite grades, no two of a pair that differ."""
    found: dict[str, dict[str, float]] = {"a": {}, "b": {}}
    for row in rows:
        try:
            value, pair = float(row[grade]), found[row[query]]
        except (IndexError, ValueError, KeyError):
            return REFUSE, None
        wrong = len(row) != fields or row[document] not in ("0", "1", "2") or not math.isfinite(value)
        if wrong or pair.setdefault(row[document], value) != value:
            return REFUSE, None
    relevant = {one: {key: grade for key, grade in pair.items() if grade > 0} for one, pair in found.items()}
    return (EITHER, {one: pair for one, pair in relevant.items() if pair}) if any(relevant.values()) else (REFUSE, None)


def _qrels(text: str) -> Expected:
    header, *rows = [line.split("\t") for line in _lines(text)]
    if sorted(header) != ["corpus-id", "query-id", "score"]:
        return EITHER if len(set(header)) > 3 else REFUSE, None
    return _judged([row for row in rows if row != [""]], *map(header.index, ("query-id", "corpus-id", "score")), 3)


def _trec(text: str) -> Expected:
    first, *_ = rows = [line.split() for line in _lines(text)]
    if len(first) != 4 or not first[3].lstrip("-").isdecimal():
        return REFUSE, None
    return _judged(list(filter(None, rows)), 0, 2, 3, 4)


def _pairs(text: str) -> Expected:
    if text.count('"') % 2:
        return (REFUSE, None) if re.search(r'(^|\t)"[^"]*$', text) else (EITHER, None)
    return EITHER, None


# ------------------------------------------------------------------------------------------- readers


_NUMBERED = "".join(f"{i}\t{t}\n" for i, t in enumerate(TEXTS))
_JSONL = [json.dumps({"id": i, "sentence": text}, ensure_ascii=i % 2 == 0) + "\n" for i, text in enumerate(TEXTS)]


def _csv_text() -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows([("id", "sentence"), *enumerate([*TEXTS, "two\nlines, quoted"])])
    return stream.getvalue()


def _in_folder(name: str, read: Callable[[Path], Any], **others: str) -> Callable[[Path], Any]:
    """Read a folder of files that are in order, but for the one of that name."""

    def reader(path: Path) -> Any:
        path.rename(path.with_name(name + path.name[4:].lower()))
        for other in others.keys() - {name}:
            path.with_name(f"{other}.{'txt' if read is read_askubuntu else 'tsv'}").write_text(others[other], "utf8")
        return read(path.parent)

    return reader


_askubuntu = _in_folder("text_tokenized", read_askubuntu, test="0\t1\t1 2\t0.5 0.1\n")
_BEIR = {
    "corpus": "_id\ttitle\ttext\n0\t\tcats\n1\tOn\tdogs\n2\t\tbirds\n", "queries": "_id\ttext\na\tcat\nb\tdog\n",
    "qrels": "query-id\tcorpus-id\tscore\na\t0\t2\na\t1\t0\nb\t1\t1\nb\t2\t0.5\n",
}  # fmt: skip


def _texts_of_ids(text: str) -> Expected:
    rows = [line.split("\t") for line in _lines(text)]
    if any(len(row) < 2 for row in rows if row != [""]) or not {"0", "1", "2"} <= {row[0] for row in rows}:
        return REFUSE, None
    return EITHER, None


_SCORES = [0.0, 1.5, 2.5, 4.0, 5.0]
FORMATS: dict[str, tuple[str, str, Callable[[Path], Any], Callable[[str], Expected], Callable[[Any], Any]]] = {
    "txt": (".txt", "\n".join(TEXTS) + "\n", read_sentences, _txt, list),
    "jsonl": (".jsonl", "".join(_JSONL), read_sentences, _jsonl, list),
    "csv": (".csv", _csv_text(), read_sentences, _csv, list),
    "tsv": (".tsv", "id\tsentence\n" + _NUMBERED, read_sentences, _tsv, list),
    "sts": (".tsv", "subset\tscore\tsentence1\tsentence2\n" + "".join(f"s\t{s}\t{TEXTS[0]}\tb\n" for s in _SCORES),
            lambda path: load_sts("sts12", path), _sts, lambda data: data.scores),
    "labelled": (
        ".tsv", "label\ttext\n" + "".join(f"{i % 3}\t{t}\n" for i, t in enumerate(TEXTS)), load_labeled_texts,
        _labelled, lambda data: list(zip(data.texts, data.labels, strict=True)),
    ),
    "counts": (
        ".tsv", "token\tcount\n" + "".join(f"{word}\t{i}\n" for i, word in enumerate(("the", "cat", "日本", "ß"))),
        FrequencyTable.from_file, _counts, lambda table: dict(zip(table.tokens, table.counts.tolist(), strict=True)),
    ),
    "counted": (".txt", "\n".join(TEXTS) + "\n", lambda path: FrequencyTable.count(path, world.encoder().tokenizer),
                lambda text: (EITHER, None), lambda table: None),
    "qqp": (".tsv", "question1\tquestion2\tis_duplicate\n" + "".join(f"{t}?\tb\t1\n{t}!\tb\t0\n" for t in TEXTS[:4]),
            read_question_pairs, _pairs, len),
    "askubuntu": (".txt", _NUMBERED.replace("\n", "\tbody\n"), _askubuntu, _texts_of_ids, len),
    "corpus": (".jsonl", "".join(line.replace("id", "_id").replace("sentence", "text") for line in _JSONL),
               _in_folder("corpus", load_retrieval, **_BEIR), _corpus, lambda task: task.documents),
    "qrels": (".tsv", _BEIR["qrels"], _in_folder("qrels", load_retrieval, **_BEIR), _qrels, lambda task: task.relevant),
    "trec": (".txt", "a 0 0 2\na\t0\t1 0\nb 0 1 1\nb x 2 1\n", _in_folder("qrels", load_retrieval, **_BEIR), _trec,
             lambda task: task.relevant),
}  # fmt: skip

_NAMES = {"askubuntu": ("text_tokenized", "test.txt"), "sts": ("sts12",), "counted": ("texts", "corpus")}
_NAMES |= dict.fromkeys(("corpus", "qrels", "trec"), ("corpus.", "qrels."))
"""What else a message may name: another file of the folder, or the argument."""


def _case(kind: str, mutation: str, data: bytes, packed: bool) -> Case:
    suffix, _, read, oracle, values = FORMATS[kind]
    text = decoded(data, packed)
    expected, wanted = (REFUSE, None) if text is None else oracle(text)
    if expected == EITHER and wanted and mutation in HARMLESS:
        expected = ACCEPT

    def run() -> Any:
        name = f"data{suffix}{'.gz' if packed else ''}"
        path = world.new_folder() / (name.upper() if mutation == "upper case" else name)
        path.write_bytes(data)
        return values(read(path))

    def verify(result: Any) -> str | None:
        return None if wanted is None or result == wanted else f"read {result!r:.120}, not {wanted!r:.120}"

    return Case(f"{kind}, {mutation}, {data[:60]!r}...", run, expected, ("data.", *_NAMES.get(kind, ())), (), verify)


def _special(kind: str) -> list[Case]:
    """A folder, a missing file, and a gzip file that would fill the memory."""
    suffix, _, read, _, _ = FORMATS[kind]
    if kind in ("askubuntu", "corpus", "qrels", "trec"):
        return []  # a folder is what is read
    folder = world.new_folder() / f"data{suffix}"
    folder.mkdir()
    cases = [
        Case(f"{kind}, a folder", lambda: read(folder), REFUSE, ("data.",)),
        Case(f"{kind}, missing", lambda: read(folder / f"data{suffix}"), REFUSE, ("data.",)),
    ]
    if read is read_sentences:
        cases.append(Case(f"{kind}, gzip bomb", lambda: read_sentences(_bomb(suffix), limit=1), EITHER, ("bomb",)))
    return cases


def _bomb(suffix: str) -> Path:
    """A file of 200 KB that unpacks to 200 MB: the first line is a sentence, so ``limit=1`` need not read on."""
    path = world.root() / f"bomb{suffix}.gz"
    if not path.is_file():
        first = {".jsonl": b'"a cat"\n', ".csv": b"sentence\na cat\n", ".tsv": b"sentence\na cat\n"}.get(
            suffix, b"a cat\n"
        )
        path.write_bytes(gzip.compress(first) + gzip.compress(b"a" * 2**20) * 200)
    return path


def cases(generator: random.Random) -> list[Case]:
    """Every format with every mutation, the random ones several times."""
    made = []
    for kind, (_, text, *_) in FORMATS.items():
        data = text.encode("utf8")
        for name, mutate in MUTATIONS.items():
            made += [_case(kind, name, mutate(data, generator), False) for _ in range(12 if name in RANDOM else 1)]
        for name, mutate in PACKED.items():
            made += [_case(kind, name, mutate(data, generator), True) for _ in range(3)]
        made += _special(kind)
    return made
