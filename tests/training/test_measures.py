"""What an adaptation is measured by: against scipy and label_scores."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import spearmanr

from st_extras.evaluation import LabeledTexts, STSDataset, label_scores
from st_extras.samples import graded_pairs
from st_extras.training.measures import Labels, Pairs, development
from tests.helpers import draw


def test_pairs_are_scored_by_spearman_of_cosine_and_grade() -> None:
    embeddings, grades = draw(20, 6), [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]
    pairs = Pairs([f"a{k}" for k in range(10)], [f"b{k}" for k in range(10)], grades)
    assert pairs.texts[:2] == ["a0", "a1"]
    assert pairs.texts[10] == "b0"
    cosines = [float(torch.cosine_similarity(embeddings[k], embeddings[10 + k], dim=0)) for k in range(10)]
    assert pairs.score(embeddings) == pytest.approx(100 * spearmanr(cosines, grades).statistic)


def test_the_packaged_pairs() -> None:
    first, second, grades = graded_pairs()
    general = Pairs.of_general_english()
    assert general.texts == [*first, *second]
    assert general.grades.tolist() == pytest.approx(list(grades))


def test_a_development_set_is_of_pairs_or_of_labels() -> None:
    pairs = development(STSDataset("pairs", ["a", "b"], ["c", "d"], [0.0, 1.0], ["x", "x"]))
    assert isinstance(pairs, Pairs)
    assert pairs.texts == ["a", "b", "c", "d"]
    labels = [str(k % 2) for k in range(12)]
    measure = development(LabeledTexts([f"t{k}" for k in range(12)], labels))
    assert isinstance(measure, Labels)
    embeddings = draw(12, 4)
    assert measure.score(embeddings) == pytest.approx(100 * label_scores(embeddings, labels)["mean"])
