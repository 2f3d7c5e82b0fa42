"""How embeddings are measured: graded pairs, labelled texts."""

import pytest
import torch
from scipy.stats import spearmanr

from st_extras.adaptation.scoring import check_dev, development, general_english
from st_extras.evaluation import LabeledTexts, RetrievalTask, STSDataset, label_scores
from st_extras.samples import graded_pairs
from tests.helpers import draw


def test_pairs_are_scored_by_spearman_of_cosine_and_grade():
    embeddings, grades = draw(20, 6), [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]
    first, second = [f"a{k}" for k in range(10)], [f"b{k}" for k in range(10)]
    pairs = development(STSDataset("pairs", first, second, grades, ["x"] * 10))
    assert pairs.texts == [*first, *second]
    cosines = [float(torch.cosine_similarity(embeddings[k], embeddings[10 + k], dim=0)) for k in range(10)]
    assert pairs.score(embeddings) == pytest.approx(100 * spearmanr(cosines, grades).statistic)
    first, second, _ = graded_pairs()
    assert general_english().texts == [*first, *second]


def test_labels_are_scored_by_the_mean_of_three():
    embeddings, labels = draw(12, 4), [str(k % 2) for k in range(12)]
    measure = development(LabeledTexts([f"t{k}" for k in range(12)], labels))
    assert measure.score(embeddings) == pytest.approx(100 * label_scores(embeddings, labels)["mean"])


def test_development_sets_that_are_refused():
    task = RetrievalTask({"q": "a"}, {"d": "b"}, {"q": {"d": 1.0}})
    pairs = [STSDataset("no", list("ab"), list("cd"), s) for s in ([1.0, 1.0], [1.0, float("nan")], [1.0, 2.0, 3.0])]
    for dev in (["a"], task, LabeledTexts(["a", "b"], ["x", "y"]), *pairs):
        with pytest.raises(ValueError, match=r"^dev(:| must)"):
            check_dev(dev)
    check_dev(None)
