from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import Tensor

from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.functional import cosine_scores
from st_extras.losses import DCLRLoss, SimCSELoss
from st_extras.losses.parts.noise import refine_noise
from tests.helpers import (
    assert_resume_is_seamless,
    columns,
    cosine,
    count_rows,
    differing,
    draw,
    fit,
    generator,
    snapshot,
    train,
)

Maker = Callable[..., SentenceTransformer]


def equation_6(a: Tensor, b: Tensor, noise: Tensor, alpha: list[list[int]], tau: float, positive: bool) -> float:
    total = 0.0
    for i in range(len(a)):
        own = math.exp(cosine(a[i], b[i]) / tau)
        denominator = own if positive else 0.0
        for j in range(len(b)):
            if j != i:
                denominator += alpha[i][j] * math.exp(cosine(a[i], b[j]) / tau)
        for k in range(len(noise)):
            denominator += math.exp(cosine(a[i], noise[k]) / tau)
        total += math.log(denominator / own)
    return total / len(a)


@pytest.mark.parametrize("include_positive", [True, False])
@pytest.mark.parametrize("noise_norm", ["gaussian", "unit"])
def test_equation_6(encoder: SentenceTransformer, include_positive: bool, noise_norm: Any) -> None:
    options: dict[str, Any] = {"noise_steps": 2, "noise_step_size": 0.3, "noise_ratio": 1.4}
    options["noise_std"] = 1.0 if noise_norm == "unit" else 0.7
    loss = DCLRLoss(
        encoder,
        complementary_model="self",
        threshold=0.3,
        temperature=0.2,
        include_positive=include_positive,
        noise_norm=noise_norm,
        generator=generator(4),
        **options,
    )
    a, b = draw(5, 8, seed=0), draw(5, 8, seed=1)
    got = loss.compute_loss_from_embeddings([a, b])
    noise = torch.randn(7, 8, generator=generator(4), dtype=torch.float64)
    noise = noise / noise.norm(dim=1, keepdim=True) if noise_norm == "unit" else 0.7 * noise
    for _ in range(2):
        noise = noise.requires_grad_()
        terms = [
            -torch.log(torch.exp(h @ p / h.norm() / p.norm() / 0.2) / torch.exp(scores).sum())
            for h, p, scores in zip(a, b, cosine_scores(a, noise, 0.2), strict=True)
        ]
        (gradient,) = torch.autograd.grad(torch.stack(terms).mean(), noise)
        noise = noise.detach() + 0.3 * gradient / gradient.norm(dim=1, keepdim=True)
        if noise_norm == "unit":
            noise = noise / noise.norm(dim=1, keepdim=True)
    alpha = [[0 if cosine(x, y) >= 0.3 else 1 for y in b] for x in a]
    masked = sum(1 - alpha[i][j] for i in range(5) for j in range(5) if i != j)
    assert 0 < masked < 20
    assert float(loss.masked_negatives) == pytest.approx(masked / 20)
    assert got.item() == pytest.approx(equation_6(a, b, noise, alpha, 0.2, include_positive), abs=1e-9)


@pytest.mark.parametrize("noise_norm", ["gaussian", "unit"])
def test_gradients_do_not_flow_through_the_noise(encoder: SentenceTransformer, noise_norm: Any) -> None:
    """The gradient is that of the loss on noise that was made beforehand, however far the ascent moves it."""
    options: dict[str, Any] = {"noise_steps": 3, "noise_step_size": 0.5, "temperature": 0.3, "noise_norm": noise_norm}
    moving = DCLRLoss(encoder, generator=generator(4), **options)
    constant = DCLRLoss(encoder, generator=generator(4), **options)
    a, b = draw(5, 8, seed=0), draw(5, 8, seed=1)
    noise = constant.noise(a).detach()
    assert (
        DCLRLoss(encoder, generator=generator(4), **(options | {"noise_steps": 0})).noise(a).sub(noise).abs().min() > 0
    )
    constant.noise.forward = lambda anchors: noise  # type: ignore[method-assign]
    gradients = []
    for loss in (moving, constant):
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        gradients.append(torch.autograd.grad(loss.compute_loss_from_embeddings([x, y]), (x, y)))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)
        assert one.abs().max() > 1e-3


