import math
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor

from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.functional import cosine_scores
from st_extras.losses import DCLRLoss, SimCSELoss, SLTFAILoss
from st_extras.losses.parts.instance_weights import make_guide
from st_extras.text.frequency import FrequencyTable
from tests.helpers import columns, cosine, differing, draw, generator, snapshot, train

_SELF: dict[str, Any] = {"complementary_model": "self"}


def equation_6(a: Tensor, b: Tensor, noise: Tensor, alpha: list[list[int]], tau: float, positive: bool) -> Tensor:
    """Anchor by anchor; torch's gradient of it is the one to be had."""
    terms = []
    for i, anchor in enumerate(a):
        own = (torch.cosine_similarity(anchor, b[i], dim=0) / tau).exp()
        negatives = [(alpha[i][j], other) for j, other in enumerate(b) if j != i] + [(1, other) for other in noise]
        others = sum(weight * (torch.cosine_similarity(anchor, x, dim=0) / tau).exp() for weight, x in negatives)
        terms.append(-torch.log(own / ((own if positive else 0) + others)))
    return torch.stack(terms).mean()


def ascended(anchors: Tensor, steps: int, *, norm: str, ratio: float, tau: float) -> Tensor:
    """Noise drawn by ``generator(4)`` after steps of length 0.3 up the mean of L_U, by torch's gradients (eq. 2-4)."""
    noise = torch.randn(round(ratio * len(anchors)), anchors.size(1), generator=generator(4), dtype=torch.float64)
    noise = noise / noise.norm(dim=1, keepdim=True) if norm == "unit" else noise
    for _ in range(steps):
        noise = noise.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(cosine_scores(anchors, noise, tau).exp().sum(dim=1).log().mean(), noise)
        noise = noise.detach() + 0.3 * gradient / gradient.norm(dim=1, keepdim=True)
        noise = noise / noise.norm(dim=1, keepdim=True) if norm == "unit" else noise
    return noise.detach()


@pytest.mark.parametrize(("include_positive", "norm"), [(True, "gaussian"), (False, "unit"), (False, "gaussian")])
def test_equation_6(encoder, include_positive, norm):
    """The value, with weights and noise; and gradients as if the noise had been made beforehand."""
    loss = DCLRLoss(
        encoder, **_SELF, threshold=0.3, temperature=0.2, include_positive=include_positive, noise_steps=2,
        noise_ratio=1.4, noise_norm=norm, generator=generator(4),
    )  # fmt: skip
    assert loss.noise.step_size == 1e-3
    loss.noise.step_size = 0.3  # which shows
    a, b = draw(5, 8, seed=0).requires_grad_(), draw(5, 8, seed=1)
    settings: dict[str, Any] = {"norm": norm, "ratio": 1.4, "tau": 0.2}
    start, noise = (ascended(a.detach(), steps, **settings) for steps in (0, 2))
    alpha = [[0 if cosine(x, y) >= 0.3 else 1 for y in b] for x in a.detach()]
    masked = sum(1 - alpha[i][j] for i in range(5) for j in range(5) if i != j)
    assert 0 < masked < 20
    found, expected = loss.compute_loss_from_embeddings([a, b]), equation_6(a, b, noise, alpha, 0.2, include_positive)
    torch.testing.assert_close(found, expected)
    assert abs(found - equation_6(a, b, start, alpha, 0.2, include_positive)) > 1e-4
    torch.testing.assert_close(*(torch.autograd.grad(value, a) for value in (found, expected)))
    angles = [math.degrees(math.acos(cosine(x, y))) for x, y in zip(start, noise, strict=True)]
    assert float(loss.instruments["masked_negatives"]) == pytest.approx(masked / 20)
    assert float(loss.instruments["noise_angle"]) == pytest.approx(sum(angles) / 7)


def test_the_threshold_is_inclusive_and_an_anchor_without_negatives_contributes_nothing(encoder):
    views = torch.eye(3, requires_grad=True)  # whose cosines are 0 exactly
    for noise_ratio in (0, 1):
        loss = DCLRLoss(encoder, **_SELF, threshold=0.0, noise_ratio=noise_ratio)
        assert loss.instruments["masked_negatives"].isnan()
        value = loss.compute_loss_from_embeddings([views, views])
        assert (value == 0) == (noise_ratio == 0)
        assert loss.instruments["masked_negatives"] == 1
        assert loss.instruments.get("anchors_without_negatives", 3) == 3
    assert value.isfinite()


