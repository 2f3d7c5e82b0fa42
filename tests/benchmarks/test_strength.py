"""The study of strengths: what a record holds, how an encoder is damaged, and rules against those of the package."""

import dataclasses
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from benchmarks import domains, strength
from benchmarks.records import records
from benchmarks.studies import Options
from benchmarks.tables import strength as tables
from st_extras.adaptation import CANDIDATES, CandidateResult, choice
from st_extras.adaptation.domain import compute_candidates
from st_extras.evaluation import LabelFreeComparison, label_scores
from st_extras.modules.linear import Affine
from tests.benchmarks.test_domains import domain, texts  # noqa: F401, a fixture
from tests.fixtures import SENTENCES

SETTINGS = {"fitted": 240, "scored": 50}
NAMES = dict(zip(tables.STRENGTHS, CANDIDATES, strict=True))


def test_a_record_scores_each_strength_as_adapt_computes_it(domain, encoder, tmp_path, monkeypatch):  # noqa: F811
    normalized = SentenceTransformer(modules=[*encoder, Normalize()], device="cpu")
    monkeypatch.setattr(strength, "encoder", lambda name: normalized)
    part = strength.sampled(domain, SETTINGS)
    assert len(strength.sampled(domain, SETTINGS | {"scored": 999}).test) == len(domain.test)
    assert (len(part.train), len(part.test), len(part.labels)) == (240, 50, 50)
    assert all(
        domain.labels[domain.test.index(text)] == label for text, label in zip(part.test, part.labels, strict=True)
    )
    options = Options(tmp_path, tmp_path)
    record = strength.score("tiny", part, 210, 3, options)
    assert (record["fitted"], record["seed"], list(record["rows"])) == (210, 3, ["start", *tables.STRENGTHS])

    drawn = [part.train[row] for row in random.Random(3).sample(range(len(part.train)), 210)]
    base = strength.encoded(encoder, drawn)
    candidates = compute_candidates(drawn, base, folds=2, seed=42)
    comparison = LabelFreeComparison(drawn, base, folds=2, seed=42)
    unit = torch.nn.functional.normalize(base)
    cosines = (unit @ unit.T)[~torch.eye(len(unit), dtype=torch.bool)]
    assert record["mean_cosine"] == pytest.approx(float(cosines.mean()), abs=1e-3)
    first = strength.label_figures(strength.encoded(encoder, part.test), part.labels)
    assert {key: record["rows"]["start"][key] for key in first} == pytest.approx(first, abs=0.01)
    for name, candidate in NAMES.items():
        after = candidates[candidate.name].transform.apply(strength.encoded(encoder, part.test))
        expected = strength.label_figures(after, part.labels)["mean"]
        assert record["rows"][name]["mean"] == pytest.approx(expected, abs=0.01)
        score = comparison.compare(candidates[candidate.name].cross_fitted(base))
        assert record["rows"][name]["gain"] == pytest.approx(score.gain, abs=1e-4)
        assert record["rows"][name]["low"] < record["rows"][name]["gain"] < record["rows"][name]["high"]

    monkeypatch.setattr(strength, "encoder", None)  # all embeddings are in the cache now
    assert strength.score("tiny", part, 210, 3, options) == record
    assert strength.score("tiny", part, 210, 4, options) != record
    assert strength.score("tiny", part, 999, 3, options)["fitted"] == 240, "all that there are"
    with pytest.raises(ValueError, match="must hold 49 embeddings, got 50"):
        strength.score("tiny", strength.sampled(domain, SETTINGS | {"scored": 49}), 210, 3, options)


def test_the_cache_holds_the_embeddings_of_each_encoder(make_encoder, tmp_path, monkeypatch):
    encoders = {name: make_encoder(seed=seed) for seed, name in enumerate("ab")}
    monkeypatch.setattr(strength, "encoder", encoders.get)
    for name in "abab":
        found = strength.embeddings(name, {"some": SENTENCES}, Options(tmp_path, tmp_path))["some"]
        torch.testing.assert_close(found, strength.encoded(encoders[name], SENTENCES).double())


