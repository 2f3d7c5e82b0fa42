from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import Tensor

from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.functional import cosine_scores
from st_extras.losses import DCLRLoss, SimCSELoss, SLTFAILoss
from st_extras.losses.parts.noise import refine_noise
from st_extras.text.frequency import FrequencyTable
from st_extras.training import train_encoder
from st_extras.training.identity import run_identity
from tests.conftest import SENTENCES
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
    assert float(loss.instruments["masked_negatives"]) == pytest.approx(masked / 20)
    assert got.item() == pytest.approx(equation_6(a, b, noise, alpha, 0.2, include_positive), abs=1e-9)


def test_without_noise_and_weights_it_is_the_decoupled_contrast(encoder: SentenceTransformer) -> None:
    """SimCSE with the positive left out of the denominator, and nothing else.

    Sentence by sentence, SimCSE's loss is then log(1 + e^x) of this one, x: its gradient is this one's times the share
    of the softmax that the negatives take, so sentences that are told apart already teach SimCSE little.
    """
    a, b = draw(5, 8, seed=0), draw(5, 8, seed=1)
    alone = [
        math.log(sum(math.exp(cosine(a[i], b[j]) / 0.3) for j in range(5) if j != i)) - cosine(a[i], b[i]) / 0.3
        for i in range(5)
    ]
    decoupled = DCLRLoss(encoder, noise_ratio=0, temperature=0.3)
    assert decoupled.compute_loss_from_embeddings([a, b]).item() == pytest.approx(sum(alone) / 5, abs=1e-12)
    coupled = [math.log1p(math.exp(x)) for x in alone]
    simcse = SimCSELoss(encoder, temperature=0.3)
    assert simcse.compute_loss_from_embeddings([a, b]).item() == pytest.approx(sum(coupled) / 5, abs=1e-12)
    by_loss = {}
    for name, loss in (("decoupled", decoupled), ("simcse", simcse)):
        x = a.clone().requires_grad_()
        loss.compute_loss_from_embeddings([x, b]).backward()
        by_loss[name] = x.grad
    shares = torch.tensor([1 / (1 + math.exp(-x)) for x in alone], dtype=torch.float64)
    torch.testing.assert_close(by_loss["simcse"], shares.unsqueeze(1) * by_loss["decoupled"])
    assert shares.min() < 0.9


