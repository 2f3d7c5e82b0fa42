"""Columns of data sets: which one is read, and that reading it in batches changes nothing."""

import datasets
import pytest

from st_extras.text.columns import TextColumns, iterate_rows, iterate_values

ROWS = [f"sentence {i}" for i in range(2500)]


def stream(columns):
    rows = [dict(row) for row in datasets.Dataset.from_dict(columns)]
    return datasets.IterableDataset.from_generator(lambda: iter(rows))


@pytest.mark.parametrize("form", [None, "numpy", "torch", "transform"])
def test_every_row_comes_once_and_in_order(form):
    data = datasets.Dataset.from_dict({"text": ROWS, "label": list(range(len(ROWS)))})
    expected = ROWS
    if form == "transform":  # needs a column that is not asked for
        data = data.with_transform(lambda batch: {"text": [f"{t} {i}" for t, i in zip(*batch.values(), strict=True)]})
        expected = [f"{text} {i}" for i, text in enumerate(ROWS)]
    elif form:
        data = data.with_format(form)
    text = TextColumns("text")
    assert list(iterate_values(data, text)) == list(enumerate(expected))
    shuffled = data.select(range(len(ROWS))[::-1])
    assert [value for _, value in iterate_values(shuffled, text)] == expected[::-1]


@pytest.mark.parametrize("ahead", [1, 8, 1000])
def test_streams_are_read_in_batches(ahead):
    data = datasets.Dataset.from_dict({"text": ROWS, "label": list(range(len(ROWS)))}).to_iterable_dataset()
    rows = iterate_rows(data, TextColumns(ids=("label",)), name="data", ahead=ahead)
    assert list(rows) == [(row, row, text) for row, text in enumerate(ROWS)]


def test_a_stream_that_knows_its_columns_when_it_is_read():
    assert list(iterate_values(stream({"review": ["one", "two"], "stars": [5, 4]}))) == [(0, "one"), (1, "two")]
    with pytest.raises(ValueError, match=r"sentences, row 0 has no column sentence or text .*: it has review, author"):
        list(iterate_values(stream({"review": ["one"], "author": ["two"]})))
    with pytest.raises(ValueError, match="sentences, row 0 has no column body: it has review"):
        list(iterate_values(stream({"review": ["one"]}), TextColumns("body")))
