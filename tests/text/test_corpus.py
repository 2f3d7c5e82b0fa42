"""Sentences from files and data sets: every format, and an error that names the line for every fault."""

from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest

from st_extras.checks import has_lone_surrogate
from st_extras.text.corpus import (
    blocks_of_words,
    different_texts,
    distinct_sample,
    is_blank,
    iterate_sentences,
    read_sentences,
    sampled_texts,
    share_with_letters,
    stream_sentences,
)
from tests.helpers import write


@pytest.mark.parametrize("name", ["a.txt.gz", "a.text", "a.gz", "a"])
def test_text_file_is_a_sentence_a_line(tmp_path, name):
    content = '\ufeff one \r\n\n  \ntwo\u2028halves\nhe said "no\nlast'
    assert read_sentences(write(tmp_path / name, content)) == ["one", "two\u2028halves", 'he said "no', "last"]


def test_tables_are_read_by_their_columns(tmp_path):
    """A quote that opens a sentence of a .tsv file swallows no lines."""
    jsonl = '{"text": "one", "id": 3}\n\n"two"\n{"id": 4, "sentence": "three", "text": "not this"}\n'
    jsonl += '{"text": "four", "id": 5}\n{"sentence": "five"}\n'
    assert read_sentences(write(tmp_path / "a.jsonl.gz", jsonl)) == ["one", "two", "three", "four", "five"]
    csv = 'id,sentence\n1,"one, and\nhalf"\n2,two\n3,"he said ""no"""\n'
    assert read_sentences(write(tmp_path / "a.csv", csv)) == ["one, and\nhalf", "two", 'he said "no"']
    tsv = f'sentence1\tscore\r\n"one\t1\r\n\ntwo\rtwo\t2\n{"x" * 200_000}\t3\n'
    assert read_sentences(write(tmp_path / "a.tsv", tsv)) == ['"one', "two\rtwo", "x" * 200_000]


def test_sources_are_concatenated_in_order_up_to_the_limit(tmp_path):
    files = [write(tmp_path / "b.txt", "one\n\ntwo\n"), write(tmp_path / "a.txt", "three\none\n")]
    assert read_sentences(files) == ["one", "two", "three", "one"]
    assert read_sentences(map(str, files), limit=3) == ["one", "two", "three"]
    assert read_sentences([write(tmp_path / "c.txt", "\n"), *files], limit=1) == ["one"]
    with pytest.raises(ValueError, match=r"^sources must"):
        read_sentences([])
    for read in (read_sentences, stream_sentences):
        with pytest.raises(ValueError, match=r"^limit must be a whole number"):
            read(files, limit=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", " \u200b\n\ufeff\u200d\n", "holds no sentences"),
        ("a.jsonl", '{"text": "one"}\n\n{"text": \n', "line 3: not JSON"),
        ("a.jsonl", '{"text": "one"}\n{"text": 5}\n', "line 2: .* got 5"),
        ("a.csv", "id,sentence\n1,one\n2\n", "line 3: .* got None: leave its row out, or fill it"),
        ("a.tsv", "id,text\n1\n", r"a\.tsv has no column .* tabs separate"),
    ],
)
def test_a_faulty_file_is_refused(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_sentences(write(tmp_path / name, content))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("one", " must .* 'one'"),
        (datasets.DatasetDict(train=datasets.Dataset.from_dict({"text": ["a"]})), r" must .*\['train'\]"),
        ({"d1": "one", "d2": "two"}, r" must .* keys 'd1', 'd2': give its values, as in data\.values\(\)\.$"),
        (
            dict.fromkeys(range(12), 0),
            r" must .* keys 0, 1, 2, 3, 4, 5, 6, 7, 8, 9: give one of them, as in data\[0\]\.$",
        ),
        ({}, r" must .*, got a dict with the keys none: give its values, as in data\.values\(\)\.$"),
        (pd.DataFrame({"sentence": ["one"]}), r" must .*\['sentence'\]"),
        (np.array("one"), " must .*, got ndarray"),
        (Path("a.txt"), " must .*, got PosixPath .*: read it first with read_sentences"),
        (["one", "a \ud800"], ", row 1: .* lone surrogate"),
        (["one", {"text": "two"}], r", row 1: expected a sentence, .*: name the column, as in dataset\['sentence'\]\."),
        (["one", None], r", row 1: expected a sentence, got None: leave its row out, or fill it\."),
        (["one", 3], r", row 1: expected a sentence, got 3\."),
    ],
)
def test_what_holds_no_sentences_is_refused(source, message):
    for options in ({}, {"name": "queries"}):
        with pytest.raises(ValueError, match=rf"^{options.get('name', 'sentences')}{message}"):
            list(iterate_sentences(source, **options))


