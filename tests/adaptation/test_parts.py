"""The parts of an adaptation: the corpus, the transforms, scores, the choice, and the report."""

import dataclasses
import json
import math
from itertools import pairwise
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
    TextSummary,
    domain,
)
from st_extras.adaptation.choice import (
    POINTS_PER_GAIN,
    Choice,
    choose,
    default_general_loss,
    expected_points,
    why_no_whitening,
    why_not_accepted,
)
from st_extras.adaptation.domain import (
    card_line,
    check_dev,
    check_settings,
    compute_candidates,
    corpus_of_sample,
    dev_score,
)
from st_extras.adaptation.run import Sample, sample_texts
from st_extras.adaptation.search import choose_harmless
from st_extras.evaluation import LabeledTexts, RetrievalTask, STSDataset, label_scores
from st_extras.evaluation.geometry import mean_cosine
from st_extras.modules.linear import Affine
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.term_weights import character_tfidf, near_duplicate_share
from tests.helpers import cosine, draw

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


def test_texts_without_embedding_are_left_out():
    vectors = draw(603, 4)
    vectors[5] = 0  # a table of words gives 0 to unknown words
    corpus = corpus_of_sample(Sample(TEXTS, 700), vectors[:590])  # the time was over
    left = [*TEXTS[:5], *TEXTS[6:590]]
    rows = torch.cat([vectors[:5], vectors[6:590]])
    assert (corpus.texts, corpus.why_not_usable) == (left, None)
    assert torch.equal(corpus.embeddings, rows)
    summary = corpus.summary
    assert (summary.read, summary.sampled, summary.encoded, summary.used) == (700, 603, 590, 589)
    assert summary.mean_words == 2.0
    assert corpus.mean_cosine == pytest.approx(mean_cosine(rows))
    assert (summary.near_duplicates, summary.scored) == (near_duplicate_share(left), 0)
    few = corpus_of_sample(Sample(TEXTS[:9], 9), vectors[10:19])
    assert (few.mean_cosine, few.summary.near_duplicates, few.summary.used) == (None, None, 9)


@pytest.mark.parametrize(
    ("texts", "vectors", "reason"),
    [
        ([], draw(0, 4), "200 different texts are needed, got 0."),
        (TEXTS[:199], torch.zeros(199, 4), "200 different texts are needed, got 0."),
        (TEXTS[:199], draw(199, 4), "200 different texts are needed, got 199."),
        ([*map(str, range(603))], draw(603, 4), "only 0% of the texts have a letter"),
        (TEXTS, draw(1, 4).repeat(603, 1), "the same embedding, but for the rounding"),
        (TEXTS, torch.ones(603, 4) + 1e-7 * draw(603, 4), "the same embedding, but for the rounding"),
        (TEXTS, torch.eye(603)[:, :199], "needed, and 199 of 603 have an embedding other than 0."),
        (TEXTS[:200], torch.eye(200)[:, :199], "needed, and 199 of 200 have an embedding other than 0."),
        ([f"{a} {n}" for a in ("by", "By") for n in range(300)], draw(600, 4), "got 1 but for numbers and case."),
        ([*TEXTS[:199], *(t.upper() for t in TEXTS[:5])], draw(204, 4), "got 199 but for numbers and case."),
    ],
)
def test_texts_that_cannot_be_used(texts, vectors, reason):
    assert reason in (corpus_of_sample(Sample(texts, len(texts)), vectors.double()).why_not_usable or "")


def test_embeddings_that_are_nearly_the_same_are_usable_where_their_numbers_are_precise_enough():
    nearly = 1 + 1e-3 * draw(603, 4).double()  # cosines above 0.99999
    assert corpus_of_sample(Sample(TEXTS, 603), nearly).why_not_usable is None
    in_half_precision = corpus_of_sample(Sample(TEXTS, 603), nearly, torch.bfloat16).why_not_usable
    assert in_half_precision == "the encoder gives all texts the same embedding, but for the rounding of its numbers."


# --- transforms ---


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
    affine = candidate.affine(found)
    for v in embeddings[:5].numpy():
        away = v - mean
        expected = (1 - share) * away + share * (away @ kernel) + candidate.kept_mean * mean
        np.testing.assert_allclose(v @ affine.matrix.numpy() + affine.offset.numpy(), expected, atol=1e-9)
    moved = affine.apply(embeddings)
    torch.testing.assert_close(moved, embeddings @ affine.matrix + affine.offset)