# ---- guides


@pytest.mark.parametrize(
    ("kind", "count", "size", "share"),
    [
        ("model", 1, None, None),
        ("table", 2, 3, None),
        ("start", 2, None, None),
        ("model", 2, 3, 0.3),
        ("start", 1, None, 0.3),
        ("self", 2, None, 0.3),
    ],
)
def test_equation_6_with_a_guide(make_encoder, sentences, kind, count, size, share):
    """Three steps: with a share, phi is the mean of the three batches' quantiles, for the weights of the third."""
    model = make_encoder(dropout=0.0).train()
    guide = model if kind in ("start", "self") else make_encoder(seed=1, hidden_size=8)
    texts = list(columns(sentences, count).values())
    phi = float(cosine_scores(*(guide.encode(texts[i], convert_to_tensor=True) for i in (0, -1))).median()) - 1e-6
    options: dict[str, Any] = {"threshold": phi} if share is None else {"masked_share": share}
    options["complementary_model"] = kind if guide is model else guide
    if kind == "table":
        everything = [text for column in texts for text in column]
        options["complementary_table"] = EmbeddingTable.compute(model, guide, everything, show_progress_bar=False)
        del options["complementary_model"]
    options |= {"include_positive": share is None, "augmentations": ("none", "none"), "mini_batch_size": size}
    loss = DCLRLoss(model, **options, temperature=0.5, noise_ratio=0)
    before, seen = snapshot(guide), []
    for chosen in (slice(0, 5), slice(3, 8), slice(0, 8)):
        batch = [column[chosen] for column in texts]
        value = loss([model.train().preprocess(column) for column in batch])
        embedded = [guide.encode(column, convert_to_tensor=True).double() for column in batch]
        similar = torch.tensor([[cosine(x, y) for y in embedded[-1]] for x in embedded[0]]).double()
        others = similar[~torch.eye(len(similar), dtype=torch.bool)]  # of i != j
        if share is not None:
            seen.append(others.quantile(1 - share).item())
            phi = sum(seen) / len(seen)
            assert float(loss.instruments["threshold"]) == pytest.approx(phi, abs=1e-5)
        own = [model.encode(column, convert_to_tensor=True).double() for column in batch]
        alpha = (similar < phi).int().tolist()
        expected = equation_6(own[0], own[-1], torch.empty(0, 16), alpha, 0.5, positive=share is None)
        assert value.item() == pytest.approx(expected.item(), abs=1e-4)
        masked = float((others >= phi).double().mean())
        assert 0 < masked < 1
        assert float(loss.instruments["masked_negatives"]) == pytest.approx(masked, abs=1e-6)
    value.backward()
    assert not differing(before, snapshot(guide))
    assert guide is model or all(p.grad is None for p in guide.parameters())


def test_the_name_in_the_model_card(make_encoder, sentences, tmp_path):
    model, guide = make_encoder(), make_encoder(seed=1)
    guide.save(str(tmp_path))
    table = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    for option, value, name in (
        ("complementary_model", tmp_path, str(tmp_path)),
        ("complementary_model", "start", "start"),
        ("complementary_table", table, "EmbeddingTable of 8 sentences, 16 dimensions"),
    ):
        assert DCLRLoss(model, **{option: value}).get_config_dict()["complementary"] == name


def test_start_is_a_copy_of_the_model_when_the_loss_is_made(make_encoder, sentences, tmp_path):
    """Also of a trained one, which has the trainer's data in its card and autocast in place of its forward pass."""
    model = make_encoder()
    train(model, SimCSELoss(model), columns(sentences), tmp_path, bf16=True)
    expected = model.encode(sentences, convert_to_tensor=True, normalize_embeddings=True)
    guide: Any = make_guide(model.train(), "start", None)
    train(model, SimCSELoss(model), columns(sentences), tmp_path)
    assert (model.encode(sentences, convert_to_tensor=True) - expected).abs().max() > 0.01
    for embeddings in (*guide([[model.preprocess(sentences)]]), *guide([[model.preprocess(sentences)]])):
        torch.testing.assert_close(embeddings, expected, atol=1e-6, rtol=0)  # without dropout
        assert not embeddings.requires_grad
    assert not list(guide.parameters())


