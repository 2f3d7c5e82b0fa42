"""The text that is fitted on, the pairs that are scored, and pairs that two sets have in common."""

import pytest

from benchmarks import pairs
from benchmarks.texts import corpus_sentences, read_counts, spaced, thinned, without_sentences, write_counts
from st_extras.evaluation import STSDataset
from st_extras.text.frequency import FrequencyTable
from tests.helpers import write

PAIRS = STSDataset("tests", ["A cat sat .", "the dog"], ["a bird", "It 's red"], [1.0, 2.0], ["a", "a"])
DEV = STSDataset("stsb_dev", ["a", "b", "c", "a"], ["x", "y", "z", "x"], [1, 2, 3, 4], ["g"] * 4)
ONE = STSDataset("one", ["x", "b", "p", "q"], ["a", "z", "p", "r"], [1, 2, 3, 4], ["one"] * 4)  # x-a, turned round
TWO = STSDataset("two", ["c", "c", "a"], ["z", "z", "b"], [1, 2, 3], ["two"] * 3)  # c-z, twice


def test_sentences_are_left_out_whatever_their_case_and_punctuation():
    text = ["a cat sat", "a cat sat down", "THE DOG!", "a bird", "it's red", "a cat sat down"]
    assert without_sentences(text, [PAIRS]) == ["a cat sat down", "a cat sat down"]
    assert without_sentences(text, []) == text


def test_a_text_of_test_sentences_alone_is_refused():
    with pytest.raises(ValueError, match=r"^text must"):
        without_sentences(["a bird", "the dog ."], [PAIRS])


def test_sentences_are_evenly_spaced():
    assert spaced([*"abcdefgh"], 3) == ["a", "c", "e"]
    assert spaced([*"ab"], 3) == ["a", "b"]


def test_of_a_set_as_many_pairs_are_left_as_are_asked_for():
    few = thinned(PAIRS, {"others": 2, "tests": 1})
    assert (few.sentences1, few.sentences2, few.scores) == (["A cat sat ."], ["a bird"], [1.0])
    assert thinned(PAIRS, {"tests": 2}).scores == thinned(PAIRS, {}).scores == [1.0, 2.0]


def test_shared_pairs_are_counted_in_either_order():
    assert pairs.shared_pairs(ONE, DEV).tolist() == [True, False, False, False]
    assert pairs.shared_pairs(TWO, DEV).tolist() == [True, True, False]
    assert pairs.overlap_counts(DEV, [ONE, TWO]) == {
        "distinct": 3,  # a-x is there twice
        "in_tests": 2,
        "sets": {"one": {"pairs": 4, "shared": 1}, "two": {"pairs": 3, "shared": 2}},
    }
    assert pairs.overlap_counts(DEV, [DEV])["in_tests"] == 3
    written = STSDataset("three", ["X !", "b", "b y"], ["A", "y z", ""], [1, 2, 3], ["three"] * 3)
    assert pairs.shared_pairs(written, DEV).tolist() == [True, False, False]


def test_unseen_sentences_are_short_ones_that_no_scored_set_holds(tmp_path, monkeypatch):
    known = STSDataset("any", ["A cat ."], ["a dog"], [1.0], ["any"])
    monkeypatch.setattr("benchmarks.texts.load_sts", lambda *_: known)
    (tmp_path / "sts_unlabeled.txt").write_text(f"a cat\none\n{'long ' * 30}\ntwo\n", encoding="utf8")
    assert corpus_sentences({"corpus": "sts-unseen", "sentences": 9}, tmp_path) == ["one", "two"]


def test_counts_come_back_in_their_order_and_at_the_ids_of_a_tokenizer(tmp_path, frequency_table, encoder):
    write_counts(FrequencyTable(["a\tb", "{", "c"], [1, 2, 3]), tmp_path / "counts.tsv.gz")
    again = read_counts(tmp_path / "counts.tsv.gz")
    assert (again.tokens, again.counts.tolist()) == (("a\tb", "{", "c"), [1, 2, 3])
    rows = zip(frequency_table.tokens, frequency_table.counts.tolist(), strict=True)
    lines = sorted(f"{token}\t{count}" for token, count in rows if count)
    file = write(tmp_path / "list.tsv", "token\tcount\n" + "\n".join(lines))
    assert read_counts(file, encoder.tokenizer).counts.tolist() == frequency_table.counts.tolist()
    with pytest.raises(ValueError, match=r"counts\.tsv\.gz must be counted with this tokenizer, got 2 others"):
        read_counts(tmp_path / "counts.tsv.gz", encoder.tokenizer)
