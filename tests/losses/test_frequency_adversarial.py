from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor

from st_extras.encoders.forward import encode_tokens
from st_extras.encoders.structure import content_mask
from st_extras.losses.frequency_adversarial import (
    FrequencyAdversarialLoss,
    balancing_weights,
    label_shares,
    labels_entropy,
    token_confusion,
    token_cross_entropy,
)
from st_extras.text.frequency import FrequencyTable
from tests.helpers import assert_resume_is_seamless, columns, count_rows, differing, fit, padded, snapshot, train


def small_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Logits (3, 5, 2), labels and a content mask; the last row has no content."""
    source = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 2, generator=source, dtype=torch.float64)
    labels = torch.tensor([[0, 1, 0, 1, 1], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
    content = torch.tensor([[0, 1, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    return logits, labels, content


def token_cross_entropy_loop(logits: Tensor, labels: Tensor, content: Tensor) -> float:
    sentences = []
    for row in range(len(logits)):
        tokens = []
        for place in range(logits.size(1)):
            if not content[row, place]:
                continue
            low, high = logits[row, place, 1].item(), logits[row, place, 0].item()
            chosen = low if labels[row, place] == 1 else high
            tokens.append(math.log(math.exp(low) + math.exp(high)) - chosen)
        if tokens:
            sentences.append(sum(tokens) / len(tokens))
    return sum(sentences) / len(sentences)


def test_equation_as_a_loop() -> None:
    logits, labels, content = small_batch()
    assert content.sum(dim=1).tolist() == [3, 1, 0]  # a mean over all tokens would differ
    expected = token_cross_entropy_loop(logits, labels, content)
    assert token_cross_entropy(logits, labels, content).item() == pytest.approx(expected, abs=1e-12)


def test_sentence_mean_is_not_token_mean() -> None:
    logits, labels, content = small_batch()
    over_tokens = torch.nn.functional.cross_entropy(logits[content], labels[content])
    assert token_cross_entropy(logits, labels, content).item() != pytest.approx(over_tokens.item(), abs=1e-3)


def test_gradcheck_and_no_content() -> None:
    logits, labels, content = small_batch()
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_cross_entropy(x, labels, content), (logits,))
    empty = token_cross_entropy(logits, labels, torch.zeros_like(content))
    empty.backward()
    assert empty.item() == 0
    assert (logits.grad == 0).all()


def test_confusion_as_a_loop() -> None:
    logits, labels, content = small_batch()
    prior = label_shares(labels, content).double()
    assert prior.tolist() == pytest.approx([2 / 3, 1 / 3])  # one frequent token of three, one of one; no content
    sentences = []
    for row in range(2):
        tokens = []
        for place in range(5):
            if content[row, place]:
                high, low = logits[row, place].tolist()
                total = math.log(math.exp(high) + math.exp(low))
                tokens.append(prior[0].item() * (total - high) + prior[1].item() * (total - low))
        sentences.append(sum(tokens) / len(tokens))
    assert token_confusion(logits, prior, content).item() == pytest.approx(sum(sentences) / 2, abs=1e-12)
    ignorant = token_confusion(prior.log().expand_as(logits), prior, content)
    assert ignorant.item() == pytest.approx(labels_entropy(prior).item())
    assert token_confusion(logits, prior, content) > ignorant
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_confusion(x, prior, content), (logits,))


def test_balanced_as_a_loop() -> None:
    """The mean of both labels' own means, each weighted as eq. 4 weighs tokens."""
    logits, labels, content = small_batch()
    sums, weights = [0.0, 0.0], [0.0, 0.0]
    for row in range(2):
        for place in range(5):
            if content[row, place]:
                label, weight = int(labels[row, place]), 1 / int(content[row].sum())
                log_answers = logits[row, place].log_softmax(dim=0)
                sums[label] -= weight * log_answers[label].item()
                weights[label] += weight
    assert weights == pytest.approx([4 / 3, 2 / 3])
    expected = (sums[0] / weights[0] + sums[1] / weights[1]) / 2
    factors = balancing_weights(labels, label_shares(labels, content)).double()
    assert token_cross_entropy(logits, labels, content, factors).item() == pytest.approx(expected, abs=1e-6)


