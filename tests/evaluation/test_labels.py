"""What a label may be, and labels as numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from datasets import Dataset

from st_extras.evaluation.labels import check_different, check_label, check_labels, check_together, label_numbers


@pytest.mark.parametrize(
    "labels",
    [["3", "0"], [3, 0], (3, 0), np.array([3, 0]), np.array(["3", "0"]), torch.tensor([3, 0]), iter([3, "0"])],
)
def test_labels_become_text(labels: object) -> None:
    found = check_labels("labels", labels, 2)
    assert found == ["3", "0"]
    assert {type(label) for label in found} == {str}


def test_a_column_of_a_data_set_is_taken() -> None:
    assert check_labels("labels", Dataset.from_dict({"label": [1, 2]})["label"], 2) == ["1", "2"]


@pytest.mark.parametrize("value", [math.nan, None, 1.0, True, np.float32(1), np.bool_(True), b"a", ["a"]])
def test_a_label_of_another_type_is_named(value: object) -> None:
    with pytest.raises(ValueError, match=r"^labels, row 1: a label must be a string or a whole number, got .*\.$"):
        check_labels("labels", ["a", value], 2)


@pytest.mark.parametrize("value", ["", " \t"])
def test_an_empty_label_is_named(value: str) -> None:
    with pytest.raises(ValueError, match=r"^here: a label must not be empty, got '.*'\.$"):
        check_label(value, "here")


@pytest.mark.parametrize("labels", ["ab", b"ab", 3, None, {"a": 1}, np.array(3), torch.tensor(3)])
def test_what_is_no_list_is_named(labels: object) -> None:
    with pytest.raises(ValueError, match=r"^labels must be a list of strings or whole numbers, got "):
        check_labels("labels", labels, 2)


def test_a_matrix_is_no_list() -> None:
    with pytest.raises(ValueError, match=r"^labels, row 0: a label must be .*, got \[1, 2\]\.$"):
        check_labels("labels", torch.tensor([[1, 2]]), 1)


def test_another_number_is_named() -> None:
    with pytest.raises(ValueError, match=r"^train_labels must have one label for each of the train_texts, got 2 for 3"):
        check_labels("train_labels", ["a", "b"], 3, "train_texts")


def test_texts_and_labels_come_together() -> None:
    check_together("texts", None, "labels", None)
    check_together("texts", [], "labels", [])
    for texts, labels, missing in (([], None, "labels"), (None, [], "texts")):
        message = rf"^texts and labels must be given together, got {missing}=None: give both, or neither\.$"
        with pytest.raises(ValueError, match=message):
            check_together("texts", texts, "labels", labels)


def test_there_must_be_something_to_tell_apart() -> None:
    check_different("labels", ["a", "b"])
    with pytest.raises(ValueError, match=r"^labels must hold at least two different labels, got only 'a'\.$"):
        check_different("labels", ["a", "a"])
    with pytest.raises(ValueError, match=r"two different labels, got none\.$"):
        check_different("labels", [])


def test_equal_labels_get_equal_numbers_in_all_lists() -> None:
    first, second = label_numbers(["b", "a", "b"], ["c", "a", "a\0"])
    assert first.tolist() == [2, 0, 2]
    assert second.tolist() == [3, 0, 1]
    assert first.dtype == torch.int64
