"""The text of a training; tests/training/test_run.py tests what is refused."""

import pytest
from datasets import Dataset, Features, IterableDataset, Value

from st_extras.adaptation import adapt
from st_extras.encoders.structure import check_known
from st_extras.losses import SimCSELoss
from st_extras.training import data as module
from st_extras.training import train_encoder
from st_extras.training.data import spaced_texts, training_dataset, warn_of_labels
from tests.fixtures import SENTENCES


def test_sentences_become_one_column_and_empty_texts_are_refused_or_skipped_in_a_stream():
    assert training_dataset(tuple(SENTENCES)).to_dict() == {"sentence": SENTENCES}
    for empty, column in ((" \t", "a"), ("", "b")):
        rows = {"a": ["x", "w", "z"], "b": ["v", "y", "z"]}
        rows[column][1] = empty
        data = Dataset.from_dict(rows)
        with pytest.raises(ValueError, match=rf"^data\[1\]\['{column}'\] must"):
            training_dataset(data)
        with pytest.raises(ValueError, match=r"^data\[1\] must be a non-empty string, got '.*': leave it out\.$"):
            training_dataset(["x", empty])
        kept = data.select([0, 2])
        assert training_dataset(kept) is kept
        assert [row["a"] for row in training_dataset(data.to_iterable_dataset())] == ["x", "z"]
    with pytest.raises(ValueError, match=r"^data\[1\]\['a'\] must be a string, got None"):
        list(training_dataset(Dataset.from_dict({"a": ["x", None]}).to_iterable_dataset()))
    with pytest.raises(ValueError, match=r"^data\[0\]\['label'\] must be a number, got None: leave the column out"):
        list(training_dataset(Dataset.from_dict({"a": ["x"], "label": [None]}).to_iterable_dataset()))
    labels = Dataset.from_dict({"a": ["x", "y"], "label": [1, None]}).to_iterable_dataset()
    with pytest.raises(ValueError, match=r"^data\[1\]\['label'\] must be a number, got None: leave the column out"):
        list(training_dataset(labels))


@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_a_row_is_named_by_its_number_however_many_are_read_at_a_time(monkeypatch, rows):
    monkeypatch.setattr(module, "_ROWS", rows)
    texts = [*"abcdefg"]
    for at in (0, 2, 3, 6):
        some = [*texts[:at], " ", *texts[at + 1 :]]
        with pytest.raises(ValueError, match=rf"^data\[{at}\] must"):
            training_dataset(some)
        with pytest.raises(ValueError, match=rf"^data\[{at}\]\['b'\] must"):
            training_dataset(Dataset.from_dict({"a": texts, "b": some}))
        labels = [None if row == at else row for row in range(7)]
        with pytest.raises(ValueError, match=rf"^data\[{at}\]\['label'\] must"):
            training_dataset(Dataset.from_dict({"a": texts, "label": labels}))
    whole = Dataset.from_dict({"a": texts, "label": [*range(7)]})
    assert training_dataset(whole) is whole


def test_a_stream_without_a_row_is_refused():
    with pytest.raises(ValueError, match=r"^data must hold at least one sentence, got none\.$"):
        training_dataset(IterableDataset.from_generator(lambda: iter(())))


def test_columns_of_long_strings_are_texts():
    features = Features({"label": Value("int64"), "a": Value("large_string"), "b": Value("string")})
    data = Dataset.from_dict({"label": [1, 2], "a": ["x", "y"], "b": ["z", "w"]}, features=features)
    assert training_dataset(data) is data
    assert spaced_texts(data) == ["x", "y"]


@pytest.mark.parametrize(("count", "kept"), [(4, [0, 1, 2, 3]), (5, [0, 2, 4]), (8, [0, 2, 4, 6]), (9, [0, 3, 6])])
def test_a_sample_is_spaced_over_the_rows_and_the_beginning_of_a_stream(monkeypatch, count, kept):
    """Of the first column of texts, without what the user's transform makes of it."""
    monkeypatch.setattr(module, "_SAMPLED", 4)
    monkeypatch.setattr(module, "_STREAMED", 3)
    texts = [f"text {number}" for number in range(count)]
    data = Dataset.from_dict({"score": [0.5] * count, "b": texts, "a": texts[::-1]})
    assert spaced_texts(data) == [texts[at] for at in kept]
    assert spaced_texts(data.with_transform(lambda rows: pytest.fail("called"))) == [texts[at] for at in kept]
    assert spaced_texts(data.to_iterable_dataset()) == texts[:3]


@pytest.mark.parametrize(
    ("texts", "warned"),
    [
        (["sports news", "politics"] * 8, True),
        (["sports news", "new politics"] * 4, True),
        (["sports news", "new politics"] * 3 + ["sports news"], False),
        ([f"{'sports news' if number < 4 else 'a b'} {number % 4}" for number in range(8)] * 2, True),
        ([f"sports news {number % 5}" for number in range(8)], False),
        ([f"label{number}" if number < 4 else f"sports news {number}" for number in range(8)], False),
        ([f"label{number}" if number < 5 else f"sports news {number}" for number in range(8)], True),
        ([f"label{number}" for number in range(16)], True),
        ([f"{number} {number}" for number in range(16)], True),
        ([f"\u4eca\u5929\u5929\u6c14{number}" for number in range(16)], False),
    ],
)
def test_a_column_of_labels_causes_a_warning_before_training(texts, warned, caplog):
    data = Dataset.from_dict({"sentence": texts})
    assert spaced_texts(data) == texts
    warn_of_labels(data, texts)
    warn_of_labels(Dataset.from_dict({"sentence": texts, "phrase": texts}), texts)  # PaSeR's repeat theirs
    assert ["looks like a column of labels" in line for line in caplog.messages] == [True] * warned


def test_texts_that_the_tokenizer_does_not_know(encoder, tmp_path, caplog):
    lost = ["\u0431\u0430\u043d\u043a " + "\u043e" * number for number in range(1, 9)]
    with pytest.raises(ValueError, match=r"^data must hold tokens"):
        train_encoder(encoder, SimCSELoss, lost, tmp_path / "out", max_steps=1, show_progress_bar=False)
    with pytest.raises(ValueError, match=r"^texts must hold tokens"):
        adapt(encoder, lost, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    check_known(encoder, [SENTENCES[0], *lost], "data")
    assert not caplog.messages
    train_encoder(encoder, SimCSELoss, [*SENTENCES, *lost], tmp_path / "out", max_steps=1, show_progress_bar=False)
    assert "This encoder hardly reads the texts" in caplog.text