@pytest.mark.parametrize("noise_norm", ["gaussian", "unit"])
def test_gradients_do_not_flow_through_the_noise(encoder: SentenceTransformer, noise_norm: Any) -> None:
    """The gradient is that of the loss on noise that was made beforehand, however far the ascent moves it."""
    options: dict[str, Any] = {"noise_steps": 3, "noise_step_size": 0.5, "temperature": 0.3, "noise_norm": noise_norm}
    moving = DCLRLoss(encoder, generator=generator(4), **options)
    constant = DCLRLoss(encoder, generator=generator(4), **options)
    a, b = draw(5, 8, seed=0), draw(5, 8, seed=1)
    noise = constant.noise([a]).detach()
    assert (
        DCLRLoss(encoder, generator=generator(4), **(options | {"noise_steps": 0})).noise([a]).sub(noise).abs().min()
        > 0
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
        found: Tensor = DCLRLoss(encoder, noise_step_size=0.3, generator=generator(4), **options).noise([a])
        return found

    def expected(temperature: float) -> Tensor:
        drawn = torch.randn(5, 8, generator=generator(4), dtype=torch.float64)
        return refine_noise(drawn, [a], steps=4, step_size=0.3, temperature=temperature, unit_norm=False)

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
    assert float(at.instruments["masked_negatives"]) != float(
        at.instruments["masked_negatives"]
    )  # NaN before the first step
    at.compute_loss_from_embeddings([a, b])
    above.compute_loss_from_embeddings([a, b])
    assert float(at.instruments["masked_negatives"]) == pytest.approx(
        float(above.instruments["masked_negatives"]) + 1 / 6
    )


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
    assert int(loss.instance_weights.anchors_without_negatives) == 4
    assert torch.equal(x.grad, torch.zeros_like(x))
    rounded_away = DCLRLoss(encoder, complementary_model="self", threshold=-0.999, noise_ratio=0.1)
    rounded_away.compute_loss_from_embeddings([draw(4, 8, seed=0), draw(4, 8, seed=1)])
    assert (
        int(rounded_away.instance_weights.anchors_without_negatives),
        float(rounded_away.instruments["masked_negatives"]),
    ) == (4, 1)
    rounded_away.compute_loss_from_embeddings([draw(1, 8, seed=0), draw(1, 8, seed=1)])
    assert (
        int(rounded_away.instance_weights.anchors_without_negatives),
        rounded_away.instruments["masked_negatives"].isnan(),
    ) == (1, True)


def test_the_angle_of_the_noise_is_the_losss_too(encoder: SentenceTransformer) -> None:
    loss = DCLRLoss(encoder, noise_norm="unit", noise_step_size=0.1)
    assert loss.instruments["noise_angle"].isnan()
    loss.compute_loss_from_embeddings([draw(6, 384, seed=0).float(), draw(6, 384, seed=1).float()])
    assert loss.instruments["noise_angle"] is loss.noise.angle
    assert loss.instruments["noise_angle"] > 10


class TestComplementary:
    def weights(self, loss: DCLRLoss, features: list[dict[str, Any]]) -> Tensor:
        count = features[0]["input_ids"].size(0)
        weigh = loss.instance_weights(draw(1, 1), draw(1, 1), [[column] for column in features], first=True)
        assert weigh is not None
        return weigh(0, count).float()

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
    seen = (float(loss.instruments["noise_angle"]), float(loss.instruments["masked_negatives"]))
    with torch.no_grad():
        value = loss(features)
    assert torch.isfinite(value)
    assert not differing(before, snapshot(loss))
    assert seen == (float(loss.instruments["noise_angle"]), float(loss.instruments["masked_negatives"]))
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
    assert {"step.projection_head.0.weight", "noise.source._extra_state"} <= differing(before, snapshot(loss))
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
        ("masked_share", 0),
        ("masked_share", 14),
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
    assert loss.instruments["masked_negatives"] is loss.instruments["masked_negatives"]
    assert loss.instruments["noise_angle"] is loss.instruments["noise_angle"]
    assert not any(value.isnan() for value in loss.instruments.values())
    assert set(DCLRLoss(encoder, complementary_model="self", noise_ratio=0).instruments) == {
        "masked_negatives",
        "anchors_without_negatives",
    }


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
    assert 0.2 < losses[1].instruments["masked_negatives"] < 0.8
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
    assert loss.instance_weights.anchors_without_negatives == len(sentences)
    assert loss.instruments["masked_negatives"] == 1


@pytest.mark.parametrize("mini_batch_size", [None, 2])
def test_views_without_dropout_are_told_once(make_encoder, sentences, caplog, mini_batch_size):
    encoder = make_encoder(dropout=0.0).train()
    loss = DCLRLoss(encoder, complementary_model="self", mini_batch_size=mini_batch_size)
    for _ in range(2):
        loss([encoder.preprocess(sentences)]).backward()
    (record,) = caplog.records
    assert "DCLRLoss got the same vector twice" in record.getMessage()


# ---- masked_share; see also parts/test_instance_weights.py


def share_of_batch(similar: list[list[float]], share: float) -> float:
    """The (1 - share) quantile of a batch's pairs i != j, as a plain loop."""
    pairs = sorted(similar[i][j] for i in range(len(similar)) for j in range(len(similar)) if i != j)
    place = (1 - share) * (len(pairs) - 1)
    below, above = pairs[math.floor(place)], pairs[math.ceil(place)]
    return below + (place - math.floor(place)) * (above - below)


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("guided_by", ["model", "table", "start", "self"])
def test_equation_6_with_a_share(
    make_encoder: Maker, sentences: list[str], guided_by: str, count: int, size: int | None
) -> None:
    """Three steps: phi is the mean of the three batches' quantiles, for the weights of the third."""
    model = make_encoder(dropout=0.0).train()
    guide = {"model": make_encoder(seed=1, hidden_size=8), "table": make_encoder(seed=1)}.get(guided_by, model)
    texts = list(columns(sentences, count).values())
    options: dict[str, Any] = {"complementary_model": guided_by if guide is model else guide}
    if guided_by == "table":
        table = EmbeddingTable.compute(model, guide, [text for column in texts for text in column])
        options = {"complementary_table": table}
    loss = DCLRLoss(
        model, **options, masked_share=0.3, temperature=0.5, noise_ratio=0, augmentations=("none", "none"),
        mini_batch_size=size,
    )  # fmt: skip
    seen = []
    for chosen in (slice(0, 5), slice(3, 8), slice(0, 8)):
        batch = [column[chosen] for column in texts]
        value = loss([model.preprocess(column) for column in batch])
        told = [guide.encode(column, convert_to_tensor=True).double() for column in batch]
        similar = [[cosine(x, y) for y in told[-1]] for x in told[0]]
        seen.append(share_of_batch(similar, 0.3))
        phi = sum(seen) / len(seen)
        own = [model.train().encode(column, convert_to_tensor=True).double() for column in batch]
        alpha = [[0 if x >= phi else 1 for x in row] for row in similar]
        masked = sum(1 - alpha[i][j] for i in range(len(alpha)) for j in range(len(alpha)) if i != j)
        expected = equation_6(own[0], own[-1], torch.empty(0, 16), alpha, 0.5, positive=False)
        assert value.item() == pytest.approx(expected, abs=1e-4)
        assert float(loss.instruments["threshold"]) == pytest.approx(phi, abs=1e-5)
        pairs = len(alpha) * (len(alpha) - 1)
        assert 0 < masked < pairs
        assert float(loss.instruments["masked_negatives"]) == pytest.approx(masked / pairs, abs=1e-6)
        model.train()
    assert max(seen) - min(seen) > 1e-4


@pytest.mark.parametrize("size", [None, 3])
def test_a_step_counts_once_in_every_wrapper(make_encoder: Maker, sentences: list[str], size: int | None) -> None:
    """MatryoshkaLoss runs the loss for every dimension, a guide's cosines are the same in all of them."""
    model = make_encoder()
    features = [model.preprocess(sentences)]
    plain = DCLRLoss(model, complementary_model="start", masked_share=0.3)
    plain(features)
    loss = DCLRLoss(model, complementary_model="start", masked_share=0.3, mini_batch_size=size)
    wrapped = MatryoshkaLoss(model, loss, [16, 8, 4])
    for step in (1, 2):
        wrapped(features, None).backward()
        assert loss.instance_weights.batches == step
    assert float(loss.instruments["threshold"]) == pytest.approx(float(plain.instruments["threshold"]), abs=1e-6)
    with torch.no_grad():
        wrapped(features, None)
    assert loss.instance_weights.batches == 2
    if size is None:
        table = FrequencyTable.count(sentences, model.tokenizer)
        base = DCLRLoss(model, complementary_model="start", masked_share=0.3)
        SLTFAILoss(model, frequency_table=table, base_loss=base)(features)
        assert base.instance_weights.batches == 1


def test_sentences_that_are_all_alike_leave_the_noise(encoder: SentenceTransformer) -> None:
    features = [encoder.preprocess(["a cat sat"] * 6)]
    loss = DCLRLoss(encoder, complementary_model="start", masked_share=0.14)
    value = loss(features)
    assert value.isfinite()
    assert loss.instruments["masked_negatives"] == 1
    alone = DCLRLoss(encoder, complementary_model="start", masked_share=0.14, noise_ratio=0)
    assert alone(features) == 0
    assert alone.instance_weights.anchors_without_negatives == 6


def test_small_batches_with_a_share(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = DCLRLoss(encoder, complementary_model="start", masked_share=0.14)
    for batch, masked in ((sentences[:1], math.nan), (sentences[:2], 0)):
        assert loss([encoder.preprocess(batch)]).isfinite()
        assert float(loss.instruments["masked_negatives"]) == pytest.approx(masked, nan_ok=True)
        assert loss.instruments["threshold"].isnan()
    loss([encoder.preprocess(sentences[:3])])
    assert loss.instruments["masked_negatives"] > 0


def test_evaluation_leaves_the_share_alone(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = DCLRLoss(encoder, complementary_model="start", masked_share=0.3)
    before = snapshot(loss)
    with torch.no_grad():
        assert loss([encoder.preprocess(sentences)]).isfinite()
    assert not differing(before, snapshot(loss)) - {"noise.source._extra_state"}
    assert loss.instruments["threshold"].isnan()


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("guide", ["start", "self"])
def test_resume_with_a_share(
    make_encoder: Maker, sentences: list[str], tmp_path: Path, guide: str, size: int | None
) -> None:
    def make(model: SentenceTransformer) -> DCLRLoss:
        return DCLRLoss(model, complementary_model=guide, masked_share=0.3, mini_batch_size=size)

    assert_resume_is_seamless(make_encoder, make, columns(sentences), tmp_path)


def share_training(model: SentenceTransformer, output: Path, guide: Any = "start", **options: Any) -> DCLRLoss:
    """Four steps, with a checkpoint after the second."""

    def make(model: SentenceTransformer) -> DCLRLoss:
        return DCLRLoss(model, complementary_model=guide, masked_share=0.3)

    settings: dict[str, Any] = {"batch_size": 4, "learning_rate": 1e-2, "eval_steps": 2, "show_progress_bar": False}
    run = train_encoder(model, make, SENTENCES, output, max_steps=4, **(settings | options))
    loss: Any = run.trainer.loss
    return loss


@pytest.mark.parametrize("lora", [None, 2])
def test_start_is_the_start_of_a_training_that_is_resumed(
    make_encoder: Maker, tmp_path: Path, lora: int | None
) -> None:
    if lora is not None:
        pytest.importorskip("peft")
    whole, parts, other = make_encoder(), make_encoder(), make_encoder()
    copied = copy.deepcopy(whole)
    expected = share_training(whole, tmp_path / "whole", lora=lora)
    checkpoint = tmp_path / "parts" / "checkpoints" / "checkpoint-2"
    shutil.copytree(tmp_path / "whole" / "checkpoints" / "checkpoint-2", checkpoint)
    loss = share_training(parts, tmp_path / "parts", lora=lora, resume=True)
    assert not differing(snapshot(whole), snapshot(parts))
    assert torch.equal(loss.instruments["threshold"], expected.instruments["threshold"])
    assert loss.instance_weights.batches == 4
    start = loss.instance_weights.guide.source.encoder.encode(SENTENCES)
    assert (abs(start - copied.encode(SENTENCES)) < 1e-6).all()
    share_training(other, tmp_path / "other", copied, lora=lora)
    assert not differing(snapshot(whole), snapshot(other))  # as if the copy had been made by hand


def test_two_runs_from_start_are_the_same_run(make_encoder: Maker, sentences: list[str]) -> None:
    data: Any = columns(sentences)
    identities = []
    for options in ({"complementary_model": "start", "masked_share": 0.3},) * 2 + ({"complementary_model": "self"},):
        model = make_encoder()
        identities.append(run_identity(model, DCLRLoss(model, **options), Dataset.from_dict(data), None, {}))
    assert identities[0] == identities[1]
    assert identities[0]["loss.complementary"] == "start"
    assert (identities[0]["loss.threshold"], identities[0]["loss.masked_share"]) == (None, 0.3)
    assert (identities[2]["loss.threshold"], identities[2]["loss.masked_share"]) == (0.9, None)


def test_instruments_and_card_with_a_share(encoder: SentenceTransformer, sentences: list[str], tmp_path: Path) -> None:
    loss = DCLRLoss(encoder, complementary_model="start", masked_share=0.3)
    assert loss.instruments["threshold"].isnan()
    trainer = train(encoder, loss, columns(sentences), tmp_path, logging_steps=1, logging_strategy="steps")
    logged = [entry["threshold"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged[-1] == loss.instruments["threshold"] == loss.instruments["threshold"]
    encoder.save(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text()
    assert all(setting in card for setting in ('"complementary": "start"', '"masked_share": 0.3', '"threshold": null'))


def test_a_share_needs_a_guide_and_no_threshold(encoder: SentenceTransformer, caplog: Any) -> None:
    with pytest.raises(ValueError, match=r'^masked_share needs a guide, got masked_share=0.14 .* "start" .*\.$'):
        DCLRLoss(encoder, masked_share=0.14)
    with pytest.raises(ValueError, match=r"^threshold and masked_share .*, got threshold=0.9 and masked_share=0.14\.$"):
        DCLRLoss(encoder, complementary_model="self", threshold=0.9, masked_share=0.14)
    assert not caplog.records
    assert DCLRLoss(encoder, complementary_model="self").get_config_dict()["threshold"] == 0.9
