"""The domain study: what is held out, which texts and encoder each row gets, and transforms against the modules."""

import copy
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import domains
from benchmarks.records import records
from benchmarks.studies import PRETRAINED, Options
from st_extras.evaluation import LabelFreeComparison, STSDataset, label_scores
from st_extras.modules import CorpusStatistics, whitening
from st_extras.modules.linear import Affine, all_but_the_top_transform, whitening_transform
from tests.fixtures import SENTENCES
from tests.helpers import draw, write

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
TOPICS = [WORDS[i::4] for i in range(4)]
NAMES = ("banking77", "clinc150")


def texts(count: int, seed: int) -> tuple[list[str], list[str]]:
    drawn, found = random.Random(seed), {}
    while len(found) < count:
        topic = drawn.randrange(4)
        found[" ".join([*drawn.choices(TOPICS[topic], k=4), *drawn.choices(WORDS, k=2)])] = str(topic)
    return list(found), list(found.values())


@pytest.fixture
def domain(monkeypatch):
    monkeypatch.setattr(domains, "HELD_OUT", 100)
    monkeypatch.setattr(domains, "FITTED", 120)
    test, labels = texts(60, 1)
    return domains.Domain("made up", sorted(texts(300, 0)[0]), test, labels, SENTENCES[:8], [0.0, 1.0, 2.0, 3.0])


def test_held_out_texts_are_not_fitted_on(domain):
    order = domain.order(0)
    assert len(set(order)) == len(order) == 220
    assert set(order) != set(domain.order(1))
    assert order == domain.order(0)


def test_a_domain_has_different_train_texts_and_the_test_texts_with_their_labels(tmp_path, monkeypatch):
    rows = {"train": [("b", "1"), ("a", "0"), ("b", "1")], "test": [("d", "1"), ("c", "0"), ("d", "1")]}
    for part, found in rows.items():
        lines = ["label\ttext", *(f"{label}\t{text}" for text, label in found)]
        write(tmp_path / "domains" / f"food_{part}.tsv.gz", "\n".join(lines))
    sets = {"stsb_test": STSDataset("stsb_test", ["e", "f"], ["g", "h"], [1.0, 2.0], ["", ""])}
    monkeypatch.setattr(domains, "load_sts", lambda name, data: sets[name])
    assert domains.Domain.load("food", tmp_path) == domains.Domain(
        "food", ["a", "b"], ["d", "c", "d"], ["1", "0", "1"], ["e", "f", "g", "h"], [1.0, 2.0]
    )


@pytest.mark.parametrize(
    ("name", "path", "settings"),
    [
        ("minilm", "packaged", {"max_seq_length": 64}),
        ("layers3", "packaged", {"layers": 3, "pooling": "mean", "max_seq_length": 32}),
        ("layers5-cls", "packaged", {"layers": 5, "pooling": "cls", "max_seq_length": 32}),
        ("mpnet", "runs/encoders/mpnet", {"max_seq_length": 64}),
        ("smollm2-plain", "runs/encoders/smollm2", {"max_seq_length": 64}),
        ("better", PRETRAINED["better"], {"pooling": "mean", "max_seq_length": 32}),
        ("damaged76", domains.DAMAGED["damaged76"], {"max_seq_length": 64}),
        ("a/folder", "a/folder", {"max_seq_length": 64}),
    ],
)
def test_an_encoder_is_loaded_by_its_name(monkeypatch, name, path, settings):
    monkeypatch.setattr(domains, "packaged_minilm", lambda: "packaged")
    monkeypatch.setattr(domains, "load_encoder", lambda path, **given: (path, given))
    assert domains.encoder(name) == (path, settings)


