"""Passages: what is cut, where, and the best one's score."""

import random
from itertools import pairwise

import numpy as np
import pytest

from st_extras.encoders import passages as passages_module
from st_extras.encoders.passages import Passages, cut_documents, longer_than_read, passage_spans


def pieces(text: str, *settings: int) -> list[str]:
    return [text[start:end] for start, end in passage_spans(text, *settings)]


def test_passages_overlap_by_a_quarter_and_end_with_the_text():
    text = " ".join(map(str, range(18)))
    assert pieces(text, 8) == ["0 1 2 3 4 5 6 7", "6 7 8 9 10 11 12 13", "10 11 12 13 14 15 16 17"]
    assert pieces(text, 6, 6) == ["0 1 2 3 4 5", "6 7 8 9 10 11", "12 13 14 15 16 17"]
    assert pieces(f"  {text}\n", 18) == [f"  {text}\n"], "a short text is whole"
    assert pieces("我们喜欢苹果", 4, 2) == ["我们喜欢", "喜欢苹果"]
    assert pieces("", 4) == [""]


def test_documents_that_the_encoder_reads_whole_stay_whole(still_encoder):
    limit = still_encoder.max_seq_length
    whole = " ".join(["cat"] * (limit - 2))
    texts = ["a cat", whole, f"{whole} cat", "cat " * 3 * limit]
    assert longer_than_read(still_encoder, texts).tolist() == [False, False, True, True]
    cut = cut_documents(still_encoder, texts, 4)
    assert np.diff(cut.first).tolist()[:2] == [1, 1]
    assert cut.texts(texts)[:2] == texts[:2]
    assert max(len(text.split()) for text in cut.texts(texts)[2:]) == 4
    longest = cut_documents(still_encoder, texts, 80).texts(texts)[2:]
    assert max(len(text.split()) for text in longest) == limit // 2, "two tokens for each word"
    assert cut_documents(still_encoder, texts, None).first.tolist() == [0, 1, 2, 3, 4]
    still_encoder.prompts["document"] = "cat cat "
    assert longer_than_read(still_encoder, texts).tolist() == [False, True, True, True]
    still_encoder.max_seq_length = None
    assert not longer_than_read(still_encoder, texts).any()


@pytest.mark.parametrize(
    "text",
    [
        "donaudampfschifffahrt " * 30,  # 21 tokens a word
        "x=[y[0],z[1],{a:b}];" * 30,  # one word
        "a cat " * 20 + "https://a.bc/?d=e&f=g#hijklmnopqrstuvwxyz" + " sat on the mat" * 20,
    ],
)
def test_nothing_of_a_long_document_is_left_unread(still_encoder, text):
    still_encoder.prompts["document"] = "a cat sat on the mat "
    cut = cut_documents(still_encoder, ["a cat", text], 80)
    assert cut.first.tolist()[:2] == [0, 1]
    pieces = cut.texts(["a cat", text])[1:]
    assert not longer_than_read(still_encoder, pieces).any()
    spans = cut.spans[1:].tolist()
    assert all(text[end:start].strip() == "" for (_, end), (start, _) in pairwise(spans)), "in order, without a gap"
    assert (spans[0][0], spans[-1][1]) == (0, len(text.rstrip()))
    still_encoder.prompts["document"] = "cat " * 100
    assert len(cut_documents(still_encoder, [text], 80).spans) < 40, "with such a prompt, no text is read"


def test_many_documents_are_tokenized_in_parts(still_encoder, monkeypatch):
    texts = ["a cat" if number % 3 else "cat " * (10 + number) for number in range(13)]
    expected = [len(text.split()) > still_encoder.max_seq_length - 2 for text in texts]
    for most in (1, 2, 5, 1000):
        monkeypatch.setattr(passages_module, "_COUNTED", most)
        assert longer_than_read(still_encoder, texts).tolist() == expected


def test_of_the_passages_that_are_kept_each_belongs_to_its_document():
    cut = Passages(np.array([0, 2, 3, 4, 7]), np.array([[place, place + 9] for place in range(7)], dtype=np.int32))
    numbers, kept = cut.kept(np.array([1, 2, 4, 6]))
    assert (numbers.tolist(), kept.first.tolist()) == ([0, 1, 3], [0, 1, 2, 4])
    assert kept.spans.tolist() == [[1, 10], [2, 11], [4, 13], [6, 15]]


@pytest.mark.parametrize("counts", [[1, 1, 1], [3, 1, 2], [1, 5, 1]])
def test_the_best_passage_counts_for_its_document(counts):
    first = np.cumsum([0, *counts])
    scores = np.random.default_rng(0).normal(size=(4, first[-1]))
    found = Passages(first, np.zeros((first[-1], 2), dtype=np.int32)).best(scores)
    for row, best in zip(scores, found, strict=True):
        assert best.tolist() == [max(row[a:b]) for a, b in pairwise(first)]


KEY = "".join(random.Random(0).choices("abcdehlnrst", k=80))  # a token a letter; more letters are one unknown word
PROSE = "the old cat sat on the mat"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{PROSE} key = {KEY} {PROSE}", [f"{PROSE} key =", f"{KEY}", PROSE]),
        (f"key = {KEY} {PROSE}", [f"key = {KEY}", PROSE]),
        (f"{KEY} = {KEY[::-1]}", [f"{KEY} = {KEY[::-1]}"]),
        (f"{PROSE} {PROSE} {PROSE} {KEY}", [f"{PROSE} {PROSE} {PROSE}", KEY]),
    ],
)  # fmt: skip
def test_what_stands_beside_a_long_word_stays_together_and_no_sign_alone(still_encoder, text, expected):
    """A passage has up to 8 words; a word of more than 14 tokens is long."""
    cut = cut_documents(still_encoder, [text], 8)
    pieces = cut.texts([text])
    assert not longer_than_read(still_encoder, pieces).any()
    assert min(map(len, pieces)) >= 4
    assert len({*map(tuple, cut.spans.tolist())}) == len(pieces), "a span stands once"
    joined, step = [], 0
    for whole in expected:  # each is one piece, those of a long word, or overlapping passages
        start = text.index(whole, step)
        inside = [piece for piece, (first, end) in zip(pieces, cut.spans.tolist(), strict=True)
                  if start <= first and end <= start + len(whole)]  # fmt: skip
        assert inside[0] == whole[: len(inside[0])]
        assert inside[-1] == whole[-len(inside[-1]) :]
        joined += inside
        step = start + len(whole)
    assert joined == pieces, "none goes from one into the next"


def test_a_part_that_two_passages_share_stands_once(still_encoder):
    """8 words of 6 tokens are halved twice, and the last quarter of each passage is the first of the next."""
    text = " ".join("".join(random.Random(i).choices("abcdehlnrst", k=6)) for i in range(40))
    cut = cut_documents(still_encoder, [text], 8)
    assert {len(piece.split()) for piece in cut.texts([text])} == {2}
    assert len({*map(tuple, cut.spans.tolist())}) == len(cut.spans) == 20
