"""Labelled texts from every kind of file; what is wrong with one is named with its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from datasets import Dataset

from st_extras.evaluation import LabeledTexts, load_labeled_texts

TEXTS = ["where is my card", 'an "open quote', "one, two"]
LABELS = ["lost", "lost", "3"]
TSV = 'label\ttext\nlost\t where is my card \nlost\tan "open quote\n\n3\tone, two\n'
CSV = 'text,more,label\nwhere is my card,x,lost\n"an ""open quote",,lost\n"one, two",,3\n'
JSONL = "".join(
    json.dumps({"text": text, "label": int(label) if label == "3" else label}) + "\n"
    for text, label in zip(TEXTS, LABELS, strict=True)
)


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("kind", "content"), [(".tsv", TSV), (".csv", CSV), (".jsonl", JSONL)])
def test_text_files(tmp_path: Path, kind: str, content: str, suffix: str) -> None:
    file = write(tmp_path / f"intents.v2{kind}{suffix}", content)
    assert load_labeled_texts(file) == LabeledTexts(TEXTS, LABELS) == load_labeled_texts(str(file))
    assert len(load_labeled_texts(file)) == 3


def test_a_file_of_windows(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "\ufeff" + TSV.replace("\n", "\r\n"))
    assert load_labeled_texts(file) == LabeledTexts(TEXTS, LABELS)


@pytest.mark.parametrize("labels", [["a", "b"], [4, 0]])
@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_files_that_datasets_reads(tmp_path: Path, kind: str, labels: list[object]) -> None:
    dataset = Dataset.from_dict({"title": ["one", "two"], "intent": labels, "text": ["1", "2"]})
    file = tmp_path / f"a.{kind}"
    getattr(dataset, f"to_{kind}")(str(file))
    found = load_labeled_texts(file, text_column="title", label_column="intent")
    assert found == LabeledTexts(["one", "two"], [str(label) for label in labels])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "", r"'.*a\.tsv' holds no labelled text"),
        ("a.tsv", "label\ttext\n", r"'.*a\.tsv' holds no labelled text"),
        ("a.tsv", "label\ttext\na\tx\n\tx\n", r".*a\.tsv, line 3: a label must not be empty, got ''"),
        (
            "a.tsv",
            "label\ttext\na\tx\n\nb\t \n",
            r".*a\.tsv, line 4: a text must not be empty, got ' ': leave its line",
        ),
        ("a.tsv", "label\ttext\na\tx\nb\n", r".*a\.tsv, line 3: expected a sentence, got None"),
        ("a.tsv", "text\tlabel\nx\ta\ny\n", r".*a\.tsv, line 3: a label must be a string .*got None"),
        ("a.tsv", "label\ttext\na\tx\ty\n", r".*a\.tsv, line 2: a line must have at most 2 fields"),
        ("a.tsv", "a\tx\nb\ty\n", r".*a\.tsv has no column sentence or text .*: it has a, x"),
        ("a.tsv", "category\ttext\na\tx\n", r".*a\.tsv has no column label: it has category, text"),
        ("a.tsv", b"label\ttext\na\tcaf\xe9\n", r".*a\.tsv, line 2: not UTF-8"),
        ("a.csv", 'label,text\na,"x\n', r".*a\.csv, line 2: a quote is opened"),
        ("a.jsonl", '{"text": "x", "label": 1.5}\n', r".*a\.jsonl, line 1: a label must be .* got 1\.5"),
        ("a.jsonl", '{"text": "x", "label": NaN}\n', r".*a\.jsonl, line 1: a label must be .* got nan"),
        ("a.jsonl", '{"text": "x", "label": true}\n', r".*a\.jsonl, line 1: a label must be .* got True"),
        ("a.jsonl", '{"text": 3, "label": 1}\n', r".*a\.jsonl, line 1: expected a sentence, got 3"),
        ("a.jsonl", '{"text": "x", "label": "a"}\n{"text": "x"}\n', r".*a\.jsonl, line 2 has no column label"),
        ("a.jsonl", '"x"\n"y"\n', r"'.*a\.jsonl' must have a column of texts and one of labels, got the same for both"),
        ("a.txt", TSV, r"path must be a file whose name ends in \.tsv, \.csv, .*, got '.*a\.txt'"),
        ("a.gz", TSV, r"path must be a file whose name ends in \.tsv, "),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    file = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=f"^{message}.*\\.$"):
        load_labeled_texts(file)


def test_a_missing_label_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    Dataset.from_dict({"text": ["x", "y"], "label": ["a", None]}).to_parquet(str(tmp_path / "a.parquet"))
    with pytest.raises(ValueError, match=r"a\.parquet, row 1: a label must be a string or .* got None\.$"):
        load_labeled_texts(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("nowhere.tsv", {}, "There is no file of labelled texts 'nowhere.tsv'"),
        (".", {}, r"There is no file of labelled texts '\.'"),
        (3, {}, "path must be the path of a file, got 3"),
        (None, {}, "path must be the path of a file, got None"),
        ("a.tsv", {"text_column": 3}, "text_column must be a str or None, got 3"),
        ("a.tsv", {"label_column": None}, "label_column must be a str, got None"),
        ("a.tsv", {"label_column": "text"}, "'a.tsv' must have a column of texts and one of labels, got the same"),
        ("a.tsv", {"max_line": 5}, "a.tsv, line 1: a line must have at most 5 bytes"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: object, options: dict[str, object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.tsv", TSV)
    with pytest.raises(ValueError, match=f"^{message}.*\\.$"):
        load_labeled_texts(path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "count", "labels"),
    [("banking77_test", 3080, 77), ("clinc150_test", 4500, 150), ("stackoverflow_test", 4000, 20)],
)
def test_real_files(data_folder: Path, name: str, count: int, labels: int) -> None:
    data = load_labeled_texts(data_folder / "domains" / f"{name}.tsv.gz")
    assert (len(data.texts), len(data.labels), len(set(data.labels))) == (count, count, labels)