def test_each_row_is_scored_on_its_own_model_and_held_out_texts(domain, encoder, tmp_path, monkeypatch):
    """Two domains, encoders and seeds; each training begins with the base model, whatever the one before left."""
    other, loaded, starts = copy.deepcopy(encoder), [], []
    other[0].auto_model.embeddings.word_embeddings.weight.data *= 3
    encoders = {"one": encoder, "two": other}
    domain = replace(domain, test=domain.test[:20], labels=domain.labels[:20])
    parts = {name: replace(domain, name=name, train=domain.train[at : at + 150]) for at, name in enumerate(NAMES)}
    monkeypatch.setattr(domains, "HELD_OUT", 100)
    monkeypatch.setattr(domains, "FITTED", 30)

    def weight(model: Any) -> Any:
        return model[0].auto_model.embeddings.word_embeddings.weight.data

    def train(by: float, model: Any, given: list[str], seed: int, facts: dict[str, Any]) -> Any:
        starts.append((weight(model).clone(), list(given), seed))
        assert torch.initial_seed() == seed
        weight(model).mul_(by + seed)
        facts["by"] = by
        return model

    rows = ["TF-IDF of words", "start", "centred", "RepAL sentence term 0.3", "SimCSE", "DCLR"]
    trainings = {name: lambda *given, by=by: train(by, *given) for name, by in {"SimCSE": 0.5, "DCLR": -0.5}.items()}
    monkeypatch.setattr(domains, "provenance", lambda: {"revision": "r"})
    monkeypatch.setattr(domains, "TRAINED", trainings)
    monkeypatch.setattr(domains, "ROWS", rows)
    monkeypatch.setattr(domains, "encoder", lambda name: loaded.append(name) or encoders[name])
    monkeypatch.setattr(domains.Domain, "load", lambda name, data: parts[name])
    study = {"name": "domains", "encoders": ["one", "two"], "seeds": [4, 2]}
    options = Options(tmp_path, tmp_path, tmp_path / "results", methods=rows, sets=list(parts))
    domains.run(study, options)
    domains.run(study, options)
    assert loaded == ["one", "two"] * 2, "of each domain and encoder once, and nothing is run twice"

    found = {one["run"]: one for one in records("domains", root=options.root)}
    expected_runs = [f"text-{name}-TF-IDF_of_words-seed4" for name in parts]
    for row, seeds in {"start": [4], "centred": [4, 2], "SimCSE": [4, 2], "DCLR": [4, 2]}.items():
        expected_runs += [f"{e}-{name}-{row}-seed{seed}" for e in encoders for name in parts for seed in seeds]
    expected_runs += [f"{e}-{name}-RepAL_sentence_term_0.3-seed4" for e in encoders for name in parts]
    assert found.keys() == {*expected_runs}

    by_run = iter(starts)
    for name, part in parts.items():
        for title, model in encoders.items():
            for _ in ("SimCSE", "DCLR"):
                for seed in (4, 2):
                    begun, given, seen = next(by_run)
                    assert torch.equal(begun, weight(model)), "the base model"
                    assert (given, seen) == ([part.train[i] for i in part.order(seed)[100:]], seed)
            for seed, by in ((4, 4.5), (2, 2.5)):
                trained = copy.deepcopy(model)
                weight(trained).mul_(by)
                record = found[f"{title}-{name}-SimCSE-seed{seed}"]
                held_out = [part.train[i] for i in part.order(seed)[:100]]
                before, after = (domains.encoded(m, held_out) for m in (model, trained))
                score = LabelFreeComparison(held_out, before, seed=seed).compare(after)
                assert record["judge"]["gain"] == pytest.approx(score.gain, abs=1e-5)
                assert record["judge"]["lexical"] == pytest.approx(score.word_overlap, abs=1e-5)
                interval = [record["judge"][end] for end in ("low", "high")]
                assert interval == pytest.approx([score.low, score.high], abs=1e-5)
                scores = label_scores(domains.encoded(trained, part.test).float(), part.labels)
                assert record["scores"]["map_at_r"] == pytest.approx(100 * scores["map_at_r"], abs=1e-3)
                assert (record["encoder"], record["domain"], record["row"]) == (title, name, "SimCSE")
                assert (record["seed"], record["fitted"], record["by"]) == (seed, 30, 0.5)
            start = found[f"{title}-{name}-start-seed4"]
            assert start["judge"]["gain"] == 0
            pairs = domains.encoded(model, part.pairs)
            assert start["scores"]["stsb_test"] == domains.spearman_of_pairs(pairs, part.grades)
        text = found[f"text-{name}-TF-IDF_of_words-seed4"]
        assert (text["encoder"], list(text["scores"])) == ("", list(domains.MEASURES))


def test_adapt_has_the_texts_seed_and_budget_of_its_row(encoder, monkeypatch):
    handed: list[Any] = []

    def adapt(model: Any, given: list[str], folder: Any, *, options: Any, **more: Any) -> Any:
        handed.append((given, options.seed, more))
        facts = {"chosen": "white", "candidates": 1, "texts": 2, "details": 3, "seconds": 4}
        return type("Adapted", (), {"model": model, "as_json": lambda self: facts})()

    monkeypatch.setattr(domains, "adapt", adapt)
    for seed, name in enumerate(("adapt, 2 points", "adapt, 0.5 points", "adapt, any loss")):
        facts = {"fitted": 9}
        assert domains.MODELS[name](encoder, ("a", "b"), seed, facts) is encoder
        assert facts == {"fitted": 9, "chosen": "white", "candidates": 1, "texts": 2, "details": 3}
    assert handed == [(["a", "b"], n, {"max_general_loss": loss}) for n, loss in enumerate((2.0, 0.5, 200.0))]


