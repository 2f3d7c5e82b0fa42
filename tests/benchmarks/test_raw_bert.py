"""What a random BERT starts from, as plain loops: tokens that stand together, and their mutual information."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import raw_bert
from tests.fixtures import SENTENCES, build_encoder

IDS = [[0, 1, 2, 0, 3, 1], [2, 2], [], [4], [3, 0, 1, 1, 2, 3, 0, 2]]


@pytest.mark.parametrize("window", [1, 2, 5])
def test_tokens_stand_together_within_a_sentence_and_a_window(window):
    expected = np.zeros((6, 6))
    for row in IDS:
        for i, one in enumerate(row):
            for j, other in enumerate(row):
                expected[one, other] += 0 < abs(i - j) <= window
    assert np.array_equal(raw_bert.cooccurrences(IDS, 6, window).toarray(), expected)


def test_mutual_information_is_kept_where_it_is_positive():
    counts = raw_bert.cooccurrences(IDS, 6)
    table = counts.toarray()
    smoothed = table.sum(axis=0) ** 0.75
    smoothed *= table.sum() / smoothed.sum()
    expected = np.zeros((6, 6))
    for i in range(6):
        for j in range(6):
            if table[i, j]:
                value = math.log(table[i, j] * table.sum() / (table[i].sum() * smoothed[j]))
                expected[i, j] = max(0.0, value)
    found = raw_bert.ppmi(counts)
    np.testing.assert_allclose(found.toarray(), expected)
    assert found.nnz == (expected > 0).sum() < counts.nnz
    vectors = raw_bert.word_vectors(found, 3, seed=0)
    left, values, _ = np.linalg.svd(expected)
    wanted = (left * np.sqrt(values))[:, :3]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), expected.any(axis=1), atol=1e-9)
    cosines = wanted @ wanted.T / np.maximum(np.outer(*[np.linalg.norm(wanted, axis=1)] * 2), 1e-12)
    seen = expected.any(axis=1)
    np.testing.assert_allclose((vectors @ vectors.T)[np.ix_(seen, seen)], cosines[np.ix_(seen, seen)], atol=1e-6)


def test_words_of_the_counted_sentences_alone_are_set(tmp_path, monkeypatch):
    """In parts of a few sentences as in one; what stands together once is left out; the output bias is ln(p)."""
    monkeypatch.setattr(raw_bert, "COUNTED", 7)
    text, made = [*SENTENCES, *SENTENCES][1:], []
    model = build_encoder(tmp_path / "encoder")
    start = model.transformers_model.get_input_embeddings().weight.detach().clone()
    for at_once in (3, 7, 100):
        monkeypatch.setattr(raw_bert, "_AT_ONCE", at_once)
        with torch.no_grad():
            model.transformers_model.get_input_embeddings().weight.copy_(start)
        loss: Any = raw_bert.MaskedLMLoss(model)
        raw_bert.start_words(loss, text, seed=0)
        made.append(
            (model.transformers_model.get_input_embeddings().weight.detach().clone(), loss.masked_lm.bias.detach())
        )
    for weight, bias in made[1:]:
        torch.testing.assert_close(weight, made[0][0])
        torch.testing.assert_close(bias, made[0][1])
    weight, bias = made[0]
    ids = [model.tokenizer(one, add_special_tokens=False)["input_ids"] for one in text[:7]]
    counts = raw_bert.cooccurrences(ids, len(start)).toarray()
    changed = (weight != start).any(dim=1).numpy()
    assert changed.any()
    assert not changed[~(counts >= 2).any(axis=1)].any(), "a token without a pair that stands together twice"
    lengths = weight[torch.from_numpy(changed)].norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, float(start.norm(dim=1).mean())))
    alone = np.bincount([i for row in ids for i in row], minlength=len(start)) + 1
    np.testing.assert_allclose(bias.numpy(), np.log(alone / alone.sum()), rtol=1e-5)
