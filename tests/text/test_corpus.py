"""Sentences from files: every format, and an error that names the line for every fault."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from st_extras.text.corpus import read_sentences


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.text", "a.gz", "a"])
def test_text_file_is_a_sentence_a_line(tmp_path, name):
    content = '\ufeff one \r\n\n  \ntwo\u2028halves\nhe said "no\nlast'
    assert read_sentences(write(tmp_path / name, content)) == ["one", "two\u2028halves", 'he said "no', "last"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_jsonl_rows_are_objects_or_strings(tmp_path, suffix):
    content = '{"text": "one", "id": 3}\n\n"two"\n{"id": 4, "sentence": "three", "text": "not this"}\n'
    assert read_sentences(write(tmp_path / f"a.jsonl{suffix}", content)) == ["one", "two", "three"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_csv_knows_quotes(tmp_path, suffix):
    content = 'id,sentence\n1,"one, and\nhalf"\n2,two\n3,"he said ""no"""\n'
    path = write(tmp_path / f"a.csv{suffix}", content)
    assert read_sentences(path) == ["one, and\nhalf", "two", 'he said "no"']


def test_tsv_takes_quotes_literally(tmp_path):
    """A quote that opens a sentence of an STS file must not swallow the lines behind it."""
    path = write(tmp_path / "a.tsv", 'sentence1\tscore\n"one\t1\ntwo\t2\n"three"\t3\n')
    assert read_sentences(path) == ['"one', "two", '"three"']


def test_tsv_lines_end_where_lines_end(tmp_path):
    long = "x" * 200_000
    path = write(tmp_path / "a.tsv", f"id\tsentence\r\n1\thello\rworld\r\n\n2\t{long}\n".encode())
    assert read_sentences(path) == ["hello\rworld", long]
    for content in ("", "\ufeff", "sentence\n"):
        with pytest.raises(ValueError, match="holds no sentences"):
            read_sentences(write(tmp_path / "empty.tsv", content))
    with pytest.raises(ValueError, match=r"line 3: expected a sentence, got None"):
        read_sentences(write(tmp_path / "b.tsv", "id\tsentence\n1\tone\n2\n"))


def test_column_by_name(tmp_path):
    table = write(tmp_path / "a.csv", "sentence,other\none,two\n")
    rows = write(tmp_path / "a.jsonl", '{"sentence": "three", "other": "four"}')
    assert read_sentences([table, rows], column="other") == ["two", "four"]


def test_sources_are_concatenated_in_order_up_to_the_limit(tmp_path):
    files = [write(tmp_path / "b.txt", "one\n\ntwo\n"), write(tmp_path / "a.txt", "three\none\n")]
    assert read_sentences(files) == ["one", "two", "three", "one"]
    assert read_sentences(map(str, files), limit=3) == ["one", "two", "three"]
    assert read_sentences(files, limit=1) == ["one"]
    assert read_sentences(files, limit=99) == ["one", "two", "three", "one"]


def test_limit_does_not_read_on(tmp_path):
    assert read_sentences(write(tmp_path / "a.txt", b"one\ntwo\n\xff\n"), limit=2) == ["one", "two"]


