"""``LabelFreeComparison``: each measure as a plain loop, what must give no gain, and what is refused."""

import random
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

from st_extras.evaluation import LabelFreeComparison, LabelFreeScore, label_free
from st_extras.text.term_weights import character_tfidf
from tests.helpers import cosine, draw, generator

WORDS = [
    *("cat", "dog", "bird", "fish", "tree", "house", "river", "road", "train", "bread"),
    *("soup", "milk", "red", "blue", "green", "old", "new", "small", "fast", "warm"),
]
N = 110
TEXTS = [" ".join(words) for words in random.Random(0).sample(list(combinations(WORDS, 5)), N)]


def embedded(texts: list[str], noise: float = 0.5, size: int = 12) -> Tensor:
    """(N, D) sums of random word vectors, and noise."""
    table = dict(zip(WORDS, draw(len(WORDS), size, seed=1), strict=True))
    sums = torch.stack([torch.stack([table[word] for word in text.split()]).sum(dim=0) for text in texts])
    return sums + noise * draw(len(texts), size, seed=2)


BASE = embedded(TEXTS)


def ranked(similarities: list[list[float]], i: int) -> list[int]:
    """The other texts, most similar first; ties by their number."""
    return sorted((j for j in range(len(similarities)) if j != i), key=lambda j: -similarities[i][j])


def measured(texts: list[str], base: Tensor, after: Tensor) -> list[list[float]]:
    """For each text: confirmed, word_overlap, coherence of ``after``; plain loops."""
    rows = character_tfidf(texts).toarray().astype(float)
    words = [[float(a @ b) for b in rows] for a in rows]
    before, now = ([[cosine(a, b) for b in rows] for a in rows] for rows in (base.tolist(), after.tolist()))
    near = [set(ranked(now, i)[:10]) for i in range(len(texts))]
    found = []
    for i in range(len(texts)):
        by_words = [j for j in ranked(words, i) if words[i][j] > 0]
        relevant = [set(by_words[:20]) & set(ranked(before, i)[:20]), set(by_words[:5])]
        line = []
        for wanted in relevant:
            hits, total = 0, 0.0
            for rank, j in enumerate(ranked(now, i), start=1):
                if j in wanted:
                    hits += 1
                    total += hits / rank
            line.append(total / len(wanted) if wanted else 0.0)
        line.append(sum(len(near[i] & near[j]) / 10 for j in near[i]) / 10)
        found.append(line)
    return found


def test_the_measures_their_sum_and_the_interval_are_those_of_plain_loops():
    """One text shares its words with none, two share theirs with one."""
    after, texts = BASE @ draw(12, 12, seed=5) + 0.1, [*TEXTS[:-3], "xyzzy", "plugh qqqq", "plugh vvvv"]
    score = LabelFreeComparison(texts, BASE, seed=3).compare(after)
    changes = np.array(measured(texts, BASE, after)) - np.array(measured(texts, BASE, BASE))
    confirmed, word_overlap, coherence = changes.mean(axis=0)
    assert [score.confirmed, score.word_overlap, score.coherence] == pytest.approx([confirmed, word_overlap, coherence])
    assert score.gain == pytest.approx((confirmed + word_overlap) / 2 + coherence)
    per_text = np.array([(a + b) / 2 + c for a, b, c in changes])
    drawn = np.random.default_rng(3)
    means = [sum(per_text[i] for i in drawn.integers(0, N, N)) / N for _ in range(1000)]
    assert [score.low, score.high] == pytest.approx(np.quantile(means, [0.025, 0.975]).tolist())


def test_several_folds_are_compared_each_within_itself_and_scored_together(monkeypatch):
    monkeypatch.setattr(label_free, "FEWEST_COMPARED", 35)
    after = BASE @ draw(12, 12, seed=5) + 0.1
    score = LabelFreeComparison(TEXTS, BASE, folds=3, seed=3).compare(after)
    parts = [slice(0, 37), slice(37, 74), slice(74, 110)]
    changes = np.concatenate(
        [np.subtract(*(measured(TEXTS[part], BASE[part], x[part]) for x in (after, BASE))) for part in parts]
    )
    assert [score.confirmed, score.word_overlap, score.coherence] == pytest.approx(changes.mean(axis=0).tolist())
    per_text, drawn = changes @ [0.5, 0.5, 1.0], np.random.default_rng(3)
    means = [per_text[drawn.integers(0, N, N)].mean() for _ in range(1000)]
    assert [score.low, score.high] == pytest.approx(np.quantile(means, [0.025, 0.975]).tolist())
    turned = [BASE[part] @ torch.linalg.qr(draw(12, 12, seed=k))[0] for k, part in enumerate(parts)]
    same = LabelFreeComparison(TEXTS, BASE, folds=3).compare(torch.cat(turned))  # each fold in a space of its own
    assert same == LabelFreeScore(*[pytest.approx(0, abs=1e-12)] * 6)


