"""Baselines and losses by others: the rows that they get, and what they train."""

from typing import Any

import pytest
import torch

from benchmarks import baselines, building
from benchmarks.controls import DistillationLoss
from st_extras.encoders import EmbeddingTable
from tests.fixtures import SENTENCES, build_encoder


def test_damaged_rows_keep_some_of_the_words_in_order():
    rows = baselines.damaged(SENTENCES, seed=0)
    assert list(rows["text"]) == SENTENCES
    for noisy, text in zip(rows["damaged"], SENTENCES, strict=True):
        words = iter(text.split())
        assert noisy
        assert all(word in words for word in noisy.split()), "other words, or in another order"
    kept, whole = (sum(len(text.split()) for text in rows[column]) for column in ("damaged", "text"))
    assert 0.2 < kept / whole < 0.6
    assert list(rows["damaged"]) != list(baselines.damaged(SENTENCES, seed=1)["damaged"])


def test_an_eighth_of_the_rows_of_contrastive_tension_are_a_sentence_twice():
    text = [f"sentence {number}" for number in range(4000)]
    rows = baselines.tension_pairs(text, seed=0)
    assert list(rows["first"]) == text
    same = sum(one == other for one, other in zip(rows["first"], rows["second"], strict=True)) / len(text)
    assert same == pytest.approx(1 / 8, abs=0.02)
    assert set(rows["second"]) <= set(text)


def test_the_guide_of_gist_is_frozen(encoder, tmp_path):
    encoder.save(str(tmp_path / "simcse"))
    method = {"loss": "GISTEmbedLoss", "complementary": "simcse", "options": {"margin": 0.1}}
    loss: Any = building.make_loss(encoder, method, SENTENCES, {"simcse": tmp_path / "simcse"}, tmp_path)
    assert loss.margin == 0.1
    assert not any(parameter.requires_grad for parameter in loss.guide.parameters())
    assert not loss.guide.training


def test_both_terms_of_distillation_as_loops(tmp_path):
    model = build_encoder(tmp_path / "student", dropout=0.0, seed=1)
    teacher = build_encoder(tmp_path / "teacher", seed=2)
    table = EmbeddingTable.compute(model, teacher, SENTENCES, show_progress_bar=False)
    loss = DistillationLoss(model, complementary_table=table, weight=0.5)
    with torch.no_grad():
        terms = loss([model.preprocess(SENTENCES)])
    ours = torch.from_numpy(model.encode(SENTENCES, normalize_embeddings=True)).double()
    theirs = torch.from_numpy(teacher.encode(SENTENCES, normalize_embeddings=True)).double()
    expected = 0.0
    for own, other in zip(ours.tolist(), theirs.tolist(), strict=True):
        expected += 0.5 * sum((a - b) ** 2 for a, b in zip(own, other, strict=True)) / len(SENTENCES)
    assert expected > 0.01
    assert float(terms["distillation"]) == pytest.approx(expected, rel=1e-5)
    with torch.no_grad():
        assert float(terms["contrastive"]) == pytest.approx(float(loss.simcse([model.preprocess(SENTENCES)])), rel=1e-5)
