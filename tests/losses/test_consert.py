from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import Tensor

from st_extras.losses.consert import ConSERTLoss
from tests.helpers import (
    assert_resume_is_seamless,
    columns,
    count_rows,
    differing,
    fit,
    generator,
    snapshot,
    train,
)


def pair(rows: int = 5, size: int = 4, seed: int = 0) -> list[Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, size, generator=source, dtype=torch.float64) for _ in range(2)]


def nt_xent(views: list[Tensor], temperature: float, *, include_positive: bool = True) -> Tensor:
    model = SentenceTransformer(modules=[torch.nn.Identity()], device="cpu")
    options = {"augmentations": ("none", "none"), "include_positive": include_positive}
    return ConSERTLoss(model, temperature=temperature, **options).compute_loss_from_embeddings(views)


def nt_xent_loop(first: Tensor, second: Tensor, temperature: float, include_positive: bool) -> float:
    everything = [*first.tolist(), *second.tolist()]
    count = len(first)

    def score(a: list[float], b: list[float]) -> float:
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot / (math.hypot(*a) * math.hypot(*b)) / temperature

    total = 0.0
    for i, anchor in enumerate(everything):
        positive = (i + count) % (2 * count)
        denominator = 0.0
        for k, other in enumerate(everything):
            if k == i or (k == positive and not include_positive):
                continue
            denominator += math.exp(score(anchor, other))
        total -= math.log(math.exp(score(anchor, everything[positive])) / denominator)
    return total / (2 * count)


@pytest.mark.parametrize("include_positive", [True, False])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_equation_as_a_loop(include_positive: bool, temperature: float) -> None:
    views = pair()
    computed = nt_xent(views, temperature, include_positive=include_positive)
    assert computed.item() == pytest.approx(nt_xent_loop(*views, temperature, include_positive), abs=1e-12)


def test_it_is_sentence_transformers_symmetric_loss_with_all_negatives() -> None:
    views = [view.float() for view in pair()]
    model = torch.nn.Identity()
    directions = ("query_to_doc", "query_to_query")
    forth = MultipleNegativesRankingLoss(model, scale=10, directions=directions)
    expected = (
        forth.compute_loss_from_embeddings(views, None) + forth.compute_loss_from_embeddings(views[::-1], None)
    ) / 2
    assert torch.allclose(nt_xent(views, 0.1), expected, atol=1e-5)


def test_invariances() -> None:
    views = pair()
    loss = nt_xent(views, 0.1)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.allclose(nt_xent([view[order] for view in views], 0.1), loss)
    assert torch.allclose(nt_xent([7 * views[0], 0.2 * views[1]], 0.1), loss)
    assert torch.allclose(nt_xent(views[::-1], 0.1), loss)


@pytest.mark.parametrize("include_positive", [True, False])
def test_gradcheck(include_positive: bool) -> None:
    views = [view.requires_grad_() for view in pair(rows=3)]
    assert torch.autograd.gradcheck(lambda a, b: nt_xent([a, b], 0.5, include_positive=include_positive), views)


@pytest.mark.parametrize("include_positive", [True, False])
def test_a_single_sentence_contributes_nothing(include_positive: bool) -> None:
    views = [view.requires_grad_() for view in pair(rows=1)]
    loss = nt_xent(views, 0.1, include_positive=include_positive)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-9)
    assert views[0].grad is not None
    assert views[0].grad.isfinite().all()


def test_one_pass_without_dropout(make_encoder: Callable[..., SentenceTransformer], sentences: list[str]) -> None:
    model = make_encoder(dropout=0.5).train()
    features = model.preprocess(sentences)
    before = {key: value.clone() for key, value in features.items() if isinstance(value, Tensor)}
    loss = ConSERTLoss(model, generator=generator(1))
    same = ConSERTLoss(model, generator=generator(1))
    with count_rows(model) as passes:
        value = loss([features])
        assert torch.equal(value, same([features]))  # nothing but the generator is random
    assert passes == [16, 16]
    value.backward()
    assert all(parameter.grad is not None for name, parameter in model.named_parameters() if "pooler" not in name)
    assert all(torch.equal(features[key], kept) for key, kept in before.items())
    wet = [ConSERTLoss(model, dropout=True, generator=generator(1)) for _ in range(2)]
    assert not torch.equal(wet[0]([features]), wet[1]([features]))
    assert model.training


