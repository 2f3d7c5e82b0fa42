"""Baselines and losses by others: the rows that they get, what they train, and what texts score without training."""

import math
from typing import Any

import pytest
import torch

from benchmarks import baselines, building, word_baselines
from benchmarks.controls import DistillationLoss
from st_extras.encoders import EmbeddingTable
from tests.fixtures import SENTENCES, build_encoder

TEXT = ["a cat sat on the mat", "the dog ran in the park", "the old man read a red book"]
FIRST = ["a cat sat on the mat", "the dog and the cat", "xyz"]
SECOND = ["the cat ran in the park", "a red book", "a cat"]


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


def tfidf_by_loops(text: list[str], first: str, second: str) -> float:
    """Cosine of two texts: (1 + ln tf) (1 + ln((1 + N) / (1 + df))) for every word that the text holds."""
    words = {word for line in text for word in line.split() if len(word) > 1}
    weight = {word: 1 + math.log((1 + len(text)) / (1 + sum(word in line.split() for line in text))) for word in words}

    def vector(line: str) -> dict[str, float]:
        found = [word for word in line.split() if word in words]
        return {word: (1 + math.log(found.count(word))) * weight[word] for word in found}

    left, right = vector(first), vector(second)
    length = math.sqrt(sum(x * x for x in left.values()) * sum(x * x for x in right.values()))
    return sum(left[word] * right.get(word, 0.0) for word in left) / length if length else 0.0


def test_tfidf_is_that_of_plain_loops():
    found = word_baselines.tfidf_cosines(word_baselines.TFIDF["words"], TEXT)(FIRST, SECOND)
    assert found == pytest.approx([tfidf_by_loops(TEXT, *pair) for pair in zip(FIRST, SECOND, strict=True)], abs=1e-6)
    assert found[0] > 0
    assert found[2] == 0  # "xyz" is not in the text
