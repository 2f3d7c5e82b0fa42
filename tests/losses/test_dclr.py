import math
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor

from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.functional import cosine_scores
from st_extras.losses import DCLRLoss, SLTFAILoss
from st_extras.text.frequency import FrequencyTable
from tests.helpers import columns, cosine, count_rows, differing, draw, generator, snapshot

_SELF: dict[str, Any] = {"complementary_model": "self"}


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


def quantile(cosines: Tensor, share: float) -> float:
    """The cosine that a share of the pairs i != j reaches, between the two pairs next to it, as a plain loop."""
    pairs = sorted(float(cosines[i][j]) for i in range(len(cosines)) for j in range(len(cosines)) if i != j)
    place = (1 - share) * (len(pairs) - 1)
    below = pairs[math.floor(place)]
    return below + (place - math.floor(place)) * (pairs[math.ceil(place)] - below)


def ascended(
    a: Tensor, b: Tensor, steps: int, *, norm: str = "gaussian", std: float = 1.0, ratio: float = 1.0, tau: float
) -> Tensor:
    """Noise drawn by ``generator(4)`` after steps of length 0.3 up the mean of L_U, by torch's gradients (eq. 2-4)."""
    noise = torch.randn(round(ratio * len(a)), a.size(1), generator=generator(4), dtype=torch.float64)
    noise = noise / noise.norm(dim=1, keepdim=True) if norm == "unit" else std * noise
    for _ in range(steps):
        noise = noise.detach().requires_grad_()
        terms = [
            -torch.log(torch.exp(h @ p / h.norm() / p.norm() / tau) / torch.exp(scores).sum())
            for h, p, scores in zip(a, b, cosine_scores(a, noise, tau), strict=True)
        ]
        (gradient,) = torch.autograd.grad(torch.stack(terms).mean(), noise)
        noise = noise.detach() + 0.3 * gradient / gradient.norm(dim=1, keepdim=True)
        noise = noise / noise.norm(dim=1, keepdim=True) if norm == "unit" else noise
    return noise.detach()


@pytest.mark.parametrize(
    ("include_positive", "norm", "noise_tau"),
    [(True, "gaussian", None), (False, "unit", None), (False, "gaussian", 0.7)],
)
def test_equation_6(encoder, include_positive, norm, noise_tau):
    """The value, with weights and noise; and gradients as if the noise had been made beforehand."""
    std = 1.0 if norm == "unit" else 0.7
    loss = DCLRLoss(
        encoder, **_SELF, threshold=0.3, temperature=0.2, include_positive=include_positive, noise_steps=2,
        noise_step_size=0.3, noise_ratio=1.4, noise_norm=norm, noise_std=std, noise_temperature=noise_tau,
        generator=generator(4),
    )  # fmt: skip
    a, b = draw(5, 8, seed=0).requires_grad_(), draw(5, 8, seed=1)
    got = loss.compute_loss_from_embeddings([a, b])
    got.backward()
    plain = a.detach()
    settings: dict[str, Any] = {"norm": norm, "std": std, "ratio": 1.4}
    noise = ascended(plain, b, 2, tau=noise_tau or 0.2, **settings)
    start = ascended(plain, b, 0, tau=1.0, **settings)
    alpha = [[0 if cosine(x, y) >= 0.3 else 1 for y in b] for x in plain]
    masked = sum(1 - alpha[i][j] for i in range(5) for j in range(5) if i != j)
    assert 0 < masked < 20
    assert got.item() == pytest.approx(equation_6(plain, b, noise, alpha, 0.2, include_positive), abs=1e-9)
    assert abs(got.item() - equation_6(plain, b, start, alpha, 0.2, include_positive)) > 1e-4
    angles = [math.degrees(math.acos(cosine(x, y))) for x, y in zip(start, noise, strict=True)]
    assert float(loss.instruments["masked_negatives"]) == pytest.approx(masked / 20)
    assert float(loss.instruments["noise_angle"]) == pytest.approx(sum(angles) / 7)
    ends = []
    for shift in (-1e-5, 1e-5):  # the noise stands still
        moved = plain.clone()
        moved[1, 2] += shift
        ends.append(equation_6(moved, b, noise, alpha, 0.2, include_positive))
    assert a.grad is not None
    assert a.grad[1, 2].item() == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-5)


def test_threshold_is_inclusive(encoder):
    a = torch.eye(3, dtype=torch.float64)
    b = torch.tensor([[1.0, 0, 0], [0.6, 0.8, 0], [0, 0, 1]], dtype=torch.float64)
    exactly = float(cosine_scores(a, b)[0, 1])
    shares = []
    for threshold in (exactly, math.nextafter(exactly, 1)):
        loss = DCLRLoss(encoder, **_SELF, noise_ratio=0, threshold=threshold)
        assert loss.instruments["masked_negatives"].isnan()
        loss.compute_loss_from_embeddings([a, b])
        shares.append(float(loss.instruments["masked_negatives"]))
    assert shares[0] == pytest.approx(shares[1] + 1 / 6)


