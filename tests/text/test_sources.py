"""Corpora named by parquet files and data sets; and samples of them."""

import os
import re
import threading
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet as parquet_file

from st_extras.text.corpus import distinct_sample, iterate_sentences, read_sentences, stream_sentences
from st_extras.text.documents import Document, as_documents

ROWS = [f"sentence {i}" for i in range(10)]


def parquet(path: Path, texts=ROWS, column="sentence", **columns) -> Path:
    datasets.Dataset.from_dict({"id": list(range(len(texts))), column: texts, **columns}).to_parquet(str(path))
    return path


@pytest.fixture
def load_dataset(monkeypatch):
    """The arguments of each call of ``datasets.load_dataset``, which returns ROWS."""
    calls = []

    def load(*names, **options):
        calls.append((names, options))
        return datasets.Dataset.from_dict({"text": ROWS, "label": range(10)})

    monkeypatch.setattr(datasets, "load_dataset", load)
    return calls


def test_a_parquet_file_is_read_by_its_text_column(tmp_path):
    for column in ("text", "review"):
        assert read_sentences(parquet(tmp_path / "a[1].parquet", column=column)) == ROWS
    several = parquet(tmp_path / "b.parquet", column="headline", body=ROWS)
    with pytest.raises(ValueError, match=r"b\.parquet has no column .*: it has id, headline, body"):
        read_sentences(several)
    path = parquet(tmp_path / "a.parquet", texts=[*ROWS * 110, None])
    with pytest.raises(ValueError, match=r"a\.parquet, row 1100: .* got None"):
        read_sentences(path)
    broken = pa.table({"text": pa.array([b"caf\xe9"]).view(pa.string())})
    parquet_file.write_table(broken, path)
    with pytest.raises(ValueError, match=r"a\.parquet, row 0: could not be read \(UnicodeDecodeError: "):
        read_sentences(path)
    path.write_bytes(b"PAR1 but nothing else PAR1")
    with pytest.raises(ValueError, match=r"a\.parquet, row 0: could not be read") as caught:
        read_sentences(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("owner/name", {"split": "train"}),
        ("owner/name:dev", {"split": "dev"}),
        ("owner/name:20231101.en:dev", {"split": "dev", "name": "20231101.en"}),
        ("hf://datasets/owner/name", {"split": "train", "streaming": True}),
        ("hf://owner/name:en:dev", {"split": "dev", "name": "en", "streaming": True}),
    ],
)
def test_a_data_set_id_names_configuration_split_and_revision(load_dataset, name, options):
    assert read_sentences(name) == ROWS
    assert load_dataset == [(("owner/name",), options)]
    with pytest.raises(ValueError, match=rf"^{name}, row 0: .* got 0"):
        read_sentences(name, column="label")


def test_a_stream_is_not_begun_before_it_is_asked_for(monkeypatch):
    """A row that was read to check it would be missing, or be downloaded twice."""
    begun: list[int] = []

    def rows():
        begun.append(1)
        yield from ({"text": text} for text in ROWS)

    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.IterableDataset.from_generator(rows))
    sentences = stream_sentences("hf://datasets/owner/name")
    assert not begun
    assert [*sentences] == ROWS
    assert len(begun) == 1


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=(tmp_path / "pipe").write_text, args=("one\ntwo\n",), daemon=True).start()
    assert read_sentences(tmp_path / "pipe") == ["one", "two"]


def test_a_data_set_that_fails_is_named_with_the_row():
    def rows():
        yield from ({"text": text} for text in ROWS[:3])
        raise OSError("no such host\nat all")

    with pytest.raises(ValueError, match=r"^sentences, after row 2: could not be read \(OSError: no such host\)\.$"):
        list(iterate_sentences(datasets.IterableDataset.from_generator(rows)))


def test_images_beside_the_texts_are_not_decoded():
    """They take longer than the texts, and may be damaged."""
    columns = datasets.Features({"text": datasets.Value("string"), "image": datasets.Image()})
    data = datasets.Dataset.from_dict({"text": ["one"], "image": [{"bytes": b"no image", "path": None}]}, columns)
    assert [*iterate_sentences(data)] == ["one"]
    assert as_documents(data) == [Document(0, "", "one")]


def test_an_address_of_a_file_and_a_name_of_too_many_parts_are_refused():
    for wrong, named in (
        ("https://host/a.jsonl.gz", "A data set must be named owner/name, .* got 'https"),
        ("hf://datasets/owner/name/a.parquet", "A data set must be named"),
        ("owner/name:a:b:c", "owner/name:split or owner/name:configuration:split, .* got"),
        ("hf://owner/name:data/train", "A data set must be named owner/name"),
    ):
        with pytest.raises(ValueError, match=named):
            read_sentences(wrong)


def test_what_does_not_exist_is_named():
    for name in ("none.txt.gz", "./none", "a/b/none", "-", "~/none", "/none", r"C:\data\none", r"data\none"):
        with pytest.raises(ValueError, match=re.escape(f"There is no file {name!r}.")):
            read_sentences(name)
    with pytest.raises(ValueError, match="'nobody/nothing' is neither a file nor a data set") as caught:
        read_sentences("nobody/nothing")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"^There is no file that matches 'none\*\.txt'\.$"):
        read_sentences("none*.txt")
    with pytest.raises(ValueError, match=r"^A source of text must be a file, folder, pattern or data set, got ' '\.$"):
        read_sentences(" ")


# --- samples ---


def test_a_distinct_sample_depends_on_neither_order_nor_repetition():
    stream = [f"sentence {i % 300}" for i in range(2000)]
    sample = distinct_sample(iter(stream), 40, 3)
    assert sample == sorted(set(sample), key=stream.index)
    assert len(sample) == 40
    assert sorted(sample) == sorted(distinct_sample(sorted(stream)[::-1], 40, 3))
    assert sample != distinct_sample(stream, 40, 4)
    assert distinct_sample(stream, 5000, 3) == list(dict.fromkeys(stream))
    assert distinct_sample(stream, 40) == distinct_sample(stream, 40, 0)
    for wrong, named in (((0,), "count"), ((1.5,), "count"), ((40, 0.5), "seed")):
        with pytest.raises(ValueError, match=rf"^{named} must"):
            distinct_sample(stream, *wrong)