def test_the_ascent_has_the_losss_temperature_or_one_of_its_own(encoder: SentenceTransformer) -> None:
    a = draw(5, 8)

    def noise(**options: Any) -> Tensor:
        found: Tensor = DCLRLoss(encoder, noise_step_size=0.3, generator=generator(4), **options).noise(a)
        return found

    def expected(temperature: float) -> Tensor:
        drawn = torch.randn(5, 8, generator=generator(4), dtype=torch.float64)
        return refine_noise(drawn, a, steps=4, step_size=0.3, temperature=temperature, unit_norm=False)

    assert torch.equal(noise(temperature=0.2), expected(0.2))
    assert torch.equal(noise(temperature=0.2, noise_temperature=0.7), expected(0.7))
    assert not torch.allclose(expected(0.2), expected(0.7))


def test_threshold_is_inclusive(encoder: SentenceTransformer) -> None:
    a = torch.eye(3, dtype=torch.float64)
    b = torch.tensor([[1.0, 0, 0], [0.6, 0.8, 0], [0, 0, 1]], dtype=torch.float64)
    exactly = float(cosine_scores(a, b)[0, 1])
    options: dict[str, Any] = {"complementary_model": "self", "noise_ratio": 0}
    at = DCLRLoss(encoder, threshold=exactly, **options)
    above = DCLRLoss(encoder, threshold=math.nextafter(exactly, 1), **options)
    assert float(at.masked_negatives) != float(at.masked_negatives)  # NaN before the first step
    at.compute_loss_from_embeddings([a, b])
    above.compute_loss_from_embeddings([a, b])
    assert float(at.masked_negatives) == pytest.approx(float(above.masked_negatives) + 1 / 6)


