"""RepAL's study: its arithmetic on vectors is what the modules do after an encoder, and each record says of what."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from benchmarks import repal
from benchmarks.records import records
from benchmarks.studies import Options
from st_extras.evaluation import SEVEN_STS, STSDataset
from st_extras.modules import RepALPostProcessor, whitening
from tests.fixtures import SENTENCES

OTHERS = SENTENCES[3:] + SENTENCES[:3]
GOLDS = [0.0, 4.0, 3.0, 1.0, 2.5, 5.0, 0.5, 2.0]
DEV = STSDataset("dev", SENTENCES, SENTENCES[1:] + SENTENCES[:1], GOLDS[::-1], ["x"] * 8)
TEST = STSDataset("test", SENTENCES, OTHERS, GOLDS, [*"xyxxyyxx"])
GENERAL = [f"{one} and {other}" for one, other in zip(SENTENCES, OTHERS, strict=True)]


def expected(model: Any, pairs: STSDataset, rows: tuple[int, ...] | None = None) -> float:
    """Spearman times 100 of the cosines of a model's embeddings."""
    first, second = (model.encode(list(side)).astype(float) for side in (pairs.sentences1, pairs.sentences2))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    rows = tuple(range(len(pairs))) if rows is None else rows
    return 100 * float(spearmanr(cosines[list(rows)], [pairs.scores[row] for row in rows]).statistic)


@pytest.mark.parametrize(
    ("redundancy", "whiten"), [("pooled", None), ("encoder", None), ("pooled", 4), ("pooled", 1000)]
)
@pytest.mark.parametrize("general", [False, True])
def test_a_variant_scores_what_the_modules_make_of_the_encoder(encoder, redundancy, whiten, general):
    """The fit is on the texts of the scored set, or on a corpus."""
    variant = repal.Variant(whiten, (0.5,), (0.0,) if whiten else (2.0,), redundancy)
    look_up = repal.encode(encoder, repal.texts_of([DEV, TEST]), 3, redundancy=redundancy)
    corpus = repal.corpus_vectors(encoder, GENERAL, 3) if general else None
    found = repal.run_variant(DEV, [TEST, DEV], look_up, corpus, variant)
    for pairs in (DEV, TEST):
        fitted = GENERAL if general else repal.texts_of([pairs])
        before = whitening(encoder, fitted, dimensions=min(whiten, 16)) if whiten else encoder
        term = {} if whiten else {"corpus": fitted}
        model = RepALPostProcessor.attach(
            before, lambda_1=0.5, lambda_2=variant.lambda_2[0], redundancy=redundancy, **term
        )
        assert found[pairs.name] == pytest.approx(expected(model, pairs), abs=0.01)
    assert (found["lambda_1"], found["lambda_2"], found["at_edge"]) == (0.5, variant.lambda_2[0], False)
    assert found["average"] == pytest.approx((found["test"] + found["dev"]) / 2, abs=0.01)


def test_a_corpus_is_encoded_before_a_normalize_module(encoder):
    normalized = SentenceTransformer(modules=[*encoder, Normalize()], device="cpu")
    found, plain = (repal.corpus_vectors(model, GENERAL, 3) for model in (normalized, encoder))
    np.testing.assert_allclose(found, plain, rtol=1e-6)


def test_the_weights_are_those_that_are_best_on_dev(encoder):
    look_up = repal.encode(encoder, repal.texts_of([DEV, TEST]), 8)
    grid = [repal.Variant(None, (one,), (two,)) for one in (0.0, 0.4, 1.0) for two in (0.0, 3.0)]
    by_weights = [repal.run_variant(DEV, [TEST], look_up, None, variant) for variant in grid]
    found = repal.run_variant(DEV, [TEST], look_up, None, repal.Variant(None, (0.0, 0.4, 1.0), (0.0, 3.0)))
    best = max(by_weights, key=lambda one: one["dev"])
    assert found["dev"] == best["dev"] > min(one["dev"] for one in by_weights)
    assert {key: found[key] for key in ("lambda_1", "lambda_2", "test")} == {
        key: best[key] for key in ("lambda_1", "lambda_2", "test")
    }


def test_the_mean_over_subsets_is_by_their_sizes_and_left_out_where_one_has_no_score(encoder):
    look_up = repal.encode(encoder, repal.texts_of([DEV, TEST]), 8)
    found = repal.run_variant(DEV, [TEST, DEV], look_up, None, repal.VARIANTS["plain"])
    parts = [(5, expected(encoder, TEST, (0, 2, 3, 6, 7))), (3, expected(encoder, TEST, (1, 4, 5)))]
    of_test = sum(count * value for count, value in parts) / 8
    assert found["average_wmean"] == pytest.approx((of_test + expected(encoder, DEV)) / 2, abs=0.02)
    golds = [3.0 if name == "y" else gold for name, gold in zip(TEST.subsets, GOLDS, strict=True)]
    equal = STSDataset("test", TEST.sentences1, TEST.sentences2, golds, TEST.subsets)
    found = repal.run_variant(DEV, [DEV, equal], look_up, None, repal.VARIANTS["plain"])
    assert "average_wmean" not in found
    assert found["average"] == pytest.approx((found["dev"] + found["test"]) / 2, abs=0.01)