def test_a_frame_of_polars_is_refused_and_its_column_is_read():
    frame = pytest.importorskip("polars").DataFrame({"sentence": ["one", "two"]})
    with pytest.raises(ValueError, match=r"^sentences must .* got a DataFrame: give a column of it, as in frame\['sen"):
        list(iterate_sentences(frame))
    assert [*iterate_sentences(frame["sentence"])] == ["one", "two"]


def test_blocks_are_cut_at_words_and_at_characters_of_scripts_without_spaces():
    cut = list(blocks_of_words(["a b  c\nd e", "one two", "我们喜欢ab苹果", " ", "a " * 11], 2))
    assert cut == ["a b", "c d", "e", "one two", "我们", "喜欢", "ab苹", "果", "", *["a a"] * 5, "a"]


def test_invisible_characters_are_no_text():
    assert all(map(is_blank, ["", " \n", "\u200b", "\u00ad \ufeff", "\u200e\u2060"]))
    assert not any(map(is_blank, ["a", "\u200ba", ".", "\u0301"]))


def test_letters_are_counted_by_texts():
    assert share_with_letters(["a 1", "2", "é", "---", "\u4e2d"]) == 0.6


def test_different_texts_and_their_places():
    assert different_texts(iter(["b", "a", "b", "", "a"])) == (["b", "a", ""], [0, 1, 0, 2, 1])


def test_a_sample_of_texts_is_of_all_in_random_order():
    """Text is often sorted by label or origin."""
    texts = [f"text {i}" for i in range(300)]
    given = [" \n", *(f" {text}\n" for text in texts), "\u200b", *texts[:5]]
    sample, read = sampled_texts(iter(given), 100, 0)
    assert (read, len(sample), len({*sample})) == (305, 100, 100)
    assert {*sample} < {*texts}
    assert {*sample} == {*distinct_sample(texts, 100, 0)}
    assert sum(texts.index(one) < 150 for one in sample[:50]) in range(15, 36)
    assert sampled_texts(given, 100, 0)[0] == sample
    assert {*sampled_texts(given, 100, 1)[0]} != {*sample}, "others by another seed"
    assert sampled_texts(given, 999, 1)[0] != sampled_texts(given, 999, 0)[0], "and in another order"
    with pytest.raises(ValueError, match=r"^mine, row 1: expected a sentence"):
        sampled_texts(["one", 2], 10, 0, "mine")


# --- columns of data sets ---


def test_every_row_comes_once_and_in_order():
    texts = [f"sentence {i}" for i in range(1200)]
    data = datasets.Dataset.from_dict({"text": texts, "label": range(1200)}).select(range(1200)[::-1])
    for given in (data, data.with_format("torch"), data.to_iterable_dataset()):
        assert list(iterate_sentences(given)) == texts[::-1]
    words = datasets.Dataset.from_dict({"text": [""] * 1200, "words": [text.split() for text in texts]})
    joined = words.with_transform(lambda batch: {"text": list(map(" ".join, batch["words"]))})
    assert list(iterate_sentences(joined)) == texts  # made of a column that is not read itself


