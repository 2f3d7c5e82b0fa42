"""The sample files keep the promises that their docstrings make."""

import re
import unicodedata
from collections import Counter
from importlib import resources

import pytest

from st_extras.samples import graded_pairs, labeled_sentences, sample_sentences


def normalized(sentence: str) -> str:
    """Lower-cased words only, so that case and punctuation cannot hide a repetition."""
    return " ".join(re.findall(r"\w+", sentence.lower()))


@pytest.fixture(scope="module")
def sentences():
    return sample_sentences()


@pytest.fixture(scope="module")
def pairs():
    return list(zip(*graded_pairs(), strict=True))


def test_sentences_are_many_and_distinct(sentences):
    assert len(sentences) >= 3000
    assert len({normalized(sentence) for sentence in sentences}) == len(sentences)


def test_sentences_have_4_to_30_words(sentences):
    assert not [sentence for sentence in sentences if not 4 <= len(sentence.split()) <= 30]


def test_pairs_are_300_distinct(pairs):
    assert len(pairs) == 300
    assert len({frozenset(pair[:2]) for pair in pairs}) == 300
    assert all(normalized(first) != normalized(second) for first, second, _ in pairs)


def test_scores_cover_the_scale_in_half_points(pairs):
    counts = Counter(score for _, _, score in pairs)
    assert set(counts) == {half / 2 for half in range(11)}
    assert min(counts.values()) >= 20
    assert max(counts.values()) <= 40


def test_graded_sentences_are_not_in_the_training_file(sentences, pairs):
    training = {normalized(sentence) for sentence in sentences}
    assert not [pair for pair in pairs if normalized(pair[0]) in training or normalized(pair[1]) in training]


def test_labelled_sentences_are_eight_of_the_training_file_for_each_topic(sentences):
    texts, topics = labeled_sentences()
    assert {*texts} <= {*sentences}
    assert len({*texts}) == 48
    assert {*Counter(topics).values()} == {8}


@pytest.mark.parametrize(
    ("name", "allowed"), [("sentences.txt", "\n"), ("graded_pairs.tsv", "\n\t"), ("topics.tsv", "\n\t")]
)
def test_files_hold_clean_text(name, allowed):
    text = resources.files("st_extras.samples").joinpath(name).read_bytes().decode("utf-8")
    control = {char for char in text if unicodedata.category(char).startswith("C")} - set(allowed)
    assert not control
    assert text == unicodedata.normalize("NFC", text)
    assert text.endswith("\n")
    cells = [cell for line in text.splitlines() for cell in line.split("\t")]
    assert not [cell for cell in cells if cell != cell.strip() or not cell or "  " in cell]