def gradients(loss: FrequencyAdversarialLoss, features: dict[str, Tensor]) -> dict[str, Tensor]:
    loss.zero_grad()
    loss([features]).backward()
    return {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}


def test_the_discriminator_descends_and_the_encoder_ascends(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = FrequencyAdversarialLoss(still_encoder, frequency_table=frequency_table, reversal_strength=0.5)
    features = still_encoder.preprocess(sentences)
    computed = gradients(loss, features)
    encoded = encode_tokens(still_encoder, features)
    logits = loss.discriminator(encoded.tokens)
    loss.zero_grad()
    token_cross_entropy(logits, loss.low_frequency[encoded.input_ids], encoded.content_mask).backward()
    encoder_parameters = 0
    for name, parameter in loss.named_parameters():
        if parameter.grad is None:
            continue
        factor = -0.5 if name.startswith("model.") else 1.0
        encoder_parameters += name.startswith("model.")
        assert torch.allclose(computed[name], factor * parameter.grad, atol=1e-8), name
    assert encoder_parameters > 20


@pytest.mark.parametrize("balanced", [False, True])
def test_with_confusion_each_side_descends_its_own_term(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, balanced: bool
) -> None:
    options = {"adversary": "confusion", "balanced": balanced, "reversal_strength": 0.5}
    loss = FrequencyAdversarialLoss(still_encoder, frequency_table=frequency_table, **options)
    features = still_encoder.preprocess(sentences)
    computed = gradients(loss, features)
    encoded = encode_tokens(still_encoder, features)
    logits = loss.discriminator(encoded.tokens)
    labels, mask = loss.low_frequency[encoded.input_ids], encoded.content_mask
    shares = label_shares(labels, mask)
    weights = balancing_weights(labels, shares) if balanced else None
    assert shares[0] != shares[1]
    prior = torch.tensor([0.5, 0.5]) if balanced else shares
    answer = token_cross_entropy(logits, labels, mask, weights)
    confusion = token_confusion(logits, prior, mask, weights)
    torch.testing.assert_close(loss([features]), answer + 0.5 * confusion)
    found = loss.instruments
    torch.testing.assert_close(found["adversarial_loss"], answer.detach())
    torch.testing.assert_close(found["confusion_loss"], confusion.detach())
    torch.testing.assert_close(found["labels_entropy"], labels_entropy(prior))
    own = [name for name in computed if not name.startswith("model.")]
    assert len(own) == 4
    for part, term in (("model.", 0.5 * confusion), ("discriminator.", answer)):
        loss.zero_grad()
        term.backward(retain_graph=True)
        for name, parameter in loss.named_parameters():
            if name.startswith(part) and parameter.grad is not None:
                torch.testing.assert_close(computed[name], parameter.grad, msg=name)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("adversary", ["reversal", "confusion"])
def test_confusion_ends_in_ignorance_and_reversal_in_error(
    encoder: SentenceTransformer, frequency_table: FrequencyTable, adversary: str, balanced: bool
) -> None:
    """Free token embeddings, one in eight rare, against a discriminator that stands still."""
    torch.manual_seed(0)
    options = {"adversary": adversary, "balanced": balanced}
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table, **options)
    low, high = (int((loss.low_frequency == label).nonzero()[0]) for label in (1, 0))
    rows = torch.tensor([[low, *[high] * 7]] * 4), torch.ones(4, 8).bool()
    tokens = torch.randn(4, 8, 16).requires_grad_()
    optimizer = torch.optim.Adam([tokens], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        loss.compute_loss_from_tokens(tokens, *rows).backward()
        optimizer.step()
    found = loss.instruments
    expected = math.log(2) if balanced else -(math.log(1 / 8) / 8 + 7 * math.log(7 / 8) / 8)
    assert found["labels_entropy"].item() == pytest.approx(expected)
    if adversary == "confusion":
        assert found["adversarial_loss"].item() == pytest.approx(expected, abs=0.01)
        assert found["confusion_loss"].item() == pytest.approx(expected, abs=0.01)
    else:
        assert found["adversarial_loss"] > 1


@pytest.mark.parametrize("adversary", ["reversal", "confusion"])
def test_in_a_warmup_the_discriminator_learns_alone(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, adversary: str
) -> None:
    options = {"adversary": adversary, "reversal_steps": 3}
    loss = FrequencyAdversarialLoss(still_encoder, frequency_table=frequency_table, **options)
    encoded = encode_tokens(still_encoder, still_encoder.preprocess(sentences))
    rows = (encoded.tokens, encoded.input_ids, encoded.content_mask)
    value = loss.compute_loss_from_tokens(*rows, warmup=True)
    value.backward()
    assert all(parameter.grad is None for parameter in still_encoder.parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in loss.discriminator.parameters())
    logits = loss.discriminator(encoded.tokens)
    assert value == token_cross_entropy(logits, loss.low_frequency[encoded.input_ids], encoded.content_mask)
    assert loss.steps == 0
    assert loss.instruments["adversarial_loss"] == value
    loss.compute_loss_from_tokens(*rows).backward()
    assert loss.steps == 1


def test_padding_and_special_tokens_never_count(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = FrequencyAdversarialLoss(still_encoder, frequency_table=frequency_table)
    features = still_encoder.preprocess(sentences[:3])
    assert torch.allclose(loss([features]), loss([padded(features)]), atol=1e-6)
    plain, wide = gradients(loss, features), gradients(loss, padded(features))
    assert all(torch.allclose(plain[name], wide[name], atol=1e-6) for name in plain)
    encoded = encode_tokens(still_encoder, features)
    tokens = encoded.tokens.detach().clone()
    tokens[~encoded.content_mask] = 1e4  # whatever stands at [CLS], [SEP] and padding
    arguments = (encoded.input_ids, encoded.content_mask)
    assert torch.equal(
        loss.compute_loss_from_tokens(tokens, *arguments), loss.compute_loss_from_tokens(encoded.tokens, *arguments)
    )


def test_one_pass_and_features_untouched(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table)
    features = encoder.preprocess(sentences)
    keys = set(features)
    with count_rows(encoder) as passes:
        loss([features])
        loss([features, encoder.preprocess(sentences[::-1])])
    assert passes == [8, 16]
    assert set(features) == keys


def test_strength_schedule(encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable) -> None:
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table, reversal_strength=0.5, reversal_steps=4)
    features = [encoder.preprocess(sentences)]
    seen = []
    for _ in range(6):
        seen.append(loss.strength())
        loss(features)
    expected = [0.5 * (2 / (1 + math.exp(-10 * min(step / 4, 1))) - 1) for step in range(6)]
    assert seen == pytest.approx(expected)
    assert seen[0] == 0
    again = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table, reversal_strength=0.5, reversal_steps=4)
    again.load_state_dict(loss.state_dict())
    assert again.strength() == loss.strength()
    constant = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table)
    assert constant.strength() == 1