@pytest.mark.parametrize("kind", ["data set", "stream", "stream without columns"])
def test_the_usual_or_only_column_of_text_is_read(kind):
    def table(columns):
        data = datasets.Dataset.from_dict(columns)
        if kind == "stream":
            return data.to_iterable_dataset()
        return data if kind == "data set" else datasets.IterableDataset.from_generator(lambda: iter(list(data)))

    data = table({"sentence": ["one"], "text": ["two"], "label": [0]})
    assert list(iterate_sentences(data)) == ["one"]
    with pytest.raises(ValueError, match="sentences, row 0: expected a sentence, got 0"):
        list(iterate_sentences(table({"sentence": [0]})))
    assert list(iterate_sentences(table({"review": ["one"], "stars": [5]}))) == ["one"]
    two = table({"review": ["one"], "author": ["two"]})
    with pytest.raises(ValueError, match=r"^queries.* has review, author; keep one, as in queries\.select_columns"):
        list(iterate_sentences(two, name="queries"))
    assert list(iterate_sentences(two.select_columns("author"))) == ["two"]


# --- before anything is read ---


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id;body\n1;one\n"),
        ("a.jsonl", '{"text": 3}\n'),
        ("a.txt", b"caf\xe9\n"),
        ("a.parquet", b"PAR1"),
        ("a.json", "3"),
    ],
)
def test_a_mistake_in_the_first_rows_is_known_at_once(tmp_path, name, content):
    with pytest.raises(ValueError, match=rf"{name}\W"):
        stream_sentences([write(tmp_path / "good.txt", "one\n"), write(tmp_path / name, content)])


def test_the_first_ten_rows_of_each_file_are_checked_at_once_and_others_when_they_are_read(tmp_path):
    good = write(tmp_path / "good.txt", "one\n" * 30)

    def begin(line):
        bad = write(tmp_path / f"{line}.jsonl", '{"text": "one"}\n' * (line - 1) + "{\n")
        return stream_sentences([good, bad])

    for line in (2, 10):
        with pytest.raises(ValueError, match=rf"{line}\.jsonl, line {line}: not JSON"):
            begin(line)
    sentences = begin(11)
    with pytest.raises(ValueError, match=r"11\.jsonl, line 11: not JSON"):
        list(sentences)


def test_what_is_checked_is_read_from_its_start(tmp_path):
    lines = [f"sentence {i}" for i in range(30)]
    for name in ("a.txt", "a.csv"):
        write(tmp_path / name, "\n".join(["text", *lines]))
        assert list(stream_sentences(tmp_path / name)) == (lines if name == "a.csv" else ["text", *lines])


def test_files_without_sentences_are_named_among_others(tmp_path, caplog):
    files = [write(tmp_path / f"{name}.txt", text) for name, text in {"a": "\n", "b": "one", "c": " \u200b"}.items()]
    assert read_sentences(files) == ["one"]
    assert caplog.messages == [f"2 of 3 files hold no sentences, such as '{files[0]}'."]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"train": ["one"]}, "sources must .* got {'train': "),
        (
            datasets.Dataset.from_dict({"text": ["one"]}),
            "sources must .* got {'text': 'one'}: texts held in Python need no reading",
        ),
        ([3], "sources must .* got 3"),
    ],
)
def test_what_names_no_source_is_refused(sources, message):
    with pytest.raises(ValueError, match=rf"^{message}"):
        read_sentences(sources)


def test_a_text_is_searched_for_lone_surrogates_once(monkeypatch):
    texts = [f"naïve {i}" for i in range(20)]
    searched: list[str] = []
    known = has_lone_surrogate
    monkeypatch.setattr("st_extras.text.corpus.has_lone_surrogate", lambda text: searched.append(text) or known(text))
    data = datasets.Dataset.from_dict({"text": texts})
    for given in (texts, data, data.to_iterable_dataset()):
        searched.clear()
        assert len(distinct_sample(iterate_sentences(given), 9)) == 9
        assert searched == texts
