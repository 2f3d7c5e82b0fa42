"""Columns of data sets: which are read, and that reading them in batches changes nothing."""

import datasets
import pytest

from st_extras.text.columns import TextColumns, iterate_rows, iterate_values, text_columns

ROWS = [f"sentence {i}" for i in range(2500)]


def tables(columns):
    """A data set, the same as a stream, and as a stream that knows its columns only when it is read."""
    data = datasets.Dataset.from_dict(columns)
    rows = [dict(row) for row in data]
    return data, data.to_iterable_dataset(), datasets.IterableDataset.from_generator(lambda: iter(rows))


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


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_the_usual_or_only_column_of_text_is_read(kind):
    data = tables({"sentence": ["one"], "text": ["two"], "label": [0]})[kind]
    for columns, expected in ((TextColumns(), "one"), (TextColumns("text"), "two"), (TextColumns("label"), 0)):
        assert list(iterate_values(data, columns)) == [(0, expected)]
    with pytest.raises(ValueError, match=r"has no column body: it has sentence, text, label"):
        list(iterate_values(data, TextColumns("body")))
    assert list(iterate_values(tables({"review": ["one"], "stars": [5]})[kind])) == [(0, "one")]
    for wrong in ({"review": ["one"], "author": ["two"]}, {"stars": [5]}):
        with pytest.raises(ValueError, match=r"queries.* has no column sentence or text"):
            list(iterate_values(tables(wrong)[kind], name="queries"))


def test_a_column_must_not_stand_twice():
    with pytest.raises(ValueError, match="one column text, got 2"):
        TextColumns().choose("a.csv", ["text", "text"])
    assert text_columns(datasets.Dataset.from_dict({"title": ["a"], "text": ["b"]})) == ("text", "title", None)
