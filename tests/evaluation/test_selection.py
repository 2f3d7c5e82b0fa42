"""The label-free evaluator: which sentences it asks about, what it returns, and that it changes nothing else."""

import math
import random

import pytest
import torch
from datasets import IterableDataset

from st_extras.evaluation.geometry import uniformity
from st_extras.evaluation.selection import SIGNALS, UnlabeledSelectionEvaluator
from st_extras.evaluation.selection_texts import choose_confusable
from st_extras.evaluation.signals import agreement_margin, graded_agreement

CORPUS = [
    f"{who} {what} {where}"
    for who in ("a cat", "the dog", "the old man", "a woman")
    for what in ("sat on", "ran in", "walks slowly to")
    for where in ("the mat", "the park", "a river")
]


@pytest.fixture
def evaluator():
    return UnlabeledSelectionEvaluator(CORPUS, size=20, name="toy", batch_size=8)


def test_the_evaluator_returns_every_signal(encoder, evaluator):
    metrics = evaluator(encoder)
    assert list(metrics) == [f"toy_{name}" for name in SIGNALS]
    assert all(math.isfinite(value) for value in metrics.values())
    embeddings = evaluator.embed(encoder)
    clean = encoder.encode(evaluator.sentences, convert_to_tensor=True)
    for form in ("deletion", "swap", "shortening", "blending"):
        changed = encoder.encode(evaluator.forms[form], convert_to_tensor=True)
        torch.testing.assert_close(embeddings[form], changed)
        assert not torch.allclose(changed, clean)
    assert metrics["toy_margin_swap"] == pytest.approx(agreement_margin(clean, embeddings["swap"]), abs=1e-5)
    assert metrics["toy_graded_blending"] == pytest.approx(
        graded_agreement(clean, embeddings["blending"], evaluator.kept["blending"]), abs=1e-2
    )
    assert metrics["toy_spread"] == pytest.approx(-uniformity(clean), abs=1e-5)


def test_stability_compares_with_the_call_before(encoder, evaluator):
    assert evaluator(encoder)["toy_stability"] == 0.0
    assert evaluator(encoder)["toy_stability"] == 1.0
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    assert 0 < evaluator(encoder)["toy_stability"] < 1


def test_all_checkpoints_answer_the_same_questions(encoder, evaluator):
    first = evaluator.embed(encoder)
    torch.manual_seed(2)
    second = evaluator.embed(encoder)
    for form, embeddings in first.items():
        torch.testing.assert_close(embeddings, second[form], rtol=0, atol=0)
    assert not torch.allclose(first["dropout"], first["clean"])
    assert torch.initial_seed() == 2
    evaluator.seed += 1
    assert not torch.allclose(evaluator.embed(encoder)["dropout"], first["dropout"])
    again = UnlabeledSelectionEvaluator(CORPUS, size=20)
    assert (again.sentences, again.forms) == (evaluator.sentences, evaluator.forms)
    other = UnlabeledSelectionEvaluator(CORPUS, size=20, seed=1)
    assert other.sentences != evaluator.sentences
    torch.testing.assert_close(other.embed(encoder)["clean"], encoder.encode(other.sentences, convert_to_tensor=True))


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
    near = evaluator.overlap > 0.3
    assert near.sum() >= 10
    assert all(i < j for i, j in evaluator.pairs.tolist())


@pytest.mark.parametrize(
    ("sentences_", "options", "message"),
    [
        (["one sentence"], {}, "at least 10 distinct, non-empty ones, got 1"),
        ("one sentence", {}, "got the string 'one sentence'"),
        ([None], {}, "sentences, row 0: expected a sentence, got None"),
        (CORPUS, {"signal": "luck"}, "signal must be one of 'margin_dropout'.*got 'luck'"),
        (CORPUS, {"size": 3}, "size must be a whole number between 10 and 20000, got 3"),
        (CORPUS, {"seed": -1}, "seed must be .*got -1"),
    ],
)
def test_bad_input_is_refused(sentences_, options, message):
    with pytest.raises(ValueError, match=message):
        UnlabeledSelectionEvaluator(sentences_, **options)


def _many(count: int = 600) -> list[str]:
    return [f"{CORPUS[i % len(CORPUS)]} number {i % 400} " for i in range(count)]


def _stream(sentences: list[str]) -> IterableDataset:
    return IterableDataset.from_generator(lambda: ({"text": sentence} for sentence in sentences))


@pytest.mark.parametrize("make", [iter, _stream])
def test_a_short_stream_gives_the_choice_of_its_list(make):
    expected = UnlabeledSelectionEvaluator(_many(), size=20)
    again = UnlabeledSelectionEvaluator(make(_many()), size=20)
    assert (again.sentences, again.forms) == (expected.sentences, expected.forms)


def test_a_long_stream_is_sampled_with_no_more_than_the_sample_in_memory(monkeypatch):
    pools = []

    def choose(sentences, size, generator):
        pools.append(list(sentences))
        return choose_confusable(sentences, size, generator)

    monkeypatch.setattr("st_extras.evaluation.selection.LARGEST_POOL", 50)
    monkeypatch.setattr("st_extras.evaluation.selection.choose_confusable", choose)
    first, again, other = (
        UnlabeledSelectionEvaluator(make(_many()), size=20, seed=seed)
        for make, seed in ((iter, 1), (_stream, 1), (iter, 2))
    )
    assert [len(set(pool)) for pool in pools] == [50, 50, 50]
    assert set(pools[0]) <= {text.strip() for text in _many()}
    assert (first.sentences, first.forms) == (again.sentences, again.forms)
    assert first.sentences != other.sentences


def test_the_choice_from_a_list_is_that_of_all_of_it(monkeypatch):
    """Records of earlier runs depend on it."""
    monkeypatch.setattr("st_extras.evaluation.selection_texts.LARGEST_POOL", 50)
    monkeypatch.setattr("st_extras.evaluation.selection.LARGEST_POOL", 50)
    distinct = list(dict.fromkeys(text.strip() for text in _many()))
    expected, *_ = choose_confusable(distinct, 20, random.Random(3))
    assert UnlabeledSelectionEvaluator(_many(), size=20, seed=3).sentences == expected
    assert UnlabeledSelectionEvaluator(tuple(_many()), size=20, seed=3).sentences == expected