def test_evaluation_moves_nothing(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table)
    features = [encoder.preprocess(sentences)]
    loss(features)
    before = snapshot(loss)
    with torch.no_grad():
        assert loss(features).isfinite()
    assert not differing(before, snapshot(loss))


def test_a_discriminator_learns_on_a_frozen_encoder(
    still_encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = FrequencyAdversarialLoss(still_encoder, frequency_table=frequency_table)
    optimizer = torch.optim.Adam(loss.discriminator.parameters(), lr=1e-2)
    features = [still_encoder.preprocess(sentences)]
    first = loss(features).item()
    for _ in range(60):
        optimizer.zero_grad()
        loss(features).backward()
        optimizer.step()
    assert loss(features).item() < 0.5 * first
    loss.discriminator.confusion.zero_()
    loss(features)
    assert loss.discriminator.balanced_accuracy > 0.8


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("how", ["fit", "trainer"])
def test_training(
    encoder: SentenceTransformer,
    sentences: list[str],
    frequency_table: FrequencyTable,
    tmp_path: Path,
    how: str,
    count: int,
) -> None:
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table)
    before = snapshot(loss)
    (fit if how == "fit" else train)(encoder, loss, columns(sentences, count), tmp_path)
    changed = differing(before, snapshot(loss))
    assert any(name.startswith("model.") for name in changed)
    assert any(name.startswith("discriminator.layers") for name in changed)
    assert loss.steps == 2


