"""The parts of an adaptation: the corpus, the transforms, short trainings, scores, the choice, and the report."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from st_extras.adaptation import (
    CANDIDATES,
    Adaptation,
    CandidateResult,
    DomainDetails,
    SearchDetails,
    ShortTraining,
    TextSummary,
    trainings,
)
from st_extras.adaptation.choice import Choice, choose, choose_harmless, is_tried, objections
from st_extras.adaptation.corpus import Sample, apart_from, sample_texts, split_corpus
from st_extras.adaptation.scoring import check_dev, development
from st_extras.evaluation import LabeledTexts, RetrievalTask, STSDataset, label_scores
from st_extras.modules.neighbor_directions import neighbor_directions
from tests.fixtures import SENTENCES
from tests.helpers import cosine, differing, draw, snapshot

TEXTS = [f"text {chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(603)]

# --- the corpus ---


def test_texts_are_sampled_once_each_in_random_order():
    stream = iter([*TEXTS, "", " ", f" {TEXTS[0]} ", TEXTS[1]])
    whole = sample_texts(stream, 1000, 1)
    assert (whole.read, sorted(whole.texts)) == (605, sorted(TEXTS))
    assert whole.texts != TEXTS
    assert sample_texts(TEXTS, 1000, 1).texts != sample_texts(TEXTS, 1000, 2).texts
    some = sample_texts(TEXTS, 520, 1)
    assert (some.read, len(some.texts)) == (603, 520)
    with pytest.raises(ValueError, match=r"^documents, row 1"):
        sample_texts(["a", 3], 1000, 1, "documents")


def test_texts_with_labels_that_choose_are_not_fitted_on():
    sample, labeled = Sample(TEXTS, 700), LabeledTexts([*TEXTS[:9], "other"], ["a", "b"] * 5)
    assert apart_from(sample, labeled) == Sample(TEXTS[9:], 700)
    assert apart_from(sample, None) is sample


def test_the_first_fifth_is_held_out_and_texts_without_embedding_are_left_out():
    vectors = draw(603, 4)
    vectors[5] = 0  # a table of words gives 0 to unknown words
    corpus = split_corpus(Sample(TEXTS, 700), vectors)
    left = [*TEXTS[:5], *TEXTS[6:]]
    rows = torch.cat([vectors[:5], vectors[6:]])
    assert (corpus.held_out, corpus.fitting, corpus.unusable) == (left[:120], left[120:], "")
    assert torch.equal(corpus.held_out_embeddings, rows[:120])
    assert torch.equal(corpus.fitting_embeddings, rows[120:])
    assert corpus.rows.tolist() == [*range(5), *range(6, 603)]
    summary = corpus.summary
    assert (summary.read, summary.sampled, summary.used, summary.held_out) == (700, 603, 602, 120)
    assert summary.mean_words == 2.0


@pytest.mark.parametrize(
    ("texts", "vectors", "reason"),
    [
        (TEXTS[:499], draw(499, 4), "500 different texts are needed, got 499."),
        (TEXTS, draw(499, 4), "499 of 603 were encoded in the time"),
        (TEXTS, torch.zeros(0, 0), "0 of 603 were encoded in the time"),
        ([*map(str, range(603))], draw(603, 4), "only 0% of the texts have a letter"),
        (TEXTS, torch.ones(603, 4), "about the same embedding"),
        (TEXTS, torch.eye(603)[:, :499], "needed, and 499 of 603 have an embedding other than 0."),
        ([f"{a} {n}" for a in ("by", "By") for n in range(300)], draw(600, 4), "got 1 but for numbers and case."),
    ],
)
def test_texts_that_cannot_be_used(texts, vectors, reason):
    assert reason in split_corpus(Sample(texts, len(texts)), vectors).unusable


# --- transforms and trainings ---


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda candidate: candidate.name)
def test_the_transform_is_that_of_the_docstring(candidate):
    embeddings = draw(300, 6) * torch.tensor([3.0, 2.0, 1.0, 1.0, 0.5, 0.2]) + 1.5
    found = neighbor_directions(embeddings)
    axes, variances, q = found.axes.numpy(), found.variances.numpy(), found.directions.numpy()
    rho, mean = found.agreement.numpy(), found.mean.numpy()
    kernel = np.zeros((6, 6))
    for k in range(6):
        out = sum(axes[:, r] * variances[r] ** -0.5 * q[r, k] for r in range(6))
        back = sum(axes[:, r] * variances[r] ** (candidate.recolor / 2) * q[r, k] for r in range(6))
        kernel += rho[k] * np.outer(out, back)
    covariance = sum(variances[r] * np.outer(axes[:, r], axes[:, r]) for r in range(6))
    kernel *= np.sqrt(np.trace(covariance) / np.trace(kernel.T @ covariance @ kernel))
    share = candidate.strength * found.count / (found.count + 1000)
    matrix, offset = candidate.affine(found)
    for v in embeddings[:5].numpy():
        away = v - mean
        expected = (1 - share) * away + share * (away @ kernel) + candidate.kept_mean * mean
        np.testing.assert_allclose(v @ matrix.numpy() + offset.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize(("share", "guide"), [(0.2, "start"), (None, None)])
def test_a_copy_is_trained_with_the_settings(encoder, tmp_path, monkeypatch, share, guide):
    made: list[dict[str, Any]] = []
    loss = trainings.DCLRLoss
    monkeypatch.setattr(trainings, "DCLRLoss", lambda model, **options: made.append(options) or loss(model, **options))
    before = snapshot(encoder)
    training = ShortTraining("t", 1, 1e-3, share, ("dropout", "shuffle"))
    trained = training.trained_copy(encoder, SENTENCES, tmp_path / "out", 1, show_progress_bar=False)
    guided = {} if guide is None else {"complementary_model": guide, "masked_share": share}
    assert made[0] == {"augmentations": ("dropout", "shuffle"), **guided}
    assert (differing(before, snapshot(encoder)), differing(before, snapshot(trained)) != set()) == (set(), True)


# --- scores ---


def test_pairs_are_scored_by_spearman_and_labels_by_the_mean_of_three():
    embeddings, grades = draw(20, 6), [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]
    first, second = [f"a{k}" for k in range(10)], [f"b{k}" for k in range(10)]
    pairs = development(STSDataset("pairs", first, second, grades, ["x"] * 10))
    cosines = [cosine(embeddings[k], embeddings[10 + k]) for k in range(10)]
    assert pairs.texts == [*first, *second]
    assert pairs.score(embeddings) == pytest.approx(100 * spearmanr(cosines, grades).statistic)
    labels = [str(k % 2) for k in range(20)]
    measure = development(LabeledTexts([f"t{k}" for k in range(20)], labels))
    assert measure.score(embeddings) == pytest.approx(100 * label_scores(embeddings, labels)["mean"])


def test_development_sets_that_are_refused():
    task = RetrievalTask({"q": "a"}, {"d": "b"}, {"q": {"d": 1.0}})
    pairs = [STSDataset("no", list("ab"), list("cd"), s) for s in ([1.0, 1.0], [1.0, float("nan")], [1.0, 2.0, 3.0])]
    for dev in (["a"], task, LabeledTexts(["a", "b"], ["x", "y"]), *pairs):
        with pytest.raises(ValueError, match=r"^dev(:| must)"):
            check_dev(dev)
    check_dev(None)


# --- the choice ---

FORGETS = "loses 1.00 on general pairs, 0.50 allowed"


def result(name: str, gain: float, reason: str = "", low: float | None = 0.01) -> CandidateResult:
    return CandidateResult(name, gain, low, None if low is None else 1.0, None, not reason, reason, 0.0)


@pytest.mark.parametrize(
    ("results", "index", "reason"),
    [
        ([result("a", 0.3), result("b", 0.39), result("c", 0.2)], 0, "a was chosen: "),
        ([result("a", 0.29), result("b", 0.39), result("c", 0.2)], 1, "b was best."),
        ([result("a", 0.3), result("b", 0.39, FORGETS)], 0, "a was best of what is accepted: b gains more and forgets"),
        ([result("a", 0.38, low=None), result("b", 0.39, low=None)], 1, "b was best."),
        ([], None, "no candidate was better than the base model."),
        ([result("a", -0.1, "not better", low=-0.2)], None, "no candidate was better than the base model."),
        ([result("a", 0.1, FORGETS)], None, "what was better than the base model loses too much on general pairs"),
    ],
)
def test_the_gentlest_of_the_good_ones_is_chosen(results, index, reason):
    choice = choose(results)
    assert choice.index == index
    assert choice.reason.startswith(reason)


def test_the_first_one_without_harm_is_chosen():
    bad, good, better = result("a", -1.0, "later"), result("b", 0.0), result("c", 0.5)
    assert choose_harmless([bad, good, better]) == Choice(1, "b was chosen: no harm was found.")
    assert choose_harmless([bad]).index is None


def test_whitening_is_tried_where_the_transform_before_it_keeps_general_english():
    """It may cost an eighth of the budget; with labels, or where general pairs show nothing, it is always tried."""
    assert [is_tried(lost, 2.0, by_labels=False) for lost in (-3.0, 0.25, 0.26)] == [True, True, False]
    assert is_tried(None, 2.0, by_labels=False)
    assert is_tried(9.0, 2.0, by_labels=True)


def test_what_speaks_against_a_candidate():
    assert objections(0.1, 0.01, None, 0.5) == objections(0.1, None, 0.5, 0.5) == ""
    assert objections(0.1, 0.0, None, 0.5).startswith("not better")
    assert objections(0.0, None, None, 0.5).startswith("not better")
    assert objections(0.1, 0.01, 1.0, 0.5) == FORGETS
    undefined = objections(float("nan"), None, float("nan"), 0.5)
    assert undefined == "not better than the base model; loses nan on general pairs, 0.50 allowed"


# --- the report ---


def report(details: Any, *candidates: CandidateResult) -> Adaptation:
    model: Any = object()
    texts = TextSummary(9, 8, 7, 2, 3.5, 0.1)
    return Adaptation(model, "b", "b was best.", "points", list(candidates), texts, details, 1.26)


def test_the_table_has_the_base_model_and_no_empty_columns():
    domain = report(
        DomainDetails(2.0, general=80.0, unrelated_after={100: (0.1, 0.0, 0.2)}),
        CandidateResult("a", -0.1, -0.2, 0.1, 79.0, False, "not better", 1.0),
        CandidateResult("b", 0.25, 0.2, 0.3, 79.5, True, "", 2.0),
    )
    titles, rows = domain.table()
    assert titles == ["candidate", "gain", "95 % interval", "general", "seconds", "accepted"]
    assert rows[0] == ["base model", "", "", "80.00", "", ""]
    assert rows[1] == ["a", "-0.1000", "-0.2000 to +0.1000", "79.00 (-1.00)", "1", "no: not better"]
    assert domain.chosen_result == domain.candidates[1]
    search = report(SearchDetails(20, True), CandidateResult("b", 0.25, None, None, None, True, "", 0.0))
    assert search.table()[0] == ["candidate", "gain", "accepted"]
    written = json.loads(json.dumps(domain.written()))
    assert written["details"]["unrelated_after"] == {"100": [0.1, 0.0, 0.2]}
    assert (written["changed"], written["chosen"], written["seconds"]) == (True, "b", 1.3)