def test_reductions(encoder: SentenceTransformer) -> None:
    a, b = draw(6, 8, seed=0).float(), draw(6, 8, seed=1).float()
    plain = DCLRLoss(encoder, noise_ratio=0, include_positive=True).compute_loss_from_embeddings([a, b])
    expected = MultipleNegativesRankingLoss(encoder, scale=20).compute_loss_from_embeddings([a, b], None)
    torch.testing.assert_close(plain, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(plain, SimCSELoss(encoder).compute_loss_from_embeddings([a, b]))
    never = DCLRLoss(encoder, noise_ratio=0, include_positive=True, complementary_model="self", threshold=1.0)
    torch.testing.assert_close(never.compute_loss_from_embeddings([a, b]), expected, atol=1e-6, rtol=0)


def test_gradcheck_and_invariances(encoder: SentenceTransformer) -> None:
    def value(x: Tensor, y: Tensor) -> Tensor:
        loss = DCLRLoss(
            encoder,
            complementary_model="self",
            threshold=0.3,
            temperature=0.5,
            noise_steps=0,
            generator=generator(1),
        )
        return loss.compute_loss_from_embeddings([x, y])

    a, b = draw(4, 8, seed=0), draw(4, 8, seed=1)
    order = torch.tensor([3, 1, 0, 2])
    torch.testing.assert_close(value(a[order], b[order]), value(a, b))
    torch.testing.assert_close(value(5 * a, 0.2 * b), value(a, b))
    assert torch.autograd.gradcheck(value, (a.requires_grad_(), b.requires_grad_()))


def test_anchors_without_negatives_are_counted(encoder: SentenceTransformer) -> None:
    loss = DCLRLoss(encoder, complementary_model="self", threshold=-0.999, noise_ratio=0)
    x = draw(4, 8, seed=0).requires_grad_()
    value = loss.compute_loss_from_embeddings([x, draw(4, 8, seed=1)])
    value.backward()
    assert value.item() == 0
    assert int(loss.anchors_without_negatives) == 4
    assert torch.equal(x.grad, torch.zeros_like(x))
    rounded_away = DCLRLoss(encoder, complementary_model="self", threshold=-0.999, noise_ratio=0.1)
    rounded_away.compute_loss_from_embeddings([draw(4, 8, seed=0), draw(4, 8, seed=1)])
    assert (int(rounded_away.anchors_without_negatives), float(rounded_away.masked_negatives)) == (4, 1)
    rounded_away.compute_loss_from_embeddings([draw(1, 8, seed=0), draw(1, 8, seed=1)])
    assert (int(rounded_away.anchors_without_negatives), rounded_away.masked_negatives.isnan()) == (1, True)


def test_the_angle_of_the_noise_is_the_losss_too(encoder: SentenceTransformer) -> None:
    loss = DCLRLoss(encoder, noise_norm="unit", noise_step_size=0.1)
    assert loss.noise_angle.isnan()
    loss.compute_loss_from_embeddings([draw(6, 384, seed=0).float(), draw(6, 384, seed=1).float()])
    assert loss.noise_angle is loss.noise.angle
    assert loss.noise_angle > 10


class TestComplementary:
    def weights(self, loss: DCLRLoss, features: list[dict[str, Any]]) -> Tensor:
        count = features[0]["input_ids"].size(0)
        weights = loss._negative_weights(torch.zeros(count, count), features)
        assert weights is not None
        return weights

    @pytest.mark.parametrize("count", [1, 2])
    def test_model_and_table_agree(self, make_encoder: Maker, sentences: list[str], count: int) -> None:
        model, guide = make_encoder(), make_encoder(seed=1, hidden_size=8)
        data = columns(sentences, count)
        texts = [text for column in data.values() for text in column]
        features = [model.preprocess(list(column)) for column in data.values()]
        embeddings = [guide.encode(list(column), convert_to_tensor=True) for column in data.values()]
        similarities = cosine_scores(embeddings[0], embeddings[-1])
        threshold = float(similarities.flatten().median())
        expected = (similarities < threshold).float()
        assert 0 < expected.sum() < expected.numel()
        by_model = DCLRLoss(model, complementary_model=guide, threshold=threshold - 1e-6)
        table = EmbeddingTable.compute(model, guide, texts, show_progress_bar=False)
        by_table = DCLRLoss(model, complementary_table=table, threshold=threshold - 1e-6)
        assert torch.equal(self.weights(by_model, features), (similarities < threshold - 1e-6).float())
        assert torch.equal(self.weights(by_table, features), self.weights(by_model, features))

    def test_asked_once_a_sentence_and_never_trained(
        self, make_encoder: Maker, sentences: list[str], tmp_path: Path
    ) -> None:
        model, guide = make_encoder(), make_encoder(seed=1)
        before = snapshot(guide)
        loss = DCLRLoss(model, complementary_model=guide, threshold=0.5)
        with count_rows(guide) as asked, count_rows(model) as passes:
            loss([model.preprocess(sentences)]).backward()
        assert asked == [len(sentences)]
        assert passes == [2 * len(sentences)]
        train(model, loss, columns(sentences), tmp_path)
        assert not differing(before, snapshot(guide))
        assert all(p.grad is None for p in guide.parameters())

    def test_features_are_needed(self, make_encoder: Maker) -> None:
        loss = DCLRLoss(make_encoder(), complementary_model=make_encoder(seed=1))
        with pytest.raises(ValueError, match="sentence_features is None"):
            loss.compute_loss_from_embeddings([draw(3, 8, seed=0), draw(3, 8, seed=1)])


def test_no_state_moves_without_gradients(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = DCLRLoss(encoder, complementary_model="self", threshold=0.5, generator=generator(1))
    features = [encoder.preprocess(sentences)]
    loss(features)
    before = snapshot(loss)
    seen = (float(loss.noise_angle), float(loss.masked_negatives))
    with torch.no_grad():
        value = loss(features)
    assert torch.isfinite(value)
    assert not differing(before, snapshot(loss))
    assert seen == (float(loss.noise_angle), float(loss.masked_negatives))
    loss(features)
    assert differing(before, snapshot(loss)) == {"noise.source._extra_state"}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("as_class", [True, False])
def test_trainer(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path, count: int, as_class: bool
) -> None:
    before = snapshot(encoder)
    loss: Any = DCLRLoss if as_class else DCLRLoss(encoder, complementary_model="self", projection=True)
    train(encoder, loss, columns(sentences, count), tmp_path)
    assert len(differing(before, snapshot(encoder))) > 10


@pytest.mark.parametrize("count", [1, 2])
def test_fit_with_a_last_batch_of_one(
    encoder: SentenceTransformer, sentences: list[str], tmp_path: Path, count: int
) -> None:
    loss = DCLRLoss(encoder, projection=True)
    before = snapshot(loss)
    fit(encoder, loss, columns(sentences[:5], count), tmp_path)
    assert {"projection_head.0.weight", "noise.source._extra_state"} <= differing(before, snapshot(loss))
    assert all(torch.isfinite(p).all() for p in encoder.parameters())


def test_resume(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    def make(model: SentenceTransformer) -> DCLRLoss:
        return DCLRLoss(model, noise_norm="unit", noise_step_size=0.1, projection=True, complementary_model="self")

    assert_resume_is_seamless(make_encoder, make, columns(sentences), tmp_path)


def test_deep_copy_and_state_dict(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = DCLRLoss(encoder, augmentations=("none", "none"))
    features = [encoder.preprocess(sentences)]
    loss(features)
    twin = copy.deepcopy(loss)
    assert twin.model is not loss.model
    restored = DCLRLoss(encoder, augmentations=("none", "none"))
    restored.load_state_dict(loss.state_dict())
    value = loss(features)
    assert torch.equal(twin(features), value)
    assert torch.equal(restored(features), value)


def test_inside_matryoshka_and_with_peft(encoder: SentenceTransformer, sentences: list[str], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    encoder.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"]))
    before = snapshot(encoder)
    train(encoder, MatryoshkaLoss(encoder, DCLRLoss(encoder), [16, 8]), columns(sentences), tmp_path)
    changed = differing(before, snapshot(encoder))
    assert changed
    assert all("lora" in name for name in changed)


def test_edge_batches(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = DCLRLoss(encoder, complementary_model="self", threshold=0.5)
    for batch in (["a cat"], ["a cat"] * 3, [""], [" ".join(sentences * 3)]):
        encoder.zero_grad()
        value = loss([encoder.preprocess(batch)])
        value.backward()
        assert torch.isfinite(value)
        assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)


def test_bf16_autocast_is_close(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    features = [still_encoder.preprocess(list(column)) for column in columns(sentences, 2).values()]

    def value() -> Tensor:
        return DCLRLoss(still_encoder, temperature=0.5, generator=generator(2))(features)

    exact = value()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = value()
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("threshold", -1),
        ("threshold", math.nan),
        ("threshold", True),
        ("threshold", 1.01),
        ("noise_steps", -1),
        ("temperature", 0),
        ("noise_temperature", -0.05),
        ("augmentations", ("dropout", "blur")),
    ],
)
def test_bad_options(encoder: SentenceTransformer, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option}.*{str(value).strip('()')[-5:]}"):
        DCLRLoss(encoder, **{option: value})


def test_bad_combinations(make_encoder: Maker, sentences: list[str]) -> None:
    model, guide = make_encoder(), make_encoder()
    table = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    with pytest.raises(ValueError, match="not both"):
        DCLRLoss(model, complementary_model=guide, complementary_table=table)
    with pytest.raises(ValueError, match='pass "self"'):
        DCLRLoss(model, complementary_model=model)
    with pytest.raises(ValueError, match="got 3"):
        DCLRLoss(model)([model.preprocess(["a cat"])] * 3)


def test_card(make_encoder: Maker, sentences: list[str], tmp_path: Path) -> None:
    encoder = make_encoder()
    make_encoder(seed=1).save(str(tmp_path / "guide"))
    loss = DCLRLoss(encoder, complementary_model=tmp_path / "guide", threshold=0.8, noise_std=0.7)
    assert loss.get_config_dict()["threshold"] == 0.8
    train(encoder, loss, columns(sentences), tmp_path)
    encoder.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "zhou2022debiased" in card
    assert "loss:DCLRLoss" in card
    for setting in (f'"complementary": "{tmp_path / "guide"}"', '"threshold": 0.8', '"noise_std": 0.7'):
        assert setting in card


def test_instruments(encoder: SentenceTransformer, sentences: list[str]) -> None:
    without_guide = DCLRLoss(encoder)
    assert set(without_guide.instruments) == {"noise_angle"}
    loss = DCLRLoss(encoder, complementary_model="self", threshold=-0.9)
    assert all(value.isnan() for value in loss.instruments.values())
    loss([encoder.preprocess(sentences)])
    assert loss.instruments["masked_negatives"] is loss.masked_negatives
    assert loss.instruments["noise_angle"] is loss.noise_angle
    assert not any(value.isnan() for value in loss.instruments.values())
    assert set(DCLRLoss(encoder, complementary_model="self", noise_ratio=0).instruments) == {"masked_negatives"}


# ---- mini_batch_size; see also parts/test_gradient_cache.py


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["model", "table"])
def test_in_mini_batches_a_guide_weighs_the_whole_batch(
    make_encoder: Callable[..., SentenceTransformer], sentences: list[str], kind: str, count: int
) -> None:
    model, guide = make_encoder(dropout=0.0).train(), make_encoder(dropout=0.0, layers=1)
    texts = columns(sentences, count)
    features = [model.preprocess(column) for column in texts.values()]
    everything = [text for column in texts.values() for text in column]
    guides: dict[str, Any] = {"complementary_model": guide}
    if kind == "table":
        guides = {"complementary_table": EmbeddingTable.compute(model, guide, everything)}
    similar = cosine_scores(*(guide.encode(texts[name], convert_to_tensor=True) for name in (min(texts), max(texts))))
    losses = [
        DCLRLoss(
            model, **guides, threshold=float(similar.median()), generator=generator(1), noise_step_size=0.1,
            augmentations=("none", "none"), mini_batch_size=size,
        )
        for size in (None, 3)
    ]  # fmt: skip
    found = []
    with count_rows(guide) as seen:
        for loss in losses:
            value = loss(features)
            value.backward()
            found.append([value.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
            model.zero_grad()
    if kind == "model":
        assert seen == [8] * count + [3, 3, 2] * count
    for cached, whole in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(cached, whole, rtol=1e-4, atol=1e-5)
    assert 0.2 < losses[1].masked_negatives < 0.8
    for name, value in losses[0].instruments.items():
        assert losses[1].instruments[name].item() == pytest.approx(value.item(), rel=1e-4)


def test_in_mini_batches_without_noise_masked_anchors_are_counted(
    still_encoder: SentenceTransformer, sentences: list[str]
) -> None:
    options: dict[str, Any] = {"complementary_model": "self", "threshold": -0.99, "noise_ratio": 0}
    loss = DCLRLoss(still_encoder.train(), **options, mini_batch_size=3)
    value = loss([still_encoder.preprocess(sentences)])
    value.backward()
    assert value == 0
    assert loss.anchors_without_negatives == len(sentences)
    assert loss.masked_negatives == 1


@pytest.mark.parametrize("mini_batch_size", [None, 2])
def test_views_without_dropout_are_told_once(make_encoder, sentences, caplog, mini_batch_size):
    encoder = make_encoder(dropout=0.0).train()
    loss = DCLRLoss(encoder, complementary_model="self", mini_batch_size=mini_batch_size)
    for _ in range(2):
        loss([encoder.preprocess(sentences)]).backward()
    (record,) = caplog.records
    assert "DCLRLoss got the same vector twice" in record.getMessage()