FAULTS: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("a.txt", "", r"a\.txt' holds no sentences"),
    "blank": ("a.txt", " \n\t\n\n", "holds no sentences"),
    "empty csv": ("a.csv", "", "holds no sentences"),
    "header only": ("a.csv", "sentence\n", "holds no sentences"),
    "latin-1": ("a.txt", "one\ntwo\ncaf\xe9s\n".encode("latin-1"), r"a\.txt, line 3: not UTF-8 .*byte 3"),
    "latin-1 in gzip": ("a.txt.gz", "caf\xe9s\n".encode("latin-1"), "line 1: not UTF-8"),
    "latin-1 in csv": ("a.csv", "sentence\none\ncaf\xe9s\n".encode("latin-1"), "line 3: not UTF-8"),
    "UTF-16": ("a.txt", "one".encode("utf-16"), "line 1: not UTF-8"),
    "broken json": ("a.jsonl", '{"text": "one"}\n\n{"text": \n', "line 3: not JSON"),
    "json without column": ("a.jsonl", '"one"\n{"id": 1}\n', "line 2 has no column sentence or text .*: it has id"),
    "json number": ("a.jsonl", '{"text": "one"}\n{"text": 5}\n', "line 2: expected a sentence, got 5"),
    "json null": ("a.jsonl", '{"text": null}\n', "line 1: expected a sentence, got None"),
    "json list": ("a.jsonl", '["one"]\n', r"line 1: expected a sentence, got \['one'\]"),
    "csv without column": ("a.csv", "id,score\n1,2\n", "a.csv has no column sentence or text .*: it has id, score"),
    "short row": ("a.csv", "id,sentence\n1,one\n2\n", "line 3: expected a sentence, got None"),
    "huge field": ("a.csv", 'sentence\none\n"' + "x" * 140_000, r"line \d: field larger"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_file_is_refused(tmp_path, fault):
    name, content, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message):
        read_sentences(write(tmp_path / name, content))


def test_an_empty_file_among_full_ones_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"b\.txt' holds no sentences"):
        read_sentences([write(tmp_path / "a.txt", "one"), write(tmp_path / "b.txt", "")])


def test_broken_gzip_is_refused(tmp_path):
    whole = gzip.compress(b"a sentence that is long enough to be cut\n" * 50, mtime=0)
    garbled = bytearray(whole)
    garbled[12:20] = b"\xff" * 8
    for content in (b"plain text", whole[:-12], bytes(garbled)):
        path = tmp_path / "a.txt.gz"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.txt\.gz: not a whole gzip file"):
            read_sentences(path)


@pytest.mark.parametrize("name", ["none.txt", "none.jsonl", "none.txt.gz", "./none", "a/b/none"])
def test_missing_file_is_no_data_set(name):
    with pytest.raises(ValueError, match=f"There is no file '{name}'"):
        read_sentences(name)


def test_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is a folder"):
        read_sentences(tmp_path)


def test_unreachable_data_set_is_one_line():
    with pytest.raises(ValueError, match="'nobody/nothing' is neither a file nor a data set") as caught:
        read_sentences("nobody/nothing")
    assert "\n" not in str(caught.value)


def test_data_set_split_and_column(monkeypatch):
    import datasets

    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        return datasets.Dataset.from_dict({"text": [" one", "", "two"], "label": [0, 1, 2]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_sentences("owner/name:test") == ["one", "two"]
    assert read_sentences("owner/name") == ["one", "two"]
    assert asked == [("owner/name", "test"), ("owner/name", "train")]
    with pytest.raises(ValueError, match="owner/name, row 0: expected a sentence, got 0"):
        read_sentences("owner/name", column="label")
    with pytest.raises(ValueError, match="has no column body: it has text, label"):
        read_sentences("owner/name", column="body")


def test_arguments_are_checked(tmp_path):
    path = write(tmp_path / "a.txt", "one\n")
    with pytest.raises(ValueError, match="sources must name at least one"):
        read_sentences([])
    for limit in (0, -1, 2.5):
        with pytest.raises(ValueError, match=f"limit must be a whole number >= 1, got {limit}"):
            read_sentences(path, limit=limit)


def test_real_files(data_folder):
    unlabeled = read_sentences(data_folder / "sts_unlabeled.txt.gz")
    assert len(unlabeled) == 89_192
    assert len(set(unlabeled)) == 47_328  # of 47,329 distinct lines two differ by a blank at their end only
    assert len(read_sentences(data_folder / "wiki_sentences.txt.gz", limit=1000)) == 1000


@pytest.mark.parametrize(("name", "rows"), [("sts12", 3108), ("stsb_dev", 1500), ("sickr_test", 4927)])
def test_real_tables(data_folder, name, rows):
    assert len(read_sentences(data_folder / f"{name}.tsv.gz", column="sentence1")) == rows
