"""Corpora named by folders, parquet files, addresses and data sets; and who reads which shard of them."""

from pathlib import Path

import datasets
import pytest

from st_extras.text.corpus import check_shard, distinct_sample, iterate_sentences, parse_shard, read_sentences
from tests.helpers import write

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
    path = parquet(tmp_path / "a.parquet", texts=[*ROWS, None])
    with pytest.raises(ValueError, match=r"a\.parquet, row 10: .* got None"):
        read_sentences(path)
    path.write_bytes(b"PAR1 but nothing else PAR1")
    with pytest.raises(ValueError, match=r"a\.parquet: could not be read") as caught:
        read_sentences(path)
    assert "\n" not in str(caught.value)


def test_what_save_to_disk_wrote_is_read(tmp_path):
    data = datasets.Dataset.from_dict({"text": ROWS})
    data.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict(train=data, test=data.select([3])).save_to_disk(str(tmp_path / "splits"))
    assert read_sentences(tmp_path / "one") == ROWS
    assert read_sentences(tmp_path / "splits/test") == ["sentence 3"]
    with pytest.raises(ValueError, match="splits test, train: give one"):
        read_sentences(tmp_path / "splits")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("owner/name", {"split": "train"}),
        ("owner/name:20231101.en:dev", {"split": "dev", "name": "20231101.en"}),
        ("owner/name@main:test", {"split": "test", "revision": "main"}),
        ("hf://datasets/owner/name", {"split": "train", "streaming": True}),
        ("hf://owner/name:en:dev", {"split": "dev", "name": "en", "streaming": True}),
    ],
)
def test_a_data_set_id_names_configuration_split_and_revision(load_dataset, name, options):
    assert read_sentences(name) == ROWS
    assert load_dataset == [(("owner/name",), options)]
    with pytest.raises(ValueError, match=rf"^{name}, row 0: .* got 0"):
        read_sentences(name, column="label")


def test_addresses_of_files_are_streamed(load_dataset):
    for address, loader in (("hf://datasets/owner/name/data/*.parquet", "parquet"), ("s3://bucket/a.tsv.gz", "csv")):
        assert read_sentences(address) == ROWS
        names, options = load_dataset[-1]
        assert (names, options["data_files"], options["streaming"]) == ((loader,), address, True)
    for wrong in ("https://host/page.html", "owner/name:a:b:c"):
        with pytest.raises(ValueError, match="expected"):
            read_sentences(wrong)


def test_what_does_not_exist_is_named():
    for name in ("none.txt.gz", "./none", "a/b/none"):
        with pytest.raises(ValueError, match=f"There is no file '{name}'"):
            read_sentences(name)
    with pytest.raises(ValueError, match="'nobody/nothing' is neither a file nor a data set") as caught:
        read_sentences("nobody/nothing")
    assert "\n" not in str(caught.value)


# --- shards ---


@pytest.mark.parametrize("count", [1, 3, 16])
def test_shards_share_a_corpus(tmp_path, count):
    write(tmp_path / "a.txt", "one\n\n two\nthree\n")
    sources = [tmp_path / "a.txt", parquet(tmp_path / "b.parquet"), write(tmp_path / "c.jsonl", '"four"')]
    whole = read_sentences(sources)
    shards = [read_sentences(sources, shard=(index, count)) for index in range(count)]
    assert shards == [whole[index::count] for index in range(count)]
    assert read_sentences(sources, shard=(0, 2), limit=2) == ["one", "three"]


def test_a_stream_of_many_files_is_split_by_its_files(tmp_path):
    files = [str(parquet(tmp_path / f"{part}.parquet", texts=ROWS[part::5])) for part in range(5)]
    stream = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    shards = [list(iterate_sentences(stream, shard=(index, 2))) for index in range(2)]
    assert shards == [[*ROWS[::5], *ROWS[1::5], *ROWS[2::5]], [*ROWS[3::5], *ROWS[4::5]]]
    address = f"file://{tmp_path}/*.parquet"
    assert [read_sentences(address, shard=(index, 2)) for index in range(2)] == shards
    six = [read_sentences(address, shard=(index, 6)) for index in range(6)]
    assert six == [read_sentences(address)[index::6] for index in range(6)]
    mixed = [address, write(tmp_path / "a.txt", "one\ntwo\n")]
    assert [read_sentences(mixed, shard=(index, 5))[2:] for index in range(3)] == [["one"], ["two"], []]


def test_a_shard_is_checked():
    assert check_shard([3, 16]) == parse_shard(" 3 / 16") == (3, 16)
    for wrong in ("", "3", "1/2/3", "16/16", "-1/4", "0/0"):
        with pytest.raises(ValueError, match=r"^shard"):
            parse_shard(wrong)


# --- samples ---


def test_a_distinct_sample_depends_on_neither_order_nor_repetition():
    stream = [f"sentence {i % 300}" for i in range(2000)]
    sample = distinct_sample(iter(stream), 40, 3)
    assert sample == sorted(set(sample), key=stream.index)
    assert len(sample) == 40
    assert sorted(sample) == sorted(distinct_sample(sorted(stream)[::-1], 40, 3))
    assert sample != distinct_sample(stream, 40, 4)
    assert distinct_sample(stream, 5000, 3) == list(dict.fromkeys(stream))
