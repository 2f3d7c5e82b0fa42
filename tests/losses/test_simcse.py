from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from torch import Tensor

from st_extras.losses import SimCSELoss
from tests.helpers import (
    assert_resume_is_seamless,
    columns,
    cosine,
    count_rows,
    differing,
    draw,
    fit,
    snapshot,
    train,
)

Maker = Callable[..., SentenceTransformer]


def loop(a: Tensor, b: Tensor, temperature: float) -> float:
    total = 0.0
    for i in range(len(a)):
        exponentials = [math.exp(cosine(a[i], b[j]) / temperature) for j in range(len(b))]
        total -= math.log(exponentials[i] / sum(exponentials))
    return total / len(a)


def test_equation(encoder: SentenceTransformer) -> None:
    a, b = draw(5, 8, seed=0), draw(5, 8, seed=1)
    got = SimCSELoss(encoder, temperature=0.2).compute_loss_from_embeddings([a, b])
    assert got.item() == pytest.approx(loop(a, b, 0.2), abs=1e-12)


def test_equals_multiple_negatives_ranking(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    other = MultipleNegativesRankingLoss(still_encoder, scale=20)
    ours = SimCSELoss(still_encoder)
    a, b = draw(6, 8, seed=0).float(), draw(6, 8, seed=1).float()
    torch.testing.assert_close(
        ours.compute_loss_from_embeddings([a, b]), other.compute_loss_from_embeddings([a, b], None), atol=1e-6, rtol=0
    )
    features = [still_encoder.preprocess(list(column)) for column in columns(sentences, 2).values()]
    torch.testing.assert_close(ours(features), other([dict(f) for f in features], None), atol=1e-6, rtol=1e-6)


def test_invariances_and_gradcheck(encoder: SentenceTransformer) -> None:
    loss = SimCSELoss(encoder).compute_loss_from_embeddings
    a, b = draw(4, 8, seed=0), draw(4, 8, seed=1)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(loss([a[order], b[order]]), loss([a, b]))
    torch.testing.assert_close(loss([3 * a, 0.1 * b]), loss([a, b]))
    assert not torch.isclose(loss([a[order], b]), loss([a, b]))
    soft = SimCSELoss(encoder, temperature=0.5).compute_loss_from_embeddings
    assert torch.autograd.gradcheck(lambda x, y: soft([x, y]), (a.requires_grad_(), b.requires_grad_()))


@pytest.mark.parametrize("count", [1, 2])
def test_one_pass_of_two_rows_a_sentence(encoder: SentenceTransformer, sentences: list[str], count: int) -> None:
    features = [encoder.preprocess(list(column)) for column in columns(sentences, count).values()]
    before = [{key: copy.copy(value) for key, value in column.items()} for column in features]
    with count_rows(encoder) as passes:
        SimCSELoss(encoder)(features).backward()
    assert passes == [2 * len(sentences)]
    for column, kept in zip(features, before, strict=True):
        assert column.keys() == kept.keys()
        assert all(torch.equal(column[key], kept[key]) for key in kept if isinstance(kept[key], Tensor))
    assert all(p.grad is not None for name, p in encoder.named_parameters() if "pooler" not in name)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("as_class", [True, False])
def test_trainer(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path, count: int, as_class: bool
) -> None:
    before = snapshot(encoder)
    loss: Any = SimCSELoss if as_class else SimCSELoss(encoder, projection=True)
    trainer = train(encoder, loss, columns(sentences, count), tmp_path)
    assert len(differing(before, snapshot(encoder))) > 10
    assert math.isfinite(trainer.state.log_history[-1]["train_loss"])


@pytest.mark.parametrize("count", [1, 2])
def test_fit_with_a_last_batch_of_one(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path, count: int
) -> None:
    loss = SimCSELoss(encoder, projection=True)
    before = snapshot(loss)
    fit(encoder, loss, columns(sentences[:5], count), tmp_path)  # batches of 4 and 1
    changed = differing(before, snapshot(loss))
    assert {"step.projection_head.0.weight", "step.projection_head.0.bias"} <= changed
    assert all(torch.isfinite(p).all() for p in encoder.parameters())


def test_resume(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    assert_resume_is_seamless(
        make_encoder, lambda model: SimCSELoss(model, projection=True), columns(sentences), tmp_path
    )


def test_edge_batches(encoder: SentenceTransformer, sentences: list[str]) -> None:
    for batch in (["a cat"], ["a cat"] * 3, [""], ["", "[SEP]", "a"], [" ".join(sentences * 3)]):
        encoder.zero_grad()
        loss = SimCSELoss(encoder)([encoder.preprocess(batch)])
        loss.backward()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)
    assert SimCSELoss(encoder)([encoder.preprocess(["a cat"])]).item() == 0


def test_bf16_autocast_is_close(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = SimCSELoss(still_encoder, temperature=0.5)
    features = [still_encoder.preprocess(list(column)) for column in columns(sentences, 2).values()]
    exact = loss(features)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = loss(features)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.05, rtol=0.05)


def test_projection_belongs_to_the_loss(encoder: SentenceTransformer, tmp_path: Path) -> None:
    loss = SimCSELoss(encoder, projection=True)
    a, b = draw(4, 16, seed=0).float(), draw(4, 16, seed=1).float()
    heads = [torch.tanh(loss.step.projection_head[0](x)) for x in (a, b)]  # type: ignore[index]
    expected = SimCSELoss(encoder).compute_loss_from_embeddings(heads)
    torch.testing.assert_close(loss.compute_loss_from_embeddings([a, b]), expected)
    encoder.save(str(tmp_path / "saved"))
    assert not any("head" in name for name in SentenceTransformer(str(tmp_path / "saved")).state_dict())
    with pytest.raises(ValueError, match="MatryoshkaLoss"):
        loss.compute_loss_from_embeddings([a[:, :8], b[:, :8]])


def test_inside_matryoshka(encoder: SentenceTransformer, sentences: list[str], tmp_path: Path) -> None:
    before = snapshot(encoder)
    train(encoder, MatryoshkaLoss(encoder, SimCSELoss(encoder), [16, 8]), columns(sentences), tmp_path)
    assert len(differing(before, snapshot(encoder))) > 10


def test_card_config_and_citation(encoder: SentenceTransformer, sentences: list[str], tmp_path: Path) -> None:
    loss = SimCSELoss(encoder, temperature=0.07)
    assert loss.get_config_dict() == {
        "temperature": 0.07,
        "augmentations": ["dropout", "dropout"],
        "cutoff_rate": 0.2,
        "projection": False,
        "gather_across_devices": False,
        "mini_batch_size": None,
        "mini_batch_num_tokens": None,
    }
    train(encoder, loss, columns(sentences), tmp_path)
    encoder.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "loss:SimCSELoss" in card
    assert "gao2021simcse" in card


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_bad_temperature(encoder: SentenceTransformer, value: float) -> None:
    with pytest.raises(ValueError, match=f"temperature must be .*{value}"):
        SimCSELoss(encoder, temperature=value)


def test_three_columns(encoder: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="got 3"):
        SimCSELoss(encoder)([encoder.preprocess(["a cat"])] * 3)


# ---- mini_batch_size; see also parts/test_gradient_cache.py


def test_in_mini_batches_it_is_sentence_transformers_cached_loss(
    still_encoder: SentenceTransformer, sentences: list[str]
) -> None:
    features = [still_encoder.train().preprocess(column) for column in columns(sentences, 2).values()]
    found = []
    for loss in (
        SimCSELoss(still_encoder, mini_batch_size=3),
        CachedMultipleNegativesRankingLoss(still_encoder, scale=20, mini_batch_size=3),
    ):
        value = loss(features, None)
        value.backward()
        found.append([value.detach(), *(p.grad.clone() for p in still_encoder.parameters() if p.grad is not None)])
        still_encoder.zero_grad()
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
