"""Corpora named by folders, parquet files, addresses and data sets; and who reads which shard of them."""

import json
from pathlib import Path

import datasets
import pytest

from st_extras.text.corpus import (
    check_shard,
    distinct_sample,
    iterate_sentences,
    parse_shard,
    read_sentences,
    stream_sentences,
)
from tests.helpers import write

ROWS = [f"sentence {i}" for i in range(10)]


def parquet(path: Path, texts=ROWS, column="sentence", **columns) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict({"id": list(range(len(texts))), column: texts, **columns}).to_parquet(str(path))
    return path


# --- kinds of sources ---


@pytest.mark.parametrize("column", ["sentence", "text", "review"])
def test_a_parquet_file_is_read_by_its_text_column(tmp_path, column):
    assert read_sentences(parquet(tmp_path / "a[1].parquet", column=column)) == ROWS


def test_a_fault_in_a_parquet_file_names_file_and_row(tmp_path):
    several = parquet(tmp_path / "b.parquet", column="headline", body=ROWS)
    with pytest.raises(ValueError, match=r"b\.parquet has no column .*: it has id, headline, body"):
        read_sentences(several)
    path = parquet(tmp_path / "a.parquet", texts=[*ROWS, None])
    with pytest.raises(ValueError, match=r"a\.parquet, row 10: .* got None"):
        read_sentences(path)
    path.write_bytes(b"PAR1 but nothing else PAR1")
    with pytest.raises(ValueError, match=r"a\.parquet: could not be read \(.*\)\.") as caught:
        read_sentences(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"'.*' holds no sentences"):
        read_sentences(parquet(tmp_path / "empty.parquet", texts=["", " "]))


def test_what_save_to_disk_wrote_is_read(tmp_path):
    data = datasets.Dataset.from_dict({"text": ROWS})
    data.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict(train=data, test=data.select([3])).save_to_disk(str(tmp_path / "splits"))
    assert read_sentences(tmp_path / "one") == ROWS
    assert read_sentences(tmp_path / "splits/test") == ["sentence 3"]
    with pytest.raises(ValueError, match=r"splits test, train: give one of its folders, as in '.*splits/test"):
        read_sentences(tmp_path / "splits")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("owner/name", {"split": "train"}),
        ("owner/name:20231101.en:dev", {"split": "dev", "name": "20231101.en"}),
        ("owner/name@main:", {"split": "train", "revision": "main"}),
        ("hf://datasets/owner/name", {"split": "train", "streaming": True}),
        ("hf://owner/name:en:dev", {"split": "dev", "name": "en", "streaming": True}),
    ],
)
def test_a_data_set_id_names_configuration_split_and_revision(monkeypatch, name, options):
    asked = []

    def load_dataset(*given, **settings):
        asked.append((given, settings))
        return datasets.Dataset.from_dict({"text": ROWS})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_sentences(name) == ROWS
    assert asked == [(("owner/name",), options)]


def test_addresses_of_files_are_streamed(monkeypatch):
    asked = []

    def load_dataset(loader, *, data_files, split, streaming, **settings):
        asked.append((loader, data_files, split, streaming))
        return datasets.Dataset.from_dict({"text": ROWS}).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for address, loader in (("hf://datasets/owner/name/data/*.parquet", "parquet"), ("s3://bucket/a.tsv.gz", "csv")):
        assert read_sentences(address) == ROWS
        assert asked[-1] == (loader, address, "train", True)
    for wrong in ("https://host/page.html", "owner/name:a:b:c"):
        with pytest.raises(ValueError, match="expected"):
            read_sentences(wrong)


@pytest.mark.parametrize("name", ["a.txt.zst", "corpus.jsonl.lz4"])
def test_a_file_that_must_be_unpacked_is_named(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name}.*unpack it"):
        read_sentences(write(tmp_path / name, "a"))


def test_brackets_in_the_name_of_a_file_are_no_pattern(tmp_path):
    for name, row in (("a[1].json", "here"), ("a1.json", "not asked for")):
        (tmp_path / name).write_text(json.dumps({"text": row}) + "\n")
    assert read_sentences(tmp_path / "a[1].json") == ["here"]


# --- shards ---


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_shards_share_a_corpus(tmp_path, count):
    write(tmp_path / "a.txt", "one\n\n two\nthree\n")
    sources = [tmp_path / "a.txt", parquet(tmp_path / "b.parquet"), write(tmp_path / "c.jsonl", '"four"')]
    whole = read_sentences(sources)
    shards = [read_sentences(sources, shard=(index, count)) for index in range(count)]
    assert shards == [whole[index::count] for index in range(count)]
    assert read_sentences(sources, shard=(0, 2), limit=2) == ["one", "three"]


@pytest.mark.parametrize("kind", ["list", "iterator", "data set", "stream"])
def test_shards_of_sentences_in_python(kind):
    data = datasets.Dataset.from_dict({"text": ROWS})
    for index in range(4):
        source = {"list": ROWS, "iterator": iter(ROWS), "data set": data, "stream": data.to_iterable_dataset()}[kind]
        assert list(iterate_sentences(source, shard=(index, 4))) == ROWS[index::4]
    with pytest.raises(ValueError, match=r"sentences, row 3: .* got 3"):
        list(iterate_sentences([*ROWS[:3], 3], shard=(3, 4)))


def test_a_stream_of_many_files_is_split_by_its_files(tmp_path):
    files = [str(parquet(tmp_path / f"{part}.parquet", texts=ROWS[part::5])) for part in range(5)]
    stream = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    shards = [list(iterate_sentences(stream, shard=(index, 2))) for index in range(2)]
    assert shards == [[*ROWS[::5], *ROWS[1::5], *ROWS[2::5]], [*ROWS[3::5], *ROWS[4::5]]]
    address = f"file://{tmp_path}/*.parquet"
    assert [read_sentences(address, shard=(index, 2)) for index in range(2)] == shards
    six = [read_sentences(address, shard=(index, 6)) for index in range(6)]
    assert six == [read_sentences(address)[index::6] for index in range(6)]


def test_a_shard_is_checked():
    assert check_shard([3, 16]) == parse_shard("3/16") == parse_shard(" 3 / 16") == (3, 16)
    for wrong in ((16, 16), (-1, 4), (0, 0), (0.5, 2), ("0", 2)):
        with pytest.raises(ValueError, match=r"shard's (index|count)"):
            list(iterate_sentences(ROWS, shard=wrong))
    for wrong in ("", "3", "a/b", "1/2/3", "0.5/2", "16/16"):
        with pytest.raises(ValueError, match="shard"):
            parse_shard(wrong)
    with pytest.raises(ValueError, match="shard"):
        stream_sentences("a", shard=(2, 2))


# --- samples ---


def test_a_distinct_sample_depends_on_neither_order_nor_repetition():
    stream = [f"sentence {i % 300}" for i in range(2000)]
    sample = distinct_sample(iter(stream), 40, 3)
    assert sample == distinct_sample(stream, 40, 3) == sorted(sample, key=stream.index)
    assert len(set(sample)) == 40
    assert sorted(sample) == sorted(distinct_sample(sorted(stream)[::-1], 40, 3))
    assert sample != distinct_sample(stream, 40, 4)
    assert distinct_sample(stream, 300, 3) == distinct_sample(stream, 5000, 3) == list(dict.fromkeys(stream))
    assert distinct_sample([], 5) == []


def test_every_item_has_the_same_chance():
    counts = dict.fromkeys(map(str, range(20)), 0)
    for seed in range(2000):
        for item in distinct_sample(counts, 5, seed):
            counts[item] += 1
    assert all(abs(count - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5 for count in counts.values())