@pytest.mark.parametrize("size", [None, 3])
def test_an_anchor_without_negatives_contributes_nothing(still_encoder, sentences, size):
    options: dict[str, Any] = _SELF | {"threshold": -0.999, "mini_batch_size": size}
    loss = DCLRLoss(still_encoder.train(), noise_ratio=0, **options)
    value = loss([still_encoder.preprocess(sentences)])
    value.backward()
    measured = [float(value) for value in loss.instruments.values()]
    assert (value.item(), measured) == (0, [1, len(sentences)])  # masked negatives, anchors without any
    assert not any(p.grad.any() for p in still_encoder.parameters() if p.grad is not None)
    noisy = DCLRLoss(still_encoder, **options)
    assert noisy([still_encoder.preprocess(sentences)]) != 0
    noisy([still_encoder.preprocess(sentences[:1])])
    assert noisy.instruments["masked_negatives"].isnan()


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
        with count_rows(guide) as passes:
            value = loss([model.train().preprocess(column) for column in batch])
        assert kind != "model" or passes == count * mini_batches(len(batch[0]), size or 8)
        embedded = [guide.encode(column, convert_to_tensor=True).double() for column in batch]
        similar = [[cosine(x, y) for y in embedded[-1]] for x in embedded[0]]
        if share is not None:
            seen.append(quantile(torch.tensor(similar), share))
            phi = sum(seen) / len(seen)
            assert float(loss.instruments["threshold"]) == pytest.approx(phi, abs=1e-5)
        own = [model.encode(column, convert_to_tensor=True).double() for column in batch]
        alpha = [[0 if x >= phi else 1 for x in row] for row in similar]
        masked = sum(1 - alpha[i][j] for i in range(len(alpha)) for j in range(len(alpha)) if i != j)
        expected = equation_6(own[0], own[-1], torch.empty(0, 16), alpha, 0.5, positive=share is None)
        assert value.item() == pytest.approx(expected, abs=1e-4)
        pairs = len(alpha) * (len(alpha) - 1)
        assert 0 < masked < pairs
        assert float(loss.instruments["masked_negatives"]) == pytest.approx(masked / pairs, abs=1e-6)
    value.backward()
    assert not differing(before, snapshot(guide))
    assert guide is model or all(p.grad is None for p in guide.parameters())


def mini_batches(rows: int, size: int) -> list[int]:
    return [min(size, rows - begin) for begin in range(0, rows, size)]


def test_bad_combinations(make_encoder, sentences):
    model, guide = make_encoder(), make_encoder()
    table = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    for options, message in (
        ({"complementary_model": guide, "complementary_table": table}, "^complementary_table must be None"),
        ({"complementary_model": model}, 'pass "self"'),
        ({"masked_share": 0.14}, "^masked_share needs a guide"),
        (_SELF | {"threshold": 0.9, "masked_share": 0.14}, "^threshold must be None"),
        ({"noise_norm": "unit", "noise_std": 0.7}, "^noise_std must be 1"),
    ):
        with pytest.raises(ValueError, match=message):
            DCLRLoss(model, **options)
    with pytest.raises(ValueError, match=r"^sentence_features must be"):
        DCLRLoss(model, complementary_model=guide).compute_loss_from_embeddings([draw(3, 8), draw(3, 8, seed=1)])


@pytest.mark.parametrize("size", [None, 3])
def test_a_step_counts_once_in_every_wrapper(make_encoder, sentences, size):
    """MatryoshkaLoss runs the loss for every dimension, a guide's cosines are the same in all of them."""
    model = make_encoder()
    start: dict[str, Any] = {"complementary_model": "start", "masked_share": 0.3}
    plain, loss, base = (DCLRLoss(model, **start, mini_batch_size=cut) for cut in (None, size, None))
    wrapped = MatryoshkaLoss(model, loss, [16, 8, 4])
    over = SLTFAILoss(model, frequency_table=FrequencyTable.count(sentences, model.tokenizer), base_loss=base)
    for chosen in (slice(0, 4), slice(2, 8)):
        features = [model.preprocess(sentences[chosen])]
        plain(features)
        wrapped(features, None).backward()
        over(features)
    with torch.no_grad():
        wrapped([model.preprocess(sentences)], None)
    expected = float(plain.instruments["threshold"])
    assert plain.instance_weights.batches == loss.instance_weights.batches == base.instance_weights.batches == 2
    assert float(loss.instruments["threshold"]) == pytest.approx(expected, abs=1e-6)
    assert float(base.instruments["threshold"]) == pytest.approx(expected, abs=1e-6)
