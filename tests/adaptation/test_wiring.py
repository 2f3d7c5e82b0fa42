"""Each setting of ``adapt`` reaches what it is for: a run beside its parts, called one by one with these settings.

Seed, limit, time and size of a batch are handed from part to part, and a part that gets another one still works.
"""

import math
import re
import time
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.adaptation import CANDIDATES, AdaptationOptions, adapt
from st_extras.adaptation.domain import FOLDS, STRENGTHS, compute_candidates
from st_extras.adaptation.neighbors import write_neighbors
from st_extras.adaptation.run import sample_texts
from st_extras.correlation import spearman_of_pairs
from st_extras.evaluation import LabelFreeComparison, label_scores
from st_extras.evaluation.geometry import mean_cosine, moved_threshold, unrelated_cosines
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.samples import graded_pairs
from st_extras.text.term_weights import character_tfidf, near_duplicate_share
from tests.adaptation.texts import DEV, TEXTS, quiet, topical

OPTIONS = AdaptationOptions(minutes=20, limit=520, batch_size=7, seed=5, show_progress_bar=False)
"""None of them is a default."""


def encoded(model: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    found: torch.Tensor = model.encode(texts, batch_size=7, convert_to_tensor=True).double()
    return found


def rows_of_passes(model: SentenceTransformer) -> list[int]:
    """A list that gets the number of rows of each pass of the encoder from now on."""
    rows: list[int] = []
    model[0].register_forward_pre_hook(lambda _, given: rows.append(len(given[0]["input_ids"])))
    return rows


def test_without_labels(still_encoder, tmp_path, monkeypatch, capfd):
    """With a strength, so that all is computed, whatever the scores of a random encoder are; 500 texts are compared."""
    monkeypatch.setattr("st_extras.adaptation.domain.MOST_COMPARED", 500)
    monkeypatch.setattr("st_extras.adaptation.domain.LEAST_CONFIRMED", 0.0)
    monkeypatch.setattr("st_extras.adaptation.domain.SMALLEST_GENERAL_SCORE", -200.0)
    monkeypatch.setattr("st_extras.adaptation.choice.RAW_MEAN_COSINE", 1.0)
    asked: list[Any] = []
    monkeypatch.setattr("st_extras.adaptation.domain.expected_points", lambda *given: asked.append(given) or (1, 7))
    rows = rows_of_passes(still_encoder)
    found = adapt(still_encoder, iter(TEXTS), tmp_path / "out", strength="whitening", threshold=0.6, options=OPTIONS)
    assert (asked, found.details.expected_points) == ([(found.chosen_result.gain, 520)], (1, 7))
    assert max(rows) == 7
    assert "Encoding" not in capfd.readouterr().err
    texts = sample_texts(TEXTS, 520, 5).texts
    summary = found.texts
    assert (summary.read, summary.sampled, summary.encoded, summary.used, summary.scored) == (600, 520, 520, 520, 500)
    assert summary.near_duplicates == near_duplicate_share(texts[:500])
    assert (found.cut_short, found.details.max_general_loss) == (None, math.inf)

    embeddings = encoded(still_encoder, texts)
    tfidf = character_tfidf(texts)
    matrices = [
        CANDIDATES[3].affine(neighbor_directions(embeddings, tfidf=tfidf, seed=seed)).matrix.float() for seed in (5, 42)
    ]
    dense = found.model[2].linear
    torch.testing.assert_close(dense.weight.detach().T, matrices[0])
    assert (matrices[1] - matrices[0]).abs().max() > 1e-3, "another seed is seen"
    assert "he2003locality" in (tmp_path / "out" / "README.md").read_text()
    details = found.details
    assert details.mean_cosine == pytest.approx(mean_cosine(embeddings))
    assert (details.dev, details.not_tried, len(found.candidates)) == (None, None, len(CANDIDATES))
    candidates = compute_candidates(texts, embeddings, folds=FOLDS, seed=5)
    texts, embeddings = texts[:500], embeddings[:500]
    comparison = LabelFreeComparison(texts, embeddings, folds=FOLDS, seed=5)
    first, second, grades = graded_pairs()
    pairs = encoded(still_encoder, [*first, *second])
    assert found.details.general == pytest.approx(spearman_of_pairs(pairs, grades))
    for one, result in zip(candidates.values(), found.candidates, strict=True):
        score = comparison.compare(one.cross_fitted(embeddings))
        assert (result.gain, result.low, result.high) == pytest.approx((score.gain, score.low, score.high))
        assert result.general == pytest.approx(spearman_of_pairs(one.transform.apply(pairs), grades))
    assert (found.chosen, found.details.confirmed_share) == (STRENGTHS["whitening"], comparison.confirmed_share)

    chosen = candidates[STRENGTHS["whitening"]]
    before, after, unseen = embeddings, chosen.transform.apply(embeddings), chosen.cross_fitted(embeddings)
    assert found.details.changed == write_neighbors(tmp_path, texts, before, unseen, folds=FOLDS, seed=5)
    page = (tmp_path / "out" / "neighbors.md").read_text()
    assert page == (tmp_path / "neighbors.md").read_text()
    write_neighbors(tmp_path, texts, before, unseen, folds=FOLDS, seed=42)
    assert page != (tmp_path / "neighbors.md").read_text(), "another seed is seen"
    for marks, side in ((found.details.unrelated_before, before), (found.details.unrelated_after, after)):
        for n, values in unrelated_cosines(side).items():
            assert marks[n] == pytest.approx(values)
    moved = moved_threshold(0.6, before, after)
    assert (found.details.threshold.above, found.details.threshold.after) == (moved.above, pytest.approx(moved.after))
    general = f"{found.details.general:.2f} -> {found.chosen_result.general:.2f}"
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"{found.chosen}: computed from 520 unlabelled texts of a domain, scored on 500 of them by " in card
    assert f", expected gain on such texts +1.0 to +7.0 points, general English pairs {general} (" in card


@pytest.mark.usefixtures("few_general_pairs")
def test_with_labels(still_encoder, tmp_path, monkeypatch, capfd):
    """Texts that choose are not fitted on; whitening is tried whatever is lost; the bars say what is encoded."""
    monkeypatch.setattr("st_extras.adaptation.domain.why_no_whitening", lambda *_: "whatever it loses")
    options = AdaptationOptions(limit=800, seed=5)
    texts = [*TEXTS, *DEV.texts]
    found = adapt(still_encoder, texts, tmp_path / "out", dev=DEV, max_general_loss=3.5, options=options)
    kept = [text for text in sample_texts(texts, 800, 5).texts if text not in DEV.texts]
    assert (found.texts.read, found.texts.sampled, found.details.max_general_loss) == (800, 600, 3.5)
    assert (found.texts.scored, found.details.confirmed_share, found.details.expected_points) == (0, None, None)
    page = (tmp_path / "out" / "neighbors.md").read_text()
    assert page.startswith("# Nearest neighbours before and after\n\nOf 600 texts, ")
    assert " The change was computed from these texts among others." in page
    embeddings = encoded(still_encoder, kept)
    transform = CANDIDATES[0].affine(neighbor_directions(embeddings, tfidf=character_tfidf(kept), seed=5))
    dev = encoded(still_encoder, DEV.texts)
    base, after = (100 * label_scores(rows, DEV.labels)["mean"] for rows in (dev, transform.apply(dev)))
    assert found.details.dev == pytest.approx(base)
    assert [one.name for one in found.candidates] == [one.name for one in CANDIDATES]
    gentlest = found.candidates[0]
    assert (gentlest.gain, gentlest.low, gentlest.high) == (pytest.approx(after - base), None, None)
    shown = capfd.readouterr().err
    for label, count in (("", 600), (" the development set", 200), (" 30 pairs of general English", 60)):
        assert re.search(rf"Encoding{label}: 100%.* {count}/{count} ", shown), label


@pytest.mark.usefixtures("few_general_pairs")
@pytest.mark.parametrize(("more", "points"), [("", (1.0, 2.0)), (" Ω42 Ω43", None)])
def test_no_points_are_expected_on_texts_that_the_encoder_hardly_reads(
    still_encoder, tmp_path, monkeypatch, caplog, more, points
):
    monkeypatch.setattr("st_extras.adaptation.domain.expected_points", lambda *_: (1.0, 2.0))
    texts = [text + more for text in TEXTS[:200]]
    found = adapt(still_encoder, texts, tmp_path / "out", **quiet(strength="gentle"))
    assert found.details.expected_points == points
    assert ("This encoder hardly reads the texts: 25% of their tokens are unknown" in caplog.text) == (points is None)
    assert ("gain on such texts" in (tmp_path / "out" / "README.md").read_text()) == (points is not None)


def test_a_run_that_its_minutes_cut_short_says_so_first(still_encoder, tmp_path, monkeypatch):
    """Each batch takes a second: of 1,200 texts in parts of 500, two parts begin within 60 % of 20 seconds."""
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def tick(*_: Any) -> None:
        clock[0] += 1

    still_encoder[0].register_forward_pre_hook(tick)
    texts = topical(1200).texts
    monkeypatch.setattr("st_extras.adaptation.domain.LEAST_CONFIRMED", 1.1)
    found = adapt(still_encoder, texts, tmp_path / "out", **quiet(minutes=20 / 60, batch_size=50))
    assert (found.texts.sampled, found.texts.encoded, found.texts.used) == (1200, 1000, 1000)
    first, second, *_ = str(found).splitlines()
    assert first == found.cut_short == "Cut short by its minutes: 1,000 of 1,200 texts were encoded."
    assert second == found.reason
    assert found.as_json()["cut_short"] == first
    assert found.seconds == clock[0] - 100 > 19
    found = adapt(still_encoder, texts, tmp_path / "whole", **quiet(batch_size=50))
    assert (found.texts.encoded, found.cut_short) == (1200, None)


def test_only_an_earlier_result_is_replaced_and_only_with_overwrite(still_encoder, tmp_path):
    for overwrite in (False, True):
        (tmp_path / f"{overwrite}").mkdir()
        (tmp_path / f"{overwrite}" / "mine.txt").write_text("mine")
        with pytest.raises(ValueError, match=r"^output must"):
            adapt(still_encoder, TEXTS, tmp_path / f"{overwrite}", **quiet(overwrite=overwrite))
    few = adapt(still_encoder, TEXTS[:9], tmp_path / "out", **quiet())
    with pytest.raises(ValueError, match=r"^output must"):
        adapt(still_encoder, TEXTS[:8], tmp_path / "out", **quiet())
    adapt(still_encoder, TEXTS[:8], tmp_path / "out", **quiet(overwrite=True))
    assert few.texts.read == 9
    assert '"read": 8' in (tmp_path / "out" / "adaptation.json").read_text()
