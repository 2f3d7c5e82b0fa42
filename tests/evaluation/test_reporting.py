"""What the evaluators share: checks, names, CSV files with matching columns, the model card and the log."""

import csv
import logging
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_extras.evaluation.reporting import (
    ReportingEvaluator,
    bootstrap_interval,
    check_embeddings,
    check_sentences,
    resampled,
)


class Toy(ReportingEvaluator):
    def __init__(self, metrics: dict[str, float], name: str = "") -> None:
        super().__init__("toy", "accuracy", name, 3, False, True)
        self.metrics = metrics

    def measure(self, model: SentenceTransformer) -> dict[str, float]:
        return self.metrics


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_a_report_is_a_row_a_model_card_entry_and_a_log_line(encoder, tmp_path, caplog):
    dev = Toy({"accuracy": 0.25, "loss": 1}, "dev")
    with caplog.at_level(logging.INFO):
        metrics = dev(encoder, str(tmp_path / "new"), 0.5, 7)
    assert metrics == {"dev_accuracy": 0.25, "dev_loss": 1.0}
    expected = [["epoch", "steps", "accuracy", "loss"], ["0.5", "7", "0.25", "1"]]
    assert rows(tmp_path / "new" / "toy_dev_results.csv") == expected
    assert "Toy at epoch 0.5, step 7: dev_accuracy 0.2500, dev_loss 1.0000" in caplog.text
    assert list(encoder.model_card_data.eval_results_dict.items()) == [(dev, metrics)]
    assert encoder.model_card_data.training_logs == [{"Epoch": 0, "Step": 7, "dev_accuracy": 0.25}]


def test_a_second_report_is_a_second_row(encoder, tmp_path):
    for value, when in ((1.0, (0, 1)), (3.0, ())):
        Toy({"a": value})(encoder, str(tmp_path), *when)
    assert rows(tmp_path / "toy_results.csv") == [["epoch", "steps", "a"], ["0", "1", "1.0"], ["-1", "-1", "3.0"]]


def test_a_path_that_cannot_be_written_is_named_and_the_metrics_are_logged(encoder, tmp_path, caplog):
    (tmp_path / "file").write_text("mine")
    with caplog.at_level(logging.INFO), pytest.raises(OSError, match="file"):
        Toy({"accuracy": 0.75})(encoder, str(tmp_path / "file"), 0, 1)
    assert "accuracy 0.7500" in caplog.text
    assert (tmp_path / "file").read_text() == "mine"


def test_sentences_are_strings_or_a_column(sentences):
    for given in (tuple(sentences), Dataset.from_dict({"text": sentences})):
        assert check_sentences("texts", given, at_least=2) == sentences
    for wrong in ("a cat", ["a", None], ["a"], {"train": sentences}):
        with pytest.raises(ValueError, match=r"^texts"):
            check_sentences("texts", wrong, at_least=2)
    for least, message in ((1, "at least 1 sentence, got 0"), (2, "at least 2 sentences, got 0")):
        with pytest.raises(ValueError, match=rf"^texts must hold {message}\.$"):
            check_sentences("texts", [], at_least=least)


def test_embeddings_are_scaled_or_refused():
    unit = check_embeddings("x", torch.tensor([[3.0, 4.0], [0.0, -2.0]], dtype=torch.bfloat16))
    assert unit.dtype == torch.float64
    assert unit.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, -1.0]]
    assert check_embeddings("x", [[3, 4]]).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    for wrong in (torch.ones(3), 3.5, [[math.inf, 1.0]], [[1.0, 1.0], [0.0, 0.0]]):
        with pytest.raises(ValueError, match=r"^x must"):
            check_embeddings("x", wrong)
    with pytest.raises(
        ValueError, match=r"^x must have a direction in each row, got a row of length zero \(row 1\)\.$"
    ):
        check_embeddings("x", [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match=r"^x must be \(N, D\) with N >= 3"):
        check_embeddings("x", [[1.0], [1.0]], at_least=3)


def test_one_value_has_no_interval():
    """Samples of one query are all the same: an interval without width would look certain."""
    assert all(map(math.isnan, bootstrap_interval(np.array([0.63]))))
    low, high = bootstrap_interval(np.array([0.6, 0.7]))
    assert low < high


def test_a_sample_has_as_many_items_of_each_set_as_there_are():
    """Any of them, some twice; the same samples whatever is scored."""
    drawn: list[list[list[int]]] = []
    for _ in range(2):
        assert resampled(lambda rows: drawn.append([one.tolist() for one in rows]) or len(drawn), [3, 40], 50, 1)
    assert drawn[:50] == drawn[50:]
    assert {tuple(map(len, sample)) for sample in drawn} == {(3, 40)}
    assert [{row for sample in drawn for row in sample[of]} for of in (0, 1)] == [{*range(3)}, {*range(40)}]
    assert min(len({*few}) for few, _ in drawn) < 3


def test_the_interval_has_as_many_samples_and_the_seed_that_are_asked_for():
    values = np.linspace(0, 1, 30) ** 2
    ends = {bootstrap_interval(values, *given) for given in ((), (500,), (1000, 1), (1000, -1))}
    assert len(ends) == 4
    assert bootstrap_interval(values) == bootstrap_interval(values, 1000, 0)