def test_resume(
    make_encoder: Callable[..., SentenceTransformer],
    sentences: list[str],
    frequency_table: FrequencyTable,
    tmp_path: Path,
) -> None:
    def make(model: SentenceTransformer) -> FrequencyAdversarialLoss:
        return FrequencyAdversarialLoss(model, frequency_table=frequency_table, reversal_steps=3)

    assert_resume_is_seamless(make_encoder, make, columns(sentences), tmp_path)


def test_bf16_stays_close(encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable) -> None:
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table)
    features = [encoder.preprocess(sentences)]
    plain = loss(features)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = loss(features)
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(plain.item(), rel=0.05)


@pytest.mark.parametrize("texts", [["a cat"], ["a cat"] * 4, ["", ""], ["", "a cat"], ["the " * 90, "a"]])
def test_edge_batches(encoder: SentenceTransformer, texts: list[str], frequency_table: FrequencyTable) -> None:
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table)([encoder.preprocess(texts)])
    loss.backward()
    assert loss.isfinite()
    assert (loss.item() == 0) == (texts == ["", ""])


def test_bad_input(encoder: SentenceTransformer, frequency_table: FrequencyTable) -> None:
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=8)])
    other = FrequencyTable([*frequency_table.tokens[:-1], "other"], frequency_table.counts)
    for model, options, message in (
        (encoder, {"low_frequency_ratio": 0.0}, "low_frequency_ratio .* 0.0"),
        (encoder, {"low_frequency_ratio": 1}, "low_frequency_ratio .* 1"),
        (encoder, {"reversal_strength": -1}, "reversal_strength .* -1"),
        (encoder, {"reversal_steps": -2}, "reversal_steps .* -2"),
        (encoder, {"reversal_steps": 0.1}, r"reversal_steps .* 0\.1"),
        (encoder, {"adversary": "none"}, r"^adversary must be one of 'reversal', 'confusion', got 'none'\.$"),
        (encoder, {"frequency_table": other}, "'other'"),
        (static, {}, "StaticEmbedding"),
    ):
        with pytest.raises(ValueError, match=message):
            FrequencyAdversarialLoss(model, **{"frequency_table": frequency_table, **options})
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table)
    with pytest.raises(ValueError, match="unpad_inputs"):
        loss([{"input_ids": torch.ones(1, 9, dtype=torch.long), "cu_seq_lens_q": torch.tensor([0, 4, 9])}])


def test_config_and_citation(encoder: SentenceTransformer, frequency_table: FrequencyTable) -> None:
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table, low_frequency_ratio=0.3)
    assert loss.get_config_dict()["low_frequency_ratio"] == 0.3
    assert loss.get_config_dict()["adversary"] == "reversal"
    assert "wang2023unsupervised" in loss.citation


def test_instruments_of_the_last_training_step(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table)
    features = encoder.preprocess(sentences)
    value = loss([features])
    found = loss.instruments
    assert found["adversarial_loss"] == value
    assert not found["adversarial_loss"].requires_grad
    labels, mask = frequency_table.labels()[features["input_ids"]], content_mask(encoder, features)
    assert found["labels_entropy"] == labels_entropy(label_shares(labels, mask)) > 0.1
    assert torch.equal(found["discriminator_accuracy"], loss.discriminator.accuracy)
    assert torch.equal(found["balanced_accuracy"], loss.discriminator.balanced_accuracy)
    with torch.no_grad():
        loss([encoder.preprocess(sentences[:2])])
    assert torch.equal(loss.instruments["labels_entropy"], found["labels_entropy"])


def test_matryoshka_around_this_term_alone_is_refused(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable
) -> None:
    loss = FrequencyAdversarialLoss(encoder, frequency_table=frequency_table)
    with pytest.raises(ValueError, match=r"^FrequencyAdversarialLoss cannot run inside MatryoshkaLoss.*SLTFAILoss"):
        MatryoshkaLoss(encoder, loss, [16, 8])([encoder.preprocess(sentences)], None)
    assert loss.steps == 0
