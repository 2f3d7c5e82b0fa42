"""The corpus: what is sampled, which texts are held out, and when nothing can be tried."""

import pytest
import torch

from st_extras.adaptation.corpus import Sample, apart_from, sample_texts, split_corpus
from st_extras.evaluation import LabeledTexts
from tests.helpers import draw

TEXTS = [f"text {chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(603)]


def test_texts_are_sampled_once_each_in_random_order():
    stream = iter([*TEXTS, "", " ", f" {TEXTS[0]} ", TEXTS[1]])
    whole = sample_texts(stream, 1000, 1)
    assert (whole.read, sorted(whole.texts)) == (605, sorted(TEXTS))
    assert whole.texts != TEXTS
    assert sample_texts(TEXTS, 1000, 1).texts != sample_texts(TEXTS, 1000, 2).texts
    some = sample_texts(TEXTS, 520, 1)
    assert (some.read, len(some.texts)) == (603, 520)
    with pytest.raises(ValueError, match=r"^documents, row 1"):
        sample_texts(["a", 3], 1000, 1, "documents")


def test_texts_with_labels_that_choose_are_not_fitted_on():
    sample, labeled = Sample(TEXTS, 700), LabeledTexts([*TEXTS[:9], "other"], ["a", "b"] * 5)
    assert apart_from(sample, labeled) == Sample(TEXTS[9:], 700)
    assert apart_from(sample, None) is sample
    with pytest.raises(ValueError, match="603 of 603"):
        apart_from(sample, LabeledTexts(TEXTS, ["a"] * 603))


def test_the_first_fifth_is_held_out_and_texts_without_embedding_are_left_out():
    vectors = draw(603, 4)
    vectors[5] = 0  # a table of words gives 0 to unknown words
    corpus = split_corpus(Sample(TEXTS, 700), vectors)
    left = [*TEXTS[:5], *TEXTS[6:]]
    rows = torch.cat([vectors[:5], vectors[6:]])
    assert (corpus.held_out, corpus.fitting, corpus.unusable) == (left[:120], left[120:], "")
    assert torch.equal(corpus.held_out_embeddings, rows[:120])
    assert torch.equal(corpus.fitting_embeddings, rows[120:])
    assert corpus.rows.tolist() == [*range(5), *range(6, 603)]
    summary = corpus.summary
    assert (summary.read, summary.sampled, summary.used, summary.held_out) == (700, 603, 602, 120)
    assert summary.mean_words == 2.0


@pytest.mark.parametrize(
    ("texts", "encoded", "reason"),
    [
        (TEXTS[:499], 499, "500 different texts are needed, got 499."),
        (TEXTS, 499, "499 of 603 were encoded in the time"),
        (TEXTS, 0, "0 of 603 were encoded in the time"),
        ([*map(str, range(600))], 600, "only 0% of the texts have a letter"),
        ([f"{t} {n}" for t in ("order", "Order") for n in range(300)], 600, "needed, got 1 but for numbers and case."),
    ],
)
def test_texts_that_cannot_be_used(texts, encoded, reason):
    vectors = draw(encoded, 4) if encoded else torch.zeros(0, 0)
    corpus = split_corpus(Sample(texts, len(texts)), vectors)
    assert reason in corpus.unusable
    assert (corpus.held_out, corpus.summary.used) == ([], encoded)


def test_too_few_embeddings_other_than_zero_are_not_for_want_of_time():
    corpus = split_corpus(Sample(TEXTS, 603), torch.eye(603)[:, :499])
    assert corpus.unusable == "500 texts are needed, and 499 of 603 have an embedding other than 0."


def test_embeddings_that_are_all_the_same_cannot_be_used():
    assert "about the same embedding" in split_corpus(Sample(TEXTS, 603), torch.ones(603, 4)).unusable