def test_a_fold_whose_texts_share_no_words_has_no_confirmed_neighbour():
    alone = [chr(0x4E00 + 5 * number) * 3 for number in range(100)]
    texts, base = [*TEXTS[:100], *alone], torch.cat([BASE[:100], draw(100, 12)])
    assert LabelFreeComparison(texts, base, folds=2).confirmed_share == 0
    assert LabelFreeComparison(texts, base).confirmed_share == 0.5


def test_the_share_of_texts_with_a_confirmed_neighbour():
    alone = [*TEXTS[:-2], "xyzzy", "qqqqq"]
    assert LabelFreeComparison(TEXTS, BASE).confirmed_share == 1.0
    assert LabelFreeComparison(alone, BASE).confirmed_share == pytest.approx(1 - 2 / N)


def test_a_rotation_changes_nothing_shuffling_is_worse_and_less_noise_is_better():
    base = embedded(TEXTS, noise=3.0)
    comparison = LabelFreeComparison(TEXTS, base)
    rotation = torch.linalg.qr(draw(12, 12, seed=4))[0]
    for same in (3 * base @ rotation, torch.cat([base, torch.zeros(N, 4)], dim=1)):
        assert comparison.compare(same) == LabelFreeScore(*[pytest.approx(0, abs=1e-12)] * 6)
    assert comparison.compare(base[torch.randperm(N, generator=generator())]).high < 0
    better = comparison.compare(embedded(TEXTS, noise=0.0))
    assert 0 < better.low < better.gain < better.high


def test_equal_embeddings_have_no_order():
    """As those of a table of words for the same words, also where a transform or a processor rounds them apart."""
    base = draw(5, 12)[torch.arange(N) % 5]
    rotation = torch.linalg.qr(draw(12, 12, seed=5))[0]
    found = LabelFreeComparison(TEXTS, base).compare(base @ rotation + 1e-15 * draw(N, 12, seed=6))
    assert (found.gain, found.low, found.high) == (0, 0, 0)


def test_what_cannot_be_compared(monkeypatch):
    for texts, base, named in (
        (TEXTS[:99], BASE[:99], "the number"),
        ([*TEXTS[:-1], TEXTS[0]], BASE, "texts"),
        (TEXTS, BASE[:-1], "base"),
        (TEXTS, BASE * float("nan"), "base"),
    ):
        with pytest.raises(ValueError, match=rf"^{named}"):
            LabelFreeComparison(texts, base)
    for folds, named in ((2, "the number of texts must"), (0, "folds must"), (1.5, "folds must"), (True, "folds must")):
        with pytest.raises(ValueError, match=rf"^{named}"):
            LabelFreeComparison(TEXTS, BASE, folds=folds)
    with pytest.raises(ValueError, match=r"^seed must"):
        LabelFreeComparison(TEXTS, BASE, seed=0.5)
    comparison = LabelFreeComparison(TEXTS, BASE)
    zero = BASE.clone()
    zero[4] = 0
    for embeddings in (BASE[1:], zero, BASE * float("inf")):
        with pytest.raises(ValueError, match=r"^embeddings must"):
            comparison.compare(embeddings)
    after = BASE + 0.5 * draw(N, 12, seed=7)
    assert LabelFreeComparison(TEXTS, BASE, folds=1, seed=0).compare(after) == comparison.compare(after)
    assert LabelFreeComparison(TEXTS, BASE, seed=-3).compare(after) != comparison.compare(after)
    monkeypatch.setattr(label_free, "MOST_COMPARED", N)
    assert LabelFreeComparison(TEXTS, BASE).compare(after) == comparison.compare(after)
    monkeypatch.setattr(label_free, "MOST_COMPARED", N - 1)
    with pytest.raises(
        ValueError, match=rf"^the number of texts must be a whole number between 100 and {N - 1}, got {N}"
    ):
        LabelFreeComparison(TEXTS, BASE)
