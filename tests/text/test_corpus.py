"""Sentences from files: every format, and an error that names the line for every fault."""

from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest

from st_extras.text.columns import text_columns
from st_extras.text.corpus import iterate_sentences, passages, read_sentences
from tests.helpers import write


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


def test_sources_are_concatenated_in_order_up_to_the_limit(tmp_path):
    files = [write(tmp_path / "b.txt", "one\n\ntwo\n"), write(tmp_path / "a.txt", "three\none\n")]
    assert read_sentences(files) == ["one", "two", "three", "one"]
    assert read_sentences(map(str, files), limit=3) == ["one", "two", "three"]
    assert read_sentences(files, limit=1) == ["one"]
    assert read_sentences(files, limit=99) == ["one", "two", "three", "one"]


FAULTS: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("a.txt", "", r"a\.txt' holds no sentences"),
    "latin-1": ("a.txt", "one\ntwo\ncaf\xe9s\n".encode("latin-1"), r"a\.txt, line 3: not UTF-8 .*byte 3"),
    "broken json": ("a.jsonl", '{"text": "one"}\n\n{"text": \n', "line 3: not JSON"),
    "json without column": ("a.jsonl", '"one"\n{"id": 1}\n', "line 2 has no column sentence or text .*: it has id"),
    "json number": ("a.jsonl", '{"text": "one"}\n{"text": 5}\n', "line 2: expected a sentence, got 5"),
    "csv without column": ("a.csv", "id,score\n1,2\n", "a.csv has no column sentence or text .*: it has id, score"),
    "short row": ("a.csv", "id,sentence\n1,one\n2\n", "line 3: expected a sentence, got None"),
    "zero-width": ("a.txt", " \u200b\n\ufeff\u200d\n", "holds no sentences"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_file_is_refused(tmp_path, fault):
    name, content, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message):
        read_sentences(write(tmp_path / name, content))


@pytest.mark.parametrize("name", ["none.txt", "none.jsonl", "none.txt.gz", "./none", "a/b/none"])
def test_missing_file_is_no_data_set(name):
    with pytest.raises(ValueError, match=f"There is no file '{name}'"):
        read_sentences(name)


def test_unreachable_data_set_is_one_line():
    with pytest.raises(ValueError, match="'nobody/nothing' is neither a file nor a data set") as caught:
        read_sentences("nobody/nothing")
    assert "\n" not in str(caught.value)


def test_data_set_split_and_column(monkeypatch):
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


DATA = {"sentence": ["one", "two"], "text": ["three", "four"], "label": [0, 1]}


def tables(columns):
    """A data set, the same as a stream, and as a stream that knows its columns only when it is read."""
    data = datasets.Dataset.from_dict(columns)
    rows = [dict(row) for row in data]
    return data, data.to_iterable_dataset(), datasets.IterableDataset.from_generator(lambda: iter(rows))


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_data_sets_of_every_kind_are_iterated(kind):
    data = tables(DATA)[kind]
    assert list(iterate_sentences(data)) == ["one", "two"]
    assert list(iterate_sentences(data, "text")) == ["three", "four"]
    assert list(iterate_sentences(data["text"])) == ["three", "four"]
    with pytest.raises(ValueError, match="no column body: it has sentence, text, label"):
        list(iterate_sentences(data, "body"))
    with pytest.raises(ValueError, match="queries, row 0: expected a sentence, got 0"):
        list(iterate_sentences(data, "label", name="queries"))


def test_the_only_column_of_strings_is_taken():
    data, stream, unknown = tables({"review": ["one"], "stars": [5]})
    assert [list(iterate_sentences(kind)) for kind in (data, stream, unknown)] == [["one"]] * 3
    for columns in ({"review": ["one"], "author": ["two"]}, {"stars": [5]}):
        with pytest.raises(ValueError, match="no column sentence or text"):
            text_columns(datasets.Dataset.from_dict(columns))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("one", "sentences must be .* got the string 'one'"),
        (
            datasets.DatasetDict(train=datasets.Dataset.from_dict(DATA)),
            r"DatasetDict with the keys 'train': .*\['train'\]",
        ),
        (pd.DataFrame(DATA), r"DataFrame: give a column of it, as in frame\['sentence'\]"),
        (Path("a.txt"), "read_sentences"),
        (5, "got int 5"),
        (["one", 2], "sentences, row 1: expected a sentence, got 2"),
        ([{"text": "one"}], r"row 0: expected a sentence, got .* dataset\['sentence'\]"),
    ],
)
def test_what_holds_no_sentences_is_refused(source, message):
    with pytest.raises(ValueError, match=message) as caught:
        list(iterate_sentences(source))
    assert "\n" not in str(caught.value)


def test_passages_are_cut_at_words_and_at_characters_of_scripts_without_spaces():
    cut = list(passages(["a b  c\nd e", "one two", "我们喜欢ab苹果", " "], 2))
    assert cut == ["a b", "c d", "e", "one two", "我们", "喜欢", "ab苹", "果", ""]


def test_lists_columns_and_generators_are_iterated():
    for source in (["one"], ("one",), iter(["one"]), {"one"}, pd.Series(["one"]), np.array(["one"])):
        assert list(iterate_sentences(source)) == ["one"]
    with pytest.raises(ValueError, match="column must be None unless sentences is a data set, got 'text'"):
        list(iterate_sentences(["one"], "text"))