def test_after_a_training_each_variant_has_the_vectors_of_its_way(encoder):
    names = ["plain", "RepAL", "RepAL pooled", "sentence term pooled, weight 0.3"]
    after = repal.run_after(encoder, DEV, [TEST], names, batch_size=3)
    assert list(after) == names
    for name in names:
        way = "encoder" if name == "RepAL" else "pooled"
        look_up = repal.encode(encoder, repal.texts_of([DEV, TEST]), 3, redundancy=way)
        assert after[name] == repal.run_variant(DEV, [TEST], look_up, None, repal.VARIANTS[name])
    weights = {name: (one["lambda_1"], one["lambda_2"]) for name, one in after.items()}
    assert (weights["plain"], weights[names[-1]]) == ((0.0, 0.0), (0.3, 0.0))


@pytest.mark.parametrize("bf16", [True, False])
def test_after_a_training_texts_are_encoded_in_its_precision(encoder, monkeypatch, bf16):
    seen: list[bool] = []
    encoder[0].register_forward_pre_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    few = [STSDataset(name, SENTENCES[:3], OTHERS[:3], GOLDS[:3], ["x"] * 3) for name in ("dev", "test")]
    repal.run_after(encoder, few[0], few[1:], ["plain"], bf16=bf16)
    assert {*seen} == {bf16}
    del seen[:]
    monkeypatch.setattr(repal, "load_encoder", lambda **_: encoder)
    monkeypatch.setattr(repal, "load_sts", lambda name, data: few[0])
    study = {"variants": ["plain"], "general_corpus": "", "general_sentences": 0, "bf16": bf16}
    assert repal.score({}, study, Path())["bf16"] is bf16
    assert {*seen} == {bf16}


@pytest.mark.parametrize("at_edge", [True, False])
def test_the_weights_that_were_found_are_recorded_and_used(encoder, monkeypatch, at_edge):
    look_up = repal.encode(encoder, repal.texts_of([DEV, TEST]), 8)
    given: list[Any] = []

    def search_lambdas(*arguments: Any) -> Any:
        given.extend(arguments[-3:])
        return SimpleNamespace(lambda_1=0.4, lambda_2=3.0, at_edge=at_edge)

    monkeypatch.setattr(repal, "search_lambdas", search_lambdas)
    found = repal.run_variant(DEV, [TEST], look_up, None, repal.Variant(None, (0.0, 0.4), (0.0, 3.0)))
    fixed = repal.run_variant(DEV, [TEST], look_up, None, repal.Variant(None, (0.4,), (3.0,)))
    assert found == fixed | {"at_edge": at_edge}
    assert given == [DEV.scores, (0.0, 0.4), (0.0, 3.0)]


def test_a_record_has_both_fits_of_each_variant(encoder, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("\n".join([*GENERAL, *SENTENCES]), encoding="utf8")
    loaded: list[Any] = []
    sets = {name: STSDataset(name, OTHERS, SENTENCES, GOLDS, ["x"] * 8) for name in SEVEN_STS} | {repal.DEV: DEV}
    monkeypatch.setattr(repal, "load_encoder", lambda **settings: loaded.append(settings) or encoder)
    monkeypatch.setattr(repal, "load_sts", lambda name, data: sets[name])
    study = {"variants": ["plain", "whitened 256"], "general_corpus": "text.txt", "general_sentences": 8, "bf16": False}
    record = repal.score({"path": "p", "layers": 2}, study, tmp_path)
    look_up = repal.encode(encoder, repal.texts_of([*sets.values()]), 8)
    tests = [sets[name] for name in SEVEN_STS]
    for title, corpus in {"target": None, "general": repal.corpus_vectors(encoder, GENERAL, 8)}.items():
        for name in study["variants"]:
            wanted = repal.run_variant(DEV, tests, look_up, corpus, repal.VARIANTS[name])
            assert record[f"english, {title} fit"][name] == pytest.approx(wanted, abs=0.011)
    rest = {key: value for key, value in record.items() if "fit" not in key}
    assert rest.pop("encode_seconds") >= 0
    about = {"bf16": False, "general_corpus": "text.txt", "general_sentences": 8}
    assert rest == {"settings": {"path": "p", "layers": 2}, **about}
    assert "english, general fit" not in repal.score({}, study | {"general_sentences": 0}, tmp_path)
    assert loaded == [{"path": "p", "layers": 2}, {"path": repal.packaged_minilm()}]


def test_each_encoder_of_the_study_has_a_record_that_names_its_training(tmp_path, monkeypatch):
    monkeypatch.setattr(repal, "score", lambda settings, study, data: {"settings": settings, "data": data.name})
    study = {
        "name": "grid",
        "encoders": {"minilm": {}, "layers3": {"layers": 3}},
        "trained": ["recipes/dclr-consert-12", "more/start-0"],
    }
    options = Options(tmp_path / "data", Path("work"), tmp_path)
    repal.run(study, options)
    repal.run(study, options)
    keys = ("run", "name", "trained_in", "method", "seed", "settings", "data")
    assert [tuple(one.get(key) for key in keys) for one in records("grid", root=tmp_path)] == [
        ("layers3", "layers3", None, None, None, {"layers": 3}, "data"),
        ("minilm", "minilm", None, None, None, {}, "data"),
        ("more/start-0", "more/start-0", "more", "start", 0, {"path": "work/more/start-0"}, "data"),
        (
            "recipes/dclr-consert-12", "recipes/dclr-consert-12", "recipes", "dclr-consert", 12,
            {"path": "work/recipes/dclr-consert-12"}, "data",
        ),
    ]  # fmt: skip