def test_the_candidates_go_from_gentle_to_whitening():
    """Each keeps no more of variance and mean than the one before it."""
    kept = [(one.recolor, one.kept_mean, 1 - one.strength) for one in CANDIDATES]
    assert all(a >= b for gentle, strong in pairwise(kept) for a, b in zip(gentle, strong, strict=True))
    assert len({*kept}) == len(kept)
    assert (max(map(max, kept)), kept[-1]) == (1.0, (0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("count", "most", "outside", "folds"), [(603, 2000, 4000, 2), (603, 300, 4000, 3), (603, 2000, 250, 2)]
)
def test_a_text_is_scored_by_a_transform_that_was_computed_without_it(monkeypatch, count, most, outside, folds):
    """Each fold's transform is that of the texts outside of it, the saved one that of all."""
    monkeypatch.setattr(domain, "MOST_COMPARED", most)
    monkeypatch.setattr(domain, "MOST_OUTSIDE", outside)
    embeddings, scored = draw(count, 6) * torch.arange(1, 7), min(count, most)
    found = compute_candidates(TEXTS, embeddings, folds=folds, seed=3)
    assert [*found] == [one.name for one in CANDIDATES]
    ends = [0]
    for fold in range(folds):  # sizes that differ by one at most, the larger ones first
        ends.append(ends[-1] + scored // folds + (fold < scored % folds))

    def transform(rows: list[int], candidate: Any) -> Affine:
        tfidf = character_tfidf([TEXTS[row] for row in rows])
        return candidate.affine(neighbor_directions(embeddings[rows], tfidf=tfidf, seed=3))

    for one in CANDIDATES:
        torch.testing.assert_close(found[one.name].transform, transform([*range(count)], one))
        expected = []
        for first, end in pairwise(ends):
            rows = [row for row in range(count) if not first <= row < end][:outside]
            expected.append(transform(rows, one).apply(embeddings[first:end]))
        torch.testing.assert_close(found[one.name].cross_fitted(embeddings[:scored]), torch.cat(expected))
    without = compute_candidates(TEXTS, embeddings, folds=0, seed=3)[CANDIDATES[0].name]
    assert without.by_fold == ()
    torch.testing.assert_close(without.cross_fitted(embeddings), without.transform.apply(embeddings))


# --- scores ---


def test_pairs_are_scored_by_spearman_and_labels_by_the_mean_of_three():
    embeddings, grades = draw(20, 6), [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]
    first, second = [f"a{k}" for k in range(10)], [f"b{k}" for k in range(10)]
    encoded: list[list[str]] = []

    def encode(texts: list[str], _: str) -> torch.Tensor:
        encoded.append(texts)
        return embeddings

    pairs = dev_score(STSDataset("pairs", first, second, grades, ["x"] * 10), encode)
    twice = Affine(2 * torch.eye(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64))
    for rows, found in ((embeddings, pairs(None)), (2 * embeddings + 1, pairs(twice))):
        cosines = [cosine(rows[k], rows[10 + k]) for k in range(10)]
        assert found == pytest.approx(100 * spearmanr(cosines, grades).statistic)
    labels = [str(k % 2) for k in range(20)]
    labeled = dev_score(LabeledTexts([f"t{k}" for k in range(20)], labels), encode)
    assert labeled(None) == pytest.approx(100 * label_scores(embeddings, labels)["mean"])
    assert encoded == [[*first, *second], [f"t{k}" for k in range(20)]]


def test_development_sets_that_are_refused():
    task = RetrievalTask({"q": "a"}, {"d": "b"}, {"q": {"d": 1.0}})
    pairs = [STSDataset("no", list("ab"), list("cd"), s) for s in ([1.0, 1.0], [1.0, float("nan")], [1.0, 2.0, 3.0])]
    labeled = [
        LabeledTexts(list("abc"), labels) for labels in (["x", "y", "z"], ["x"] * 3, ["x", "x"], ["x", "x", " "])
    ]
    for dev in (["a"], task, *labeled, *pairs):
        with pytest.raises(ValueError, match=r"^dev(:| must|\.labels must|\.labels, row 2: a label must)"):
            check_dev(dev)
    check_dev(LabeledTexts(list("abc"), ["x", "y", "x"]))
    check_dev(None)


def test_settings_at_their_ends():
    for loss in (0, 2.5, math.inf, None):
        check_settings(loss, None, -1)
    check_settings(None, "medium", 1)
    for loss, strength, threshold, named in (
        (-1e-9, None, None, "max_general_loss must"), (None, "", None, "strength must be one of 'slight', 'gentle', "),
        (0, "medium", None, "strength must be left out with max_general_loss"), (None, None, 1.01, "threshold must"),
        (math.inf, "medium", None, "strength must be left out"), (None, None, -1.01, "threshold must"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{named}"):
            check_settings(loss, strength, threshold)


# --- the choice ---

FORGETS = "loses 1.00 on general pairs, 0.50 allowed"


def result(name: str, gain: float, reason: str | None = None, low: float | None = 0.01) -> CandidateResult:
    return CandidateResult(name, gain, low, None if low is None else 1.0, why_not_accepted=reason)


@pytest.mark.parametrize(
    ("results", "index", "reason"),
    [
        ([result("a", 0.3), result("b", 0.39), result("c", 0.2)], 0, "a was chosen: "),
        ([result("a", 0.29), result("b", 0.39), result("c", 0.2)], 1, "b was best."),
        ([result("a", 0.75), result("b", 1.0)], 0, "a was chosen: it has three quarters or more of the gain of b."),
        (
            [result("a", 0.3), result("b", 0.9, FORGETS), result("c", 0.5, FORGETS)],
            0,
            "a was best of what is accepted: b",
        ),
        ([result("a", 0.3), result("b", 0.39, FORGETS)], 0, "a was best of what is accepted: b gains more and forgets"),
        ([result("a", 0.38, low=None), result("b", 0.39, low=None)], 1, "b was best."),
        ([], None, "no candidate was better than the base model."),
        ([result("a", -0.1, "not better", low=-0.2)], None, "no candidate was better than the base model."),
        ([result("a", 0.1, FORGETS)], None, "what was better than the base model loses too much on general pairs"),
    ],
)
def test_the_gentlest_of_the_good_ones_is_chosen(results, index, reason):
    choice = choose(results)
    assert choice.name == (None if index is None else results[index].name)
    assert choice.reason.startswith(reason)


def test_a_strength_that_was_asked_for_is_taken_whatever_its_scores():
    results = [result("a", 0.3), result("b", -0.39, FORGETS, low=-0.5)]
    assert choose(results, "b") == Choice("b", "b was chosen, as strength asks.")


def test_any_loss_is_allowed_for_a_raw_encoder():
    assert [default_general_loss(cosine) for cosine in (None, -0.1, 0.69, 0.7)] == [2.0] * 4
    assert default_general_loss(0.71) == math.inf


def test_points_are_expected_of_a_gain_from_five_hundred_texts():
    assert expected_points(0.1, 500) == pytest.approx([0.1 * points for points in POINTS_PER_GAIN])
    assert expected_points(0.1, 499) is None
    assert expected_points(-0.1, 600) is None, "a strength that was asked for may lose"


def test_the_first_one_without_harm_is_chosen():
    bad, good, better = result("a", -1.0, "later"), result("b", 0.0), result("c", 0.5)
    assert choose_harmless([bad, good, better]) == Choice("b", "b was chosen: no harm was found.")
    assert choose_harmless([bad]).name is None
    worse = result("c", -0.006)
    chosen = choose_harmless([worse])
    assert chosen.name == "c"
    assert "although its gain is -0.006: within a standard error," in chosen.reason


def test_whitening_is_tried_where_the_transform_before_it_keeps_general_english():
    """It may cost an eighth of what may be lost; where general pairs show nothing, whitening is always tried."""
    assert [why_no_whitening(lost, 2.0) for lost in (-3.0, 0.25, None)] == [None] * 3
    assert why_no_whitening(0.26, 2.0) == "as the medium one loses 0.26 on general pairs"
    assert why_no_whitening(90.0, math.inf) is None


def test_what_speaks_against_a_candidate():
    def reason(gain: float, low: float | None, lost: float | None) -> str | None:
        return why_not_accepted(result("a", gain, low=low), lost, 0.5)

    assert (reason(0.1, 0.01, None), reason(0.1, None, 0.5)) == (None, None)
    assert reason(0.1, 0.0, None) == "not better than the base model, by the 95 % interval"
    assert reason(0.0, None, None) == "not better than the base model"
    assert reason(0.1, 0.01, 1.0) == FORGETS
    nan = float("nan")
    assert reason(nan, None, nan) == "not better than the base model; loses nan on general pairs, 0.50 allowed"


# --- the report ---


def report(details: Any, *candidates: CandidateResult) -> Adaptation:
    model: Any = object()
    texts = TextSummary(9, 8, 7, 7, 3.5, 2, 0.1)
    return Adaptation(model, "b", "b was best.", "points", list(candidates), texts, details, 1.26)


def test_the_table_has_the_base_model_and_no_empty_columns():
    domain = report(
        DomainDetails(2.0, general=80.0, unrelated_after={100: (0.1, 0.0, 0.2)}),
        CandidateResult("a", -0.1, -0.2, 0.1, 79.0, "not better", 0.4),
        CandidateResult("b", 0.25, 0.2, 0.3, 79.5, None, 2.0),
    )
    titles, rows = domain.table()
    assert titles == ["candidate", "gain", "95 % interval", "general", "seconds", "accepted"]
    assert rows[0] == ["base model", "", "", "80.00", "", ""]
    assert rows[1] == ["a", "-0.1000", "-0.2000 to +0.1000", "79.00 (-1.00)", "0", "no: not better"]
    assert rows[2][1:] == ["+0.2500", "+0.2000 to +0.3000", "79.50 (-0.50)", "2", "yes"]
    assert str(domain).splitlines() == [
        "Cut short by its minutes: 7 of 8 texts were encoded.",
        "b was best.",
        "candidate   gain     95 % interval       general        seconds  accepted",
        "base model                               80.00",
        "a           -0.1000  -0.2000 to +0.1000  79.00 (-1.00)  0        no: not better",
        "b           +0.2500  +0.2000 to +0.3000  79.50 (-0.50)  2        yes",
    ]
    assert domain.chosen_result == domain.candidates[1]
    search = report(SearchDetails(20, True), CandidateResult("b", 0.25))
    assert search.table()[0] == ["candidate", "gain", "accepted"]
    without = report(DomainDetails(2.0), CandidateResult("b", 0.25, general=79.0))
    assert without.table()[1][1] == ["b", "+0.2500", "79.00", "yes"]
    nothing = dataclasses.replace(report(DomainDetails(2.0)), chosen=None, reason="Left unchanged: why.")
    assert (nothing.table(), nothing.chosen_result) == (([], []), None)
    whole = dataclasses.replace(nothing, texts=TextSummary(9, 8, 8, 7, 3.5))
    assert (str(whole), whole.cut_short, whole.as_json()["changed"]) == ("Left unchanged: why.", None, False)
    written = json.loads(json.dumps(domain.as_json()))
    names = {one.name for one in dataclasses.fields(Adaptation)} - {"model"}
    assert written.keys() == names | {"changed", "cut_short"}
    assert (written["reason"], written["gain_measure"], written["texts"]["used"]) == ("b was best.", "points", 7)
    assert written["cut_short"] == domain.cut_short
    assert written["details"]["unrelated_after"] == {"100": [0.1, 0.0, 0.2]}
    assert (written["changed"], written["chosen"], written["seconds"]) == (True, "b", 1.3)
    assert [(one["accepted"], one["why_not_accepted"]) for one in written["candidates"]] == [
        (False, "not better"),
        (True, None),
    ]


def test_the_line_of_the_card_has_what_is_known():
    texts, one = TextSummary(9000, 8000, 8000, 7000, 3.5, 2000), CandidateResult("b", 0.25, general=79.0)
    line = "* **st-extras adapt**, b: computed from 7,000 unlabelled texts of a domain"
    end = ". The embeddings are not comparable with those of the encoder without it."
    scored = ", scored on 2,000 of them by transforms computed without them"
    points, pairs = (
        ", expected gain on such texts +1.0 to +7.5 points",
        ", general English pairs 80.00 -> 79.00 (-1.00)",
    )
    assert card_line(one, texts, 80.0, (1.0, 7.5)) == f"{line}{scored}{points}{pairs}{end}"
    assert card_line(one, dataclasses.replace(texts, scored=0), None, None) == f"{line}{end}"
    assert card_line(dataclasses.replace(one, general=None), texts, 80.0, None) == f"{line}{scored}{end}"


def test_a_report_is_valid_json_whatever_was_measured():
    found = report(DomainDetails(math.inf, mean_cosine=math.nan), CandidateResult("b", math.nan, -math.inf, math.inf))
    written = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert [written["candidates"][0][name] for name in ("gain", "low", "high")] == [None] * 3
    assert (written["details"]["mean_cosine"], written["details"]["max_general_loss"]) == (None, None)


def test_text_without_spaces_counts_characters():
    assert Sample([], 0).summary(2, ["我们喜欢苹果", "很好"]).mean_words == 4.0
    assert Sample([], 0).summary(2, ["a lost card", "the end"]).mean_words == 2.5