def test_evaluation_moves_nothing(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = ConSERTLoss(encoder)
    features = [encoder.preprocess(sentences)]
    loss(features)
    before = snapshot(loss)
    with torch.no_grad():
        assert loss(features).isfinite()
    assert not differing(before, snapshot(loss))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("how", ["fit", "trainer"])
def test_training(encoder: SentenceTransformer, sentences: list[str], tmp_path: Path, how: str, count: int) -> None:
    loss = ConSERTLoss(encoder)
    before = snapshot(encoder)
    (fit if how == "fit" else train)(encoder, loss, columns(sentences, count), tmp_path)
    assert differing(before, snapshot(encoder))
    encoder.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert torch.allclose(
        again.encode(sentences, convert_to_tensor=True), encoder.encode(sentences, convert_to_tensor=True)
    )


def test_resume(make_encoder: Callable[..., SentenceTransformer], sentences: list[str], tmp_path: Path) -> None:
    assert_resume_is_seamless(make_encoder, ConSERTLoss, columns(sentences), tmp_path)


def test_bf16_stays_close(encoder: SentenceTransformer, sentences: list[str]) -> None:
    features = [encoder.preprocess(sentences)]
    values = []
    for enabled in (False, True):
        loss = ConSERTLoss(encoder, generator=generator(1))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            values.append(loss(features))
    assert values[1].dtype == torch.float32
    assert values[1].item() == pytest.approx(values[0].item(), rel=0.05)


@pytest.mark.parametrize("texts", [["a cat"], ["a cat"] * 4, ["", ""], ["", "a cat"], ["the " * 90, "a"]])
@pytest.mark.parametrize("names", [("feature_cutoff", "shuffle"), ("token_cutoff", "span_cutoff")])
def test_edge_batches(encoder: SentenceTransformer, texts: list[str], names: tuple[str, str]) -> None:
    loss = ConSERTLoss(encoder, augmentations=names)([encoder.preprocess(texts)])
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


def test_matryoshka(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = MatryoshkaLoss(encoder, ConSERTLoss(encoder), matryoshka_dims=[16, 4])
    value = loss([encoder.preprocess(sentences)], None)
    value.backward()
    assert value.isfinite()


def test_bad_settings(encoder: SentenceTransformer) -> None:
    for options, message in (
        ({"temperature": 0}, "temperature .* 0"),
        ({"augmentations": ("cutoff", "shuffle")}, "'cutoff'"),
        ({"augmentations": ("shuffle",)}, "two of"),
        ({"augmentations": ("none", "shuffle"), "dropout": True}, "dropout=True"),
        ({"cutoff_rate": 1.0}, "cutoff_rate .* 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            ConSERTLoss(encoder, **options)


def test_config_and_citation(encoder: SentenceTransformer) -> None:
    loss = ConSERTLoss(encoder)
    assert loss.get_config_dict()["augmentations"] == ["feature_cutoff", "shuffle"]
    assert "yan2021consert" in loss.citation


@pytest.mark.parametrize("include_positive", [True, False])
@pytest.mark.parametrize("sizes", [[5], [2, 2, 1], [1] * 5])
def test_mini_batches_add_up_to_the_equation(
    encoder: SentenceTransformer, sizes: list[int], include_positive: bool
) -> None:
    views = pair()
    loss = ConSERTLoss(encoder, mini_batch_size=sizes[0], temperature=0.2, include_positive=include_positive)
    reps = [[part.clone().requires_grad_() for part in view.split(sizes)] for view in views]
    value = loss.calculate_loss(reps, with_backward=True)
    assert value.item() == pytest.approx(nt_xent_loop(*views, 0.2, include_positive), abs=1e-12)
    leaves = [view.clone().requires_grad_() for view in views]
    nt_xent(leaves, 0.2, include_positive=include_positive).backward()
    for leaf, parts in zip(leaves, reps, strict=True):
        torch.testing.assert_close(torch.cat([part.grad for part in parts]), leaf.grad)
