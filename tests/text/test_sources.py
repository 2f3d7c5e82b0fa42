"""Corpora named by folders, parquet files, addresses and data sets; and samples of them."""

from pathlib import Path

import datasets
import pytest

from st_extras.text.corpus import distinct_sample, read_sentences
from st_extras.text.documents import read_documents
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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("owner/name", {"split": "train"}),
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


def test_addresses_of_files_are_read_like_files(tmp_path):
    parquet(tmp_path / "a.parquet")
    assert read_sentences(f"file://{tmp_path}/a.parquet") == ROWS
    write(tmp_path / "c.csv.gz", "id;text\n007;NA\n")
    assert read_documents(f"file://{tmp_path}/c.csv.gz")[:2] == (["007"], ["NA"])
    for wrong, named in (
        ("https://host/page.html", "address must be that of one file"),
        ("owner/name:a:b:c", "expected"),
        (f"file://{tmp_path}/*.parquet", "address must be that of one file"),
    ):
        with pytest.raises(ValueError, match=named):
            read_sentences(wrong)


def test_what_does_not_exist_is_named():
    for name in ("none.txt.gz", "./none", "a/b/none"):
        with pytest.raises(ValueError, match=f"There is no file '{name}'"):
            read_sentences(name)
    with pytest.raises(ValueError, match="'nobody/nothing' is neither a file nor a data set") as caught:
        read_sentences("nobody/nothing")
    assert "\n" not in str(caught.value)


# --- samples ---


def test_a_distinct_sample_depends_on_neither_order_nor_repetition():
    stream = [f"sentence {i % 300}" for i in range(2000)]
    sample = distinct_sample(iter(stream), 40, 3)
    assert sample == sorted(set(sample), key=stream.index)
    assert len(sample) == 40
    assert sorted(sample) == sorted(distinct_sample(sorted(stream)[::-1], 40, 3))
    assert sample != distinct_sample(stream, 40, 4)
    assert distinct_sample(stream, 5000, 3) == list(dict.fromkeys(stream))
