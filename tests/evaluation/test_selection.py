"""The label-free evaluator: which sentences it asks about, what it leaves of them, and what it returns."""

import math
import random
from collections import Counter

import pytest
import torch

from st_extras.evaluation.selection import UnlabeledSelectionEvaluator, choose_confusable, shorten
from st_extras.text.corpus import distinct_sample
from tests.helpers import cosine

CORPUS = [
    f"{who} {what} {where}"
    for who in ("a cat", "the dog", "the old man", "a woman")
    for what in ("sat on", "ran in", "walks slowly to")
    for where in ("the mat", "the park", "a river")
]


@pytest.fixture
def evaluator():
    return UnlabeledSelectionEvaluator(CORPUS, size=20, name="toy", batch_size=8)


def test_the_metric_equals_the_loop(encoder, evaluator):
    clean = encoder.encode(evaluator.sentences)
    shortened = encoder.encode(evaluator.shortened)
    logs = []
    for own, left in enumerate(shortened):
        cosines = [cosine(torch.tensor(left), torch.tensor(other)) / 0.05 for other in clean]
        logs.append(cosines[own] - math.log(sum(map(math.exp, cosines))))
    assert evaluator(encoder) == pytest.approx({"toy_contrast_shortening": sum(logs) / 20}, abs=1e-4)
    assert sum(logs) / 20 < -0.1


def test_shortening_keeps_order_and_levels_spread_over_the_sentences():
    sentences = [" ".join(f"s{i}w{j}" for j in range(10)) for i in range(16)]
    left = [text.split() for text in shorten(sentences, random.Random(0))]
    assert all(words == sorted(words) for words in left)
    assert all(set(words) < set(text.split()) for words, text in zip(left, sentences, strict=True))
    assert Counter(map(len, left)) == dict.fromkeys(range(2, 9), 2) | {1: 1, 9: 1}
    letters = shorten(["我爱北京天安门", "ab", "a"], random.Random(0))  # a script without spaces, and single words
    assert all(" " not in text for text in letters)
    assert list(map(len, letters[1:])) == [1, 1]


def test_half_of_the_sentences_are_near_ones_of_the_other_half():
    words = random.Random(0)
    corpus = []
    for i in range(40):
        topic = [f"t{i}x{j}" for j in range(6)]
        corpus.append(" ".join(topic))
        corpus.append(" ".join([*topic[:4], f"u{i}", f"v{i}"]))
        corpus.append(" ".join(topic) + " .")  # the same sentence in another dress
    words.shuffle(corpus)
    evaluator = UnlabeledSelectionEvaluator(corpus, size=20)
    assert len(set(evaluator.sentences)) == 20
    pairs = zip(evaluator.sentences[:10], evaluator.sentences[10:], strict=True)
    shared = [len(set(seed.split()) & set(neighbour.split()) - {"."}) for seed, neighbour in pairs]
    assert 6 not in shared
    assert shared.count(4) >= 7  # the near one of the others is taken


MANY = [f"{CORPUS[i % len(CORPUS)]} number {i % 400} " for i in range(600)]


def test_a_stream_is_sampled_and_a_list_is_searched_whole(monkeypatch):
    """Records of earlier runs depend on the choice from a list."""
    monkeypatch.setattr("st_extras.evaluation.selection.LARGEST_POOL", 50)
    distinct = list(dict.fromkeys(text.strip() for text in MANY))
    sampled = distinct_sample(distinct, 50, 3)
    for sentences, pool in ((iter(MANY), sampled), (MANY, distinct)):
        evaluator = UnlabeledSelectionEvaluator(sentences, size=20, seed=3)
        assert evaluator.sentences == choose_confusable(pool, 20, random.Random(3))