def test_another_guide_after_a_resume_is_refused(make_encoder):
    model = make_encoder()
    first, again, other = (DCLRLoss(model, complementary_model=make_encoder(seed=seed)) for seed in (1, 1, 2))
    again.load_state_dict(first.state_dict())
    with pytest.raises(ValueError, match=r"^complementary_model must be the encoder"):
        other.load_state_dict(first.state_dict())


# ---- phi


def phi_of(loss: DCLRLoss, cosines: Tensor) -> Any:
    """Phi for a batch of these cosines."""
    return loss.instance_weights.phi(cosines, torch.eye(cosines.size(1)).to(cosines))


def test_small_batches_and_numbers_that_are_not_finite_do_not_move_phi(encoder):
    loss = DCLRLoss(encoder, **_SELF, masked_share=0.3)
    for size in (1, 2):
        assert phi_of(loss, torch.ones(size, size)) == torch.inf  # nothing is masked
    assert loss.instruments["threshold"].isnan()
    phi = phi_of(loss, torch.tanh(draw(6, 6)).float())
    for cosines in (torch.ones(2, 2), torch.full((6, 6), math.nan), torch.full((6, 6), math.inf)):
        assert phi_of(loss, cosines) == phi
    assert loss.instance_weights.batches == 1


def test_rounding_does_not_decide_between_sentences_that_are_all_alike(encoder):
    for seed in range(5):
        loss = DCLRLoss(encoder, **_SELF, masked_share=0.14)
        for step in range(3):
            cosines = (1 + 1e-7 * draw(16, 16, seed=10 * seed + step)).float()
            assert (cosines >= phi_of(loss, cosines)).all()


def test_bad_combinations(make_encoder, sentences):
    model, guide = make_encoder(), make_encoder()
    table = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    for options, message in (
        ({"complementary_model": guide, "complementary_table": table}, "^complementary_table must be None"),
        ({"complementary_model": model}, 'pass "self"'),
        ({"masked_share": 0.14}, "^masked_share needs a guide"),
        (_SELF | {"threshold": 0.9, "masked_share": 0.14}, "^threshold must be None"),
    ):
        with pytest.raises(ValueError, match=message):
            DCLRLoss(model, **options)
    with pytest.raises(ValueError, match=r"^sentence_features must be"):
        DCLRLoss(model, complementary_model=guide).compute_loss_from_embeddings([draw(3, 8), draw(3, 8, seed=1)])


def test_a_step_counts_once_in_every_wrapper(make_encoder, sentences):
    """MatryoshkaLoss runs the loss for every dimension; in mini-batches too, with the same gradients."""
    model = make_encoder(dropout=0.0)
    options: dict[str, Any] = {"complementary_model": "start", "masked_share": 0.3, "noise_ratio": 0}
    options["augmentations"] = ("none", "none")
    plain, inner, cached, base = (DCLRLoss(model, **options, mini_batch_size=size) for size in (None, None, 3, None))
    over = SLTFAILoss(model, frequency_table=FrequencyTable.count(sentences, model.tokenizer), base_loss=base)
    wrapped = [MatryoshkaLoss(model, loss, [16, 8, 4]) for loss in (inner, cached)]
    for chosen in (slice(0, 4), slice(2, 8)):
        features, found = [model.preprocess(sentences[chosen])], []
        plain(features)
        over(features)
        for loss in wrapped:
            model.zero_grad()
            value = loss(features, None)
            value.backward()
            found.append([value.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        wrapped[0]([model.preprocess(sentences)], None)
    for each in (plain, inner, cached, base):
        assert each.instance_weights.batches == 2
        assert float(each.instruments["threshold"]) == pytest.approx(float(plain.instruments["threshold"]), abs=1e-6)
