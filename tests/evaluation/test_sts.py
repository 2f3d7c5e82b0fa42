"""The STS evaluator against a correlation written out."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from scipy.stats import spearmanr

from st_extras import correlation
from st_extras.correlation import cosines_of_pairs, spearman, spearman_of_pairs
from st_extras.evaluation import SEVEN_STS, STSDataset, STSEvaluator, sts_evaluator
from st_extras.evaluation.paired import compare_sts
from tests.evaluation.test_sts_data import HEADER, ROWS
from tests.fixtures import SENTENCES
from tests.helpers import cosine, draw, write


def pairs(name: str = "stsb_dev", count: int = 8, seed: int = 0) -> STSDataset:
    """Pairs of SENTENCES in two subsets with random scores."""
    random = np.random.default_rng(seed)
    shift = 1 + seed % 3  # no sentence meets itself, no pair comes back turned round: no ties but for rounding
    second = SENTENCES[shift:] + SENTENCES[:shift]
    scores = [float(score) for score in random.permutation(count)]
    subsets = ["one" if i < 3 else "two" for i in range(count)]
    return STSDataset(name, SENTENCES[:count], second[:count], scores, subsets)


def cosines(model, data: STSDataset) -> list[float]:
    first, second = model.encode(data.sentences1), model.encode(data.sentences2)
    return [cosine(a, b) for a, b in zip(first, second, strict=True)]


class TestCorrelation:
    @pytest.mark.parametrize("block", [4, 18, 2**20])
    def test_cosines_of_pairs_are_those_of_a_loop_in_any_block(self, monkeypatch, block):
        monkeypatch.setattr(correlation, "_BLOCK", block)
        first, second = draw(10, 6), draw(10, 6, seed=1)
        first[2], second[5] = 0, first[5]
        found = cosines_of_pairs(first, second)
        expected = [0.0 if row == 2 else cosine(a, b) for row, (a, b) in enumerate(zip(first, second, strict=True))]
        assert found.tolist() == pytest.approx(expected, abs=1e-12)
        assert found[5] == 1.0
        assert cosines_of_pairs(second, first).tolist() == found.tolist()
        assert cosines_of_pairs(first[:0], second[:0]).shape == (0,)
        scores = [float(row % 4) for row in range(10)]
        points = 100 * spearmanr(expected, scores).statistic
        assert spearman_of_pairs(torch.cat([first, second]), scores) == pytest.approx(points)

    def test_several_rows_of_cosines_have_a_correlation_each(self):
        """Of unlike spread; one whose cosines lie within 1e-9 of each other has none."""
        scores = [3.0, 1, 4, 1, 5, 9, 2, 6]
        rows = draw(2, 2, 8).numpy() * [[[0.1], [0.9]], [[1e-3], [1]]]
        rows[0, 1] = 0.5 + 0.9e-9 * np.linspace(0, 1, 8)
        rows[1, 1] = 0.5 + 1.2e-9 * np.linspace(0, 1, 8)
        expected = [[spearmanr(row, scores).statistic for row in pair] for pair in rows]
        expected[0][1] = math.nan
        np.testing.assert_allclose(spearman(rows, scores), expected)
        assert math.isnan(spearman(rows[0, 0], [2.0] * 8))
        sides = draw(2, 3, 8, seed=1).numpy() * [[1], [10], [100]]
        pearson = [np.corrcoef(left, right)[0, 1] for left, right in zip(*sides, strict=True)]
        np.testing.assert_allclose(correlation.correlation(*sides), pearson)


class TestEvaluator:
    def test_equals_ranks_by_hand_and_the_plain_mean_over_sets(self, encoder):
        sets = [pairs("sts12", 8), pairs("sts13", 5, seed=3)]
        evaluator = STSEvaluator(sets)
        expected = [pytest.approx(spearmanr(data.scores, cosines(encoder, data))[0]) for data in sets]
        metrics = evaluator(encoder)
        assert list(metrics.values())[:2] == expected
        assert metrics["average_spearman_cosine"] == pytest.approx(sum(list(metrics.values())[:2]) / 2)
        assert evaluator.primary_metric == "average_spearman_cosine"
        assert list(metrics) == ["sts12_spearman_cosine", "sts13_spearman_cosine", "average_spearman_cosine"]

    def test_columns_of_tables_are_read_as_lists(self, encoder):
        """Such as those of a DataFrame, whose index may begin anywhere, and of a Dataset."""
        data = pairs()
        columns = {name: value for name, value in vars(data).items() if name != "name"}
        frame = pd.DataFrame(columns, index=range(5, 13))
        arrays = {name: np.array(value) for name, value in columns.items()}
        for table in (frame, Dataset.from_dict(columns), arrays, arrays | {"scores": torch.tensor(data.scores)}):
            given = STSDataset("stsb_dev", *(table[name] for name in columns))
            assert given == data
            assert STSEvaluator([given], setting="wmean")(encoder) == STSEvaluator([data], setting="wmean")(encoder)

    def test_weighted_mean_over_subsets(self, encoder):
        data = pairs()
        similarities = cosines(encoder, data)
        parts = [spearmanr(data.scores[p], similarities[p])[0] for p in (slice(0, 3), slice(3, None))]
        expected = (3 * parts[0] + 5 * parts[1]) / 8
        metrics = STSEvaluator([data], setting="wmean")(encoder)
        assert metrics["stsb_dev_spearman_cosine"] == pytest.approx(expected)
        assert abs(expected - spearmanr(data.scores, similarities)[0]) > 0.01  # the setting matters here

    def test_refusals(self):
        for wrong in ([], "stsb_dev", [("a", "b", 1.0)], [pairs("sts12"), pairs("sts12", seed=1)]):
            with pytest.raises(ValueError, match=r"^datasets must"):
                STSEvaluator(wrong)
        with pytest.raises(ValueError, match=r"^setting must"):
            STSEvaluator([pairs()], setting="mean")
        data = pairs()
        data.subsets[0] = "lonely"
        STSEvaluator([data])
        for sets in ([data], [pairs("sts12"), data]):
            with pytest.raises(ValueError, match=r"of stsb_dev: groups .*'lonely'"):
                STSEvaluator(sets, setting="wmean")
        data.scores[1] = float("nan")
        for sets in ([data], [pairs("sts12"), data]):
            with pytest.raises(ValueError, match=r"^stsb_dev: each number in scores"):
                STSEvaluator(sets)

    def test_by_name(self, tmp_path):
        file = write(tmp_path / "stsb_dev.tsv", HEADER + ROWS)
        write(tmp_path / "sts12.tsv", HEADER + ROWS)
        both = sts_evaluator(["stsb_dev", "sts12"], tmp_path, name="x")
        assert both.get_config_dict() == {"sets": ["stsb_dev", "sts12"], "setting": "all"}
        one = write(tmp_path / "one.tsv", HEADER + ROWS.replace("forum", "news"))
        subsets = sts_evaluator("one", one, setting="wmean", batch_size=7)
        assert (subsets.get_config_dict()["setting"], subsets.batch_size) == ("wmean", 7)
        assert STSEvaluator([pairs()], setting="wmean", name="x").csv_file == "sts_evaluation_x_wmean_results.csv"
        assert STSEvaluator([pairs()], setting="wmean", write_csv=False).csv_file is None
        assert len(sts_evaluator(iter(["stsb_dev", "sts12"]), tmp_path).datasets) == 2
        assert sts_evaluator("mine", file).primary_metric == "mine_spearman_cosine"
        with pytest.raises(ValueError, match=r"^names must be one name"):
            sts_evaluator(source=file)
        with pytest.raises(ValueError, match="each set once"):
            sts_evaluator(["stsb_dev", "STS-B dev"], tmp_path)


@pytest.mark.slow
def test_real_sets_have_subsets_enough_for_the_weighted_mean(data_folder):
    sts_evaluator(SEVEN_STS, data_folder, setting="wmean")


def fixed(table: dict[str, Any]) -> SimpleNamespace:
    """A model that gives each text the vector of the table."""
    card = SimpleNamespace(set_evaluation_metrics=lambda *_: None)

    def encode(texts: list[str], **_: Any) -> torch.Tensor:
        return torch.stack([torch.as_tensor(table[text]) for text in texts])

    return SimpleNamespace(encode=encode, model_card_data=card)


class TestTies:
    def test_similarities_that_differ_by_rounding_alone_are_tied(self):
        """Identical pairs have a cosine of 1 but for rounding, which says nothing about their order."""
        random = np.random.default_rng(0)
        vectors = {f"t{i}": random.normal(size=32).tolist() for i in range(40)}
        first = [f"t{i}" for i in range(20)]
        second = [*first[:8], *(f"t{i}" for i in range(28, 40))]
        scores = [float(i) for i in range(20)]
        exact = [1.0 if a == b else cosine(vectors[a], vectors[b]) for a, b in zip(first, second, strict=True)]
        data = STSDataset("toy", first, second, scores, ["x"] * 20)
        metrics = STSEvaluator([data])(fixed(vectors))
        assert metrics["toy_spearman_cosine"] == pytest.approx(spearmanr(scores, exact)[0], abs=1e-9)

    @pytest.mark.parametrize("deviation", [1e-2, 1e-4, 1e-6])
    def test_close_similarities_are_ordered_and_the_interval_is_about_the_difference(self, deviation):
        """A raw encoder gives all texts about the same embedding."""
        random = np.random.default_rng(1)
        texts = [f"t{i}" for i in range(400)]
        centre, apart = random.normal(size=32), random.normal(size=(400, 32))
        dense = dict(zip(texts, centre + deviation**0.5 * apart, strict=True))
        plain = dict(zip(texts, apart, strict=True))
        similarities = [cosine(dense[a], dense[b]) for a, b in zip(texts[::2], texts[1::2], strict=True)]
        assert np.ptp(similarities) < 20 * deviation
        scores = (np.argsort(np.argsort(similarities)) + random.normal(scale=60, size=200)).tolist()
        data = STSDataset("toy", texts[::2], texts[1::2], scores, ["x"] * 200)
        found = compare_sts(STSEvaluator([data]), [("dense", fixed(dense)), ("plain", fixed(plain))])
        expected = spearmanr(similarities, scores).statistic
        assert found["dense"]["toy_spearman_cosine"] == pytest.approx(expected, abs=1e-9)
        assert found["plain"]["low"] < found["plain"]["difference"] < found["plain"]["high"]

    @pytest.mark.parametrize("setting", ["all", "wmean"])
    def test_equal_similarities_have_no_correlation(self, setting, caplog):
        vectors = {text: [1.0, 2.0 + 1e-7 * i, 3.0] for i, text in enumerate(SENTENCES)}
        apart = {f"apart {i}": vector.tolist() for i, vector in enumerate(draw(10, 3))}
        texts, scores, subsets = list(apart), [1.0, 3.0, 2.0, 5.0, 4.0], ["x", "x", "y", "y", "y"]
        sets = [STSDataset("good", texts[:5], texts[5:], scores, subsets), pairs()]
        metrics = STSEvaluator(sets, setting=setting)(fixed(vectors | apart))
        assert [math.isnan(value) for value in metrics.values()] == [False, True, True], "the average has no set less"
        assert [message.partition(":")[0] for message in caplog.messages] == ["stsb_dev"]
        assert "all similarities are equal" in caplog.text
