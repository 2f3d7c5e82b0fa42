"""Corpora named by parquet files and data sets; and samples of them."""

import re
from pathlib import Path

import datasets
import pytest

from st_extras.text.corpus import distinct_sample, read_sentences

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
    with pytest.raises(ValueError, match=r"a\.parquet, row 0: could not be read") as caught:
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


def test_an_address_of_a_file_and_a_name_of_too_many_parts_are_refused():
    for wrong, named in (
        ("https://host/a.jsonl.gz", "A data set must be named owner/name, .* got 'https"),
        ("hf://datasets/owner/name/a.parquet", "A data set must be named"),
        ("owner/name:a:b:c", "owner/name:split or owner/name:configuration:split, .* got"),
    ):
        with pytest.raises(ValueError, match=named):
            read_sentences(wrong)


def test_what_does_not_exist_is_named():
    for name in ("none.txt.gz", "./none", "a/b/none", "-", r"C:\data\none", r"data\none"):
        with pytest.raises(ValueError, match=re.escape(f"There is no file {name!r}.")):
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
