"""AT alone: equation 4 and the confusion as loops over what the encoder gave, and who descends what."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from st_extras.encoders import distributed
from st_extras.losses import FrequencyAdversarialLoss
from st_extras.losses.parts.discriminator import Discriminator
from st_extras.text.frequency import FrequencyTable
from tests.losses.cases import owned

TEXTS = ["a cat sat on the mat", "the", "two birds sing near a river", ""]
"""Of several lengths: a mean over all tokens would be another; the last has no content."""


@pytest.fixture
def make(still_encoder, frequency_table):
    """The loss on an encoder in float64 without dropout."""

    def build(**options: Any) -> FrequencyAdversarialLoss:
        torch.manual_seed(1)
        return FrequencyAdversarialLoss(
            still_encoder.double().train(), frequency_table=frequency_table, **options
        ).double()

    return build


def answers(loss: Any, table: FrequencyTable) -> list[list[tuple[Tensor, int]]]:
    """The discriminator's logits and the label of each content token, sentence by sentence."""
    rows = loss.model.preprocess(TEXTS)
    output = loss.model(dict(rows))
    first, bias, last, shift = owned(loss, loss.model).values()
    special, labels = set(loss.model.tokenizer.all_special_ids), table.labels()
    found = []
    for ids, tokens in zip(rows["input_ids"].tolist(), output["token_embeddings"], strict=True):
        kept = [(token, i) for token, i in zip(tokens, ids, strict=True) if i not in special]
        found.append([((first @ x + bias).relu() @ last.T + shift, int(labels[i])) for x, i in kept])
    return [sentence for sentence in found if sentence]


def shares_of(found: list[list[tuple[Tensor, int]]]) -> list[float]:
    """The share of each label: over the tokens of a sentence, then over the sentences."""
    low = sum(sum(label for _, label in sentence) / len(sentence) for sentence in found) / len(found)
    return [1 - low, low]


def cross_entropy(found: list[list[tuple[Tensor, int]]], balanced: bool, *, confused: bool = False) -> Tensor:
    """L_AT, or the confusion, whose targets are the shares: over a sentence's tokens, then over the sentences."""
    shares = shares_of(found)
    weight = [1 / (2 * share) for share in shares] if balanced else [1.0, 1.0]
    prior = torch.tensor([0.5, 0.5] if balanced else shares).double()
    target = [prior, prior] if confused else torch.eye(2).double()
    values = [[-weight[y] * (target[y] * logits.log_softmax(0)).sum() for logits, y in s] for s in found]
    return torch.stack([torch.stack(tokens).mean() for tokens in values]).mean()


def gradients(loss: Any, value: Tensor) -> dict[str, Tensor]:
    loss.zero_grad()
    value.backward(retain_graph=True)
    return {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("adversary", "balanced"), [("reversal", False), ("reversal", True), ("confusion", False), ("confusion", True)]
)
def test_value_and_gradients_are_those_of_the_loops(make, frequency_table, adversary, balanced):
    """The discriminator descends L_AT; the encoder ascends it, or descends the confusion, which G does not see."""
    loss = make(adversary=adversary, balanced=balanced)
    value = loss([loss.model.preprocess(TEXTS)])
    computed, found = gradients(loss, value), answers(loss, frequency_table)
    at, confused = cross_entropy(found, balanced), cross_entropy(found, balanced, confused=True)
    assert [len(sentence) for sentence in found] == [6, 1, 6]
    shares = shares_of(found)
    assert 0.2 < shares[1] < 0.8
    assert abs(cross_entropy(found, not balanced) - at) > 1e-4
    prior = [0.5, 0.5] if balanced else shares
    entropy = -sum(share * math.log(share) for share in prior)
    measured = loss.instruments
    assert float(measured["adversarial_loss"]) == pytest.approx(at.item())
    assert float(measured["labels_entropy"]) == pytest.approx(entropy)
    expected = at if adversary == "reversal" else at + confused
    assert value.item() == pytest.approx(expected.item(), abs=1e-7)
    assert ("confusion_loss" in measured) == (adversary == "confusion")
    if adversary == "confusion":
        assert float(measured["confusion_loss"]) == pytest.approx(confused.item())
    own = gradients(loss, at)
    encoders = gradients(loss, -at if adversary == "reversal" else confused)
    for name, gradient in computed.items():
        of = encoders if name.startswith("model.") else own
        torch.testing.assert_close(gradient, of[name], rtol=1e-6, atol=1e-10, msg=name)
    assert sum(name.startswith("model.") for name in computed) > 20


def test_the_sentences_of_every_column_count(make):
    loss, others = make(), ["birds", "the old man", "a cat", "soup"]
    both = loss([loss.model.preprocess(column) for column in (TEXTS, others)])
    torch.testing.assert_close(both, loss([loss.model.preprocess(TEXTS + others)]))


def test_the_running_accuracy_forgets():
    labels, answers = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 0])
    counted, logits = torch.tensor([True, True, True, True, False]), torch.nn.functional.one_hot(answers, 2).float()
    discriminator = Discriminator(3, memory=0.5)
    assert discriminator.accuracy.isnan()
    discriminator.observe(logits, labels, counted)
    assert discriminator.accuracy.item() == pytest.approx(3 / 4)
    assert discriminator.balanced_accuracy.item() == pytest.approx((2 / 3 + 1) / 2)
    discriminator.observe(logits.flip(1), labels, counted)
    assert discriminator.accuracy.item() == pytest.approx((0.5 * 3 + 1) / (0.5 * 4 + 4))


def test_several_processes_need_the_callback(monkeypatch):
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match=r"LossStateCallback\.attach"):
        Discriminator(3)(torch.zeros(2, 3))