def test_the_table_of_a_cell_is_the_encoder_for_all_texts_that_are_scored(domain, encoder, monkeypatch):
    monkeypatch.setattr(domains, "encoder", lambda name: encoder)
    monkeypatch.setattr(domains, "graded_pairs", lambda: (["a cat ran"], ["two dogs ran"], [1.0]))
    cell = domains.Cell("one", domain)
    known = [domain.train[-1], domain.test[0], domain.pairs[-1], "two dogs ran"]
    assert torch.allclose(domains.encoded(cell.known, known), domains.encoded(encoder, known), atol=1e-5)
    assert not domains.encoded(cell.known, ["never seen"]).any()


def test_tfidf_is_fitted_on_the_train_texts(domain):
    train, test = ["a b", "a c", "c d"], ["a b e", "b c", "e", "a b"]
    rows = domains.tfidf_embeddings({"analyzer": "word", "token_pattern": r"\w"}, train, test)
    idf = {word: np.log(4 / (1 + count)) + 1 for word, count in {"a": 2, "b": 1, "c": 2, "d": 1}.items()}
    expected = np.array([[idf[w] * (w in text.split()) for w in "abcd"] for text in test])
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    assert np.allclose((rows @ rows.T).numpy(), expected @ expected.T, atol=1e-5)


def test_each_step_has_its_own_setting():
    embeddings = draw(400, 280, seed=1) @ torch.diag(torch.linspace(0.1, 3, 280, dtype=torch.float64))
    known = CorpusStatistics(280).update(embeddings)
    expected = {
        **{f"all-but-the-top {n}": all_but_the_top_transform(known, components=n) for n in (1, 3, 10)},
        "centred": Affine.centred(embeddings.mean(dim=0), torch.eye(280, dtype=torch.float64)),
        "whitened": whitening_transform(known),
        **{f"whitened to {n}": whitening_transform(known, dimensions=n) for n in (128, 256)},
        "whitened softly 0.1": whitening_transform(known, epsilon=0.1),
        "whitened softly 1": whitening_transform(known, epsilon=1.0),
    }
    assert {*expected, "locality"} == domains.STEPS.keys()
    for name, transform in expected.items():
        found = domains.STEPS[name](embeddings, [], 0)
        torch.testing.assert_close(domains.apply(embeddings, found), transform.apply(embeddings), rtol=1e-6, atol=1e-6)


def test_each_training_has_its_loss_steps_rate_and_seed(encoder, monkeypatch):
    handed: list[Any] = []
    monkeypatch.setattr(domains, "train_encoder", lambda *given, **more: handed.append((given[:3], more)))
    for seed, name in enumerate(domains.TRAINED, 3):
        assert domains.TRAINED[name](encoder, ("a", "b"), seed, {}) is encoder
    losses = [given[1] for given, _ in handed]
    assert losses[0] is domains.SimCSELoss
    assert (losses[1].func, losses[1].keywords) == (
        domains.DCLRLoss, {"complementary_model": "start", "masked_share": 0.14}
    )  # fmt: skip
    assert [(given[0], given[2], more) for given, more in handed] == [
        (encoder, ["a", "b"], {"max_steps": 25, "learning_rate": rate, "seed": seed, "show_progress_bar": False})
        for seed, rate in ((3, 2e-5), (4, 3e-5))
    ]


def test_the_run_of_a_row_is_a_name_without_spaces_and_commas():
    assert domains.run_name("", "food", "adapt, 0.5 points", 3) == "text-food-adapt_0.5_points-seed3"
    assert domains.run_name("minilm", "food", "start", 0) == "minilm-food-start-seed0"


def test_a_transform_of_statistics_is_that_of_the_module(encoder):
    sentences = texts(80, 3)[0]
    embeddings = domains.encoded(encoder, sentences)
    matrix, offset = domains.STEPS["whitened softly 0.1"](embeddings, sentences, 0)
    model = whitening(encoder, sentences, epsilon=0.1)
    assert torch.allclose(embeddings @ matrix + offset, domains.encoded(model, sentences), atol=1e-4)
