from __future__ import annotations

import math

import pytest
import torch

from st_extras.losses.frequency_adversarial import (
    balancing_weights,
    label_shares,
    labels_entropy,
    token_cross_entropy,
    token_mean,
)

LABELS = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 1, 1]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]).bool()
SHARE = (1 / 4 + 1) / 2  # of label 1: a quarter of the first sentence, all of the second; the third has no content


def test_the_mean_is_over_tokens_then_over_sentences() -> None:
    values = torch.tensor([[1.0, 2, 3, 6], [10, 20, 99, 99], [99, 99, 99, 99]])
    sentences = []
    for row in range(3):
        counted = [values[row, place].item() for place in range(4) if MASK[row, place]]
        if counted:
            sentences.append(sum(counted) / len(counted))
    assert sentences == [3, 15]
    assert token_mean(values, MASK).item() == sum(sentences) / len(sentences)
    assert token_mean(values, torch.zeros_like(MASK)) == 0


def test_the_entropy_is_what_a_discriminator_of_the_share_alone_reaches() -> None:
    shares = label_shares(LABELS, MASK)
    assert shares.tolist() == pytest.approx([1 - SHARE, SHARE])
    expected = -(SHARE * math.log(SHARE) + (1 - SHARE) * math.log(1 - SHARE))
    assert labels_entropy(shares).item() == pytest.approx(expected)
    assert token_cross_entropy(shares.log().expand(3, 4, 2), LABELS, MASK).item() == pytest.approx(expected)
    assert labels_entropy(label_shares(LABELS, torch.zeros_like(MASK))) == 0
    assert labels_entropy(label_shares(torch.ones_like(LABELS), MASK)) == 0


def test_balanced_labels_count_a_half_each() -> None:
    weights = balancing_weights(LABELS, label_shares(LABELS, MASK))
    for row in range(3):
        for place in range(4):
            share = SHARE if LABELS[row, place] == 1 else 1 - SHARE
            assert weights[row, place].item() == pytest.approx(1 / (2 * share))
    for label in (0, 1):
        assert token_mean(weights * (label == LABELS), MASK).item() == pytest.approx(0.5)


@pytest.mark.parametrize("label", [0, 1])
def test_a_label_alone_still_counts_a_half(label: int) -> None:
    labels = torch.full_like(LABELS, label)
    weights = balancing_weights(labels, label_shares(labels, MASK))
    assert (weights == 0.5).all()
    assert balancing_weights(labels, label_shares(labels, torch.zeros_like(MASK))).isfinite().all()