def test_each_encoder_is_scored_from_its_own_numbers_of_texts_and_in_its_own_draws(
    domain,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    made: list[Any] = []

    def score(name: str, part: domains.Domain, count: int, seed: int, options: Options) -> dict[str, Any]:
        made.append((name, part.name, count, seed))
        assert (len(part.train), len(part.test)) == (settings[name]["fitted"], settings[name]["scored"])
        assert set(part.train) < set(domain.train)
        assert part.train != domain.train[: len(part.train)], "a random part"
        return {"data": options.data.name}

    monkeypatch.setattr(strength, "score", score)
    monkeypatch.setattr(strength.Domain, "load", lambda name, data: dataclasses.replace(domain, name=name))
    encoders = {"a": {"fewer": [20, 10], "seeds": [3, 5]}, "b": {"fitted": 30, "scored": 9}}
    settings = {"a": {"fitted": 40, "scored": 7}, "b": {"fitted": 30, "scored": 9}}
    study = {"name": "few", "texts": settings["a"] | {"seeds": [0]}, "encoders": encoders}
    options = Options(tmp_path, tmp_path, tmp_path, sets=["banking77", "clinc150"])
    strength.run(study, options)
    sets = ("banking77", "clinc150")
    of_a = [("a", name, count, seed) for name in sets for seed in (3, 5) for count in (40, 20, 10)]
    assert made == [*of_a, *(("b", name, 30, 0) for name in sets)]
    runs = [f"{name}-{data}-{count}-seed{seed}" for name, data, count, seed in made]
    assert [one["run"] for one in records("few", root=tmp_path)] == sorted(runs)
    strength.run(study, dataclasses.replace(options, seeds=[5, 6], encoders=["a"], sets=["clinc150"]))
    assert made[len(runs) :] == [("a", "clinc150", count, 6) for count in (40, 20, 10)]


def test_a_damaged_encoder_is_made_once_from_its_own_pairs(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(strength, "DAMAGED", {"damaged76": str(tmp_path / "damaged")})
    monkeypatch.setattr(strength, "encoder", lambda name: {"minilm": encoder}[name])
    monkeypatch.setattr(strength, "load_labeled_texts", lambda file: SimpleNamespace(texts=file.name, labels="l"))
    asked: list[Any] = []
    monkeypatch.setattr(strength, "damage", lambda *given: asked.append(given) or 5)
    for _ in range(2):
        strength.make_damaged("damaged76", tmp_path)
    assert asked == [(encoder, "clinc150_train.tsv.gz", "l", 76.0)]


def test_what_a_transform_does_to_general_pairs_is_scored(encoder):
    first, second, grades = SENTENCES, SENTENCES[2:] + SENTENCES[:2], [3.0, 1.0, 4.0, 1.5, 5.0, 0.0, 2.0, 2.5]
    found = {
        "general": strength.encoded(encoder, [*first, *second]),
        "made up-test": strength.encoded(encoder, SENTENCES),
    }
    part = domains.Domain("made up", [], SENTENCES, [*"aabbaabb"], [], [])
    matrix = torch.diag(torch.linspace(-1, 4, 16, dtype=torch.float64))
    offset = torch.full((16,), 0.1, dtype=torch.float64)
    for transform, after in (
        (None, found),
        (Affine(matrix, offset), {k: v @ matrix + offset for k, v in found.items()}),
    ):
        scores = strength.label_scores_of(found, part, grades, transform)
        left, right = after["general"].numpy().reshape(2, 8, 16)
        cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
        assert scores["general"] == pytest.approx(100 * spearmanr(cosines, grades).statistic)
        labels = label_scores(after["made up-test"].float(), part.labels)
        assert scores["map_at_r"] == pytest.approx(100 * labels["map_at_r"], abs=1e-6)


def test_an_encoder_is_damaged_by_pairs_of_a_label(encoder):
    known = texts(400, 0)
    labels = dict(zip(*known, strict=True))
    batches = strength.pair_batches(*known, random.Random(0), size=16)
    pairs = [pair for _ in range(8) for pair in next(batches)]
    assert all(one != two and labels[one] == labels[two] for one, two in pairs)
    assert len({text for pair in pairs[:80] for text in pair}) == 160, "each pass has every pair, its last batch too"
    assert pairs[80:] != pairs[:48], "shuffled anew for each pass"
    before = torch.cat([p.detach().clone().flatten() for p in encoder.parameters()])
    assert strength.damage(encoder, *known, border=101.0) == 5
    assert not torch.equal(before, torch.cat([p.detach().flatten() for p in encoder.parameters()]))


def made(base: float, generals: list[float], gains: list[float]) -> tables.Cell:
    rows = {
        row: {"general": general, "gain": gain, "low": gain - 0.02}
        for row, general, gain in zip(tables.STRENGTHS, generals, gains, strict=True)
    }
    return {"rows": rows | {"start": {"general": base}}}


@pytest.mark.parametrize("budget", [2.0, 0.5])
def test_the_rule_is_that_of_adapt(budget):
    assert (tables.MAX_LOSS, tables.SHARE, tables.ENOUGH, tables.SMALLEST, tables.RAW) == (
        choice.MAX_GENERAL_LOSS,
        choice.WHITENING_SHARE,
        choice.ENOUGH,
        choice.SMALLEST_GENERAL_SCORE,
        choice.RAW_MEAN_COSINE,
    )
    drawn, seen = random.Random(0), set()
    for _ in range(200):
        base = drawn.choice([20.0, 80.0])
        generals = [base - drawn.uniform(-1, 2.5) for _ in NAMES]
        cell = made(base, generals, sorted(drawn.random() / 5 for _ in NAMES))
        lost = {name: None if base < 30 else base - cell["rows"][name]["general"] for name in NAMES}
        without = choice.why_no_whitening(lost["medium"], budget)
        tried = [name for name in NAMES if name != "white" or without is None]
        results = []
        for name in tried:
            gain, low = (cell["rows"][name][key] for key in ("gain", "low"))
            result = CandidateResult(name, gain, low, 1.0)
            reason = choice.why_not_accepted(result, lost[name], budget)
            results.append(dataclasses.replace(result, why_not_accepted=reason))
        chosen = choice.choose(results).name
        seen.add(tables.by_rule(cell, budget))
        assert tables.by_rule(cell, budget) == ("start" if chosen is None else chosen)
    assert seen == {"start", *NAMES}


def test_expected_points_are_those_of_the_records():
    assert tables.points_per_gain(tables.promised_cells(few=False)) == pytest.approx(choice.POINTS_PER_GAIN, abs=5)
