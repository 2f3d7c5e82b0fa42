"""The domain study: what is held out, and transforms against the modules."""

import random

import pytest
import torch

from benchmarks import domains
from st_extras.modules import whitening
from tests.fixtures import SENTENCES

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
TOPICS = [WORDS[i::4] for i in range(4)]


def texts(count: int, seed: int) -> tuple[list[str], list[str]]:
    drawn, found = random.Random(seed), {}
    while len(found) < count:
        topic = drawn.randrange(4)
        found[" ".join([*drawn.choices(TOPICS[topic], k=4), *drawn.choices(WORDS, k=2)])] = str(topic)
    return list(found), list(found.values())


@pytest.fixture
def domain(monkeypatch):
    monkeypatch.setattr(domains, "HELD_OUT", 100)
    monkeypatch.setattr(domains, "FITTED", 120)
    test, labels = texts(60, 1)
    return domains.Domain("made up", sorted(texts(300, 0)[0]), test, labels, SENTENCES[:8], [0.0, 1.0, 2.0, 3.0])


def test_held_out_texts_are_not_fitted_on(domain):
    order = domain.order(0)
    assert len(set(order)) == len(order) == 220
    assert set(order) != set(domain.order(1))
    assert order == domain.order(0)


def test_a_transform_of_statistics_is_that_of_the_module(encoder):
    sentences = texts(80, 3)[0]
    embeddings = domains.encoded(encoder, sentences)
    matrix, offset = domains.STEPS["whitened softly 0.1"](embeddings, sentences, 0)
    model = whitening(encoder, sentences, epsilon=0.1)
    assert torch.allclose(embeddings @ matrix + offset, domains.encoded(model, sentences), atol=1e-4)
