"""Sentences from files: every format, and an error that names the line for every fault."""

from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest

from st_extras.text.corpus import is_blank, iterate_sentences, passages, read_sentences
from tests.helpers import write


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.text", "a.gz", "a"])
def test_text_file_is_a_sentence_a_line(tmp_path, name):
    content = '\ufeff one \r\n\n  \ntwo\u2028halves\nhe said "no\nlast'
    assert read_sentences(write(tmp_path / name, content)) == ["one", "two\u2028halves", 'he said "no', "last"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_tables_are_read_by_their_columns(tmp_path, suffix):
    """In .csv files quotes mean something; a quote that opens a sentence of a .tsv file swallows no lines."""
    jsonl = '{"text": "one", "id": 3}\n\n"two"\n{"id": 4, "sentence": "three", "text": "not this"}\n'
    assert read_sentences(write(tmp_path / f"a.jsonl{suffix}", jsonl)) == ["one", "two", "three"]
    csv = 'id,sentence\n1,"one, and\nhalf"\n2,two\n3,"he said ""no"""\n'
    assert read_sentences(write(tmp_path / f"a.csv{suffix}", csv)) == ["one, and\nhalf", "two", 'he said "no"']
    tsv = f'sentence1\tscore\r\n"one\t1\r\n\ntwo\rtwo\t2\n{"x" * 200_000}\t3\n'
    assert read_sentences(write(tmp_path / f"a.tsv{suffix}", tsv)) == ['"one', "two\rtwo", "x" * 200_000]


def test_sources_are_concatenated_in_order_up_to_the_limit(tmp_path):
    files = [write(tmp_path / "b.txt", "one\n\ntwo\n"), write(tmp_path / "a.txt", "three\none\n")]
    assert read_sentences(files) == ["one", "two", "three", "one"] == read_sentences(files, limit=99)
    assert read_sentences(map(str, files), limit=3) == ["one", "two", "three"]
    for limit in (0, -1, 2.5):
        with pytest.raises(ValueError, match="limit"):
            read_sentences(files, limit=limit)
    with pytest.raises(ValueError, match="sources"):
        read_sentences([])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", r"a\.txt' holds no sentences"),
        ("a.txt", " \u200b\n\ufeff\u200d\n", "holds no sentences"),
        ("a.txt", "one\ntwo\ncaf\xe9s\n".encode("latin-1"), r"a\.txt, line 3"),
        ("a.jsonl", '{"text": "one"}\n\n{"text": \n', "line 3: not JSON"),
        ("a.jsonl", '"one"\n{"id": 1}\n', "line 2 has no column sentence or text .*: it has id"),
        ("a.jsonl", '{"text": "one"}\n{"text": 5}\n', "line 2: .* got 5"),
        ("a.csv", "id,score\n1,2\n", "a.csv has no column sentence or text .*: it has id, score"),
        ("a.csv", "id,sentence\n1,one\n2\n", "line 3: .* got None"),
        ("a.tsv", "sentence\n", "holds no sentences"),
        ("a.tsv", "id\tsentence\n1\tone\n2\n", "line 3: .* got None"),
    ],
)
def test_a_faulty_file_is_refused(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_sentences(write(tmp_path / name, content))


@pytest.mark.parametrize("name", ["none.txt", "none.jsonl", "none.txt.gz", "./none", "a/b/none"])
def test_missing_file_is_no_data_set(name):
    with pytest.raises(ValueError, match=f"There is no file '{name}'"):
        read_sentences(name)


def test_data_set_split_and_column(monkeypatch):
    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        return datasets.Dataset.from_dict({"text": [" one", "", "two"], "label": [0, 1, 2]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_sentences("owner/name:test") == read_sentences("owner/name") == ["one", "two"]
    assert asked == [("owner/name", "test"), ("owner/name", "train")]
    with pytest.raises(ValueError, match=r"owner/name, row 0: .* got 0"):
        read_sentences("owner/name", column="label")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="'nobody/nothing' is neither a file nor a data set") as caught:
        read_sentences("nobody/nothing")
    assert "\n" not in str(caught.value)


DATA = {"sentence": ["one", "two"], "text": ["three", "four"]}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("one", "sentences must be .* 'one'"),
        (datasets.DatasetDict(train=datasets.Dataset.from_dict(DATA)), r"DatasetDict .* 'train': .*\['train'\]"),
        (pd.DataFrame(DATA), r"DataFrame: give a column of it, as in frame\['sentence'\]"),
        (Path("a.txt"), "read_sentences"),
        (5, "got int 5"),
        (["one", 2], "sentences, row 1: .* got 2"),
        (["a \ud800"], "sentences, row 0: .* lone surrogate"),
        ([{"text": "one"}], r"row 0: .* dataset\['sentence'\]"),
    ],
)
def test_what_holds_no_sentences_is_refused(source, message):
    with pytest.raises(ValueError, match=message) as caught:
        list(iterate_sentences(source))
    assert "\n" not in str(caught.value)


def test_lists_columns_and_generators_are_iterated():
    column = datasets.Dataset.from_dict({"a": ["one"]})["a"]
    for source in (["one"], ("one",), iter(["one"]), {"one"}, pd.Series(["one"]), np.array(["one"]), column):
        assert list(iterate_sentences(source)) == ["one"]
    with pytest.raises(ValueError, match=r"column must be None .* 'text'"):
        list(iterate_sentences(["one"], "text"))


def test_passages_are_cut_at_words_and_at_characters_of_scripts_without_spaces():
    cut = list(passages(["a b  c\nd e", "one two", "我们喜欢ab苹果", " "], 2))
    assert cut == ["a b", "c d", "e", "one two", "我们", "喜欢", "ab苹", "果", ""]


def test_invisible_characters_are_no_text():
    assert all(map(is_blank, ["", " \n", "\u200b", "\u00ad \ufeff", "\u200e\u2060"]))
    assert not any(map(is_blank, ["a", "\u200ba", ".", "\u0301"]))
