"""Baselines and losses by others: the rows that they get, and what they train."""

from typing import Any

import pytest

from benchmarks import building
from tests.fixtures import SENTENCES


def test_damaged_rows_keep_some_of_the_words_in_order():
    rows = building.damaged(SENTENCES, seed=0)
    assert list(rows["text"]) == SENTENCES
    for noisy, text in zip(rows["damaged"], SENTENCES, strict=True):
        words = iter(text.split())
        assert noisy
        assert all(word in words for word in noisy.split()), "other words, or in another order"
    kept, whole = (sum(len(text.split()) for text in rows[column]) for column in ("damaged", "text"))
    assert 0.2 < kept / whole < 0.6
    assert list(rows["damaged"]) != list(building.damaged(SENTENCES, seed=1)["damaged"])


def test_an_eighth_of_the_rows_of_contrastive_tension_are_a_sentence_twice():
    text = [f"sentence {number}" for number in range(4000)]
    rows = building.tension_pairs(text, seed=0)
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
