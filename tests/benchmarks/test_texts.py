"""The text that is fitted on, the pairs that are scored, and pairs that two sets have in common."""

from pathlib import Path

import pytest

from benchmarks import pairs
from benchmarks.texts import DEV as DEV_NAME
from benchmarks.texts import (
    corpus_sentences,
    read_counts,
    scored_sets,
    spaced,
    sts_sentences,
    thinned,
    without_sentences,
    write_counts,
)
from st_extras.evaluation import SEVEN_STS, STSDataset
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
    lengths = {"hundred": "x" * 100, "more": "x" * 101}
    text = ["a cat", "one", *lengths.values(), "two", "three", "A CAT!"]
    (tmp_path / "sts_unlabeled.txt").write_text("\n".join(text), encoding="utf8")
    unseen = ["one", lengths["hundred"], "two", "three"]
    assert corpus_sentences({"corpus": "sts-unseen", "sentences": 9}, tmp_path) == unseen
    assert corpus_sentences({"corpus": "sts-unseen", "sentences": 2}, tmp_path) == unseen[::2]


def write_set(folder: Path, name: str, count: int, ending: str = ".tsv") -> None:
    rows = [f"{name}\t{i}\t{name} one {i}\t{name} two {i}\n" for i in range(count)]
    write(folder / f"{name}{ending}", "subset\tscore\tsentence1\tsentence2\n" + "".join(rows))


def test_a_study_scores_the_sets_and_pairs_that_it_names(tmp_path):
    """By default STS-B dev and the seven STS sets, all pairs."""
    for number, name in enumerate((DEV_NAME, *SEVEN_STS, "zh_dev", "zh_a"), 4):
        write_set(tmp_path, name, number, ".tsv.gz" if number % 2 else ".tsv")
    dev, tests = scored_sets({"training": {}}, tmp_path)
    assert (dev.name, len(dev)) == (DEV_NAME, 4)
    assert {one.name: len(one) for one in tests} == {name: n for n, name in enumerate(SEVEN_STS, 5)}
    few = {"training": {"pairs": {"zh_dev": 3, "others": 2}}, "dev": "zh_dev", "sets": ["zh_a", "sts12"]}
    dev, tests = scored_sets(few, tmp_path)
    assert [(one.name, one.scores) for one in (dev, *tests)] == [
        ("zh_dev", [0.0, 4.0, 8.0]), ("zh_a", [0.0, 6.0]), ("sts12", [0.0, 2.0])
    ]  # fmt: skip
    assert dev.sentences2 == ["zh_dev two 0", "zh_dev two 4", "zh_dev two 8"]


@pytest.mark.parametrize("file", ["sts_unlabeled.txt", "sts_unlabeled.txt.gz", None])
def test_the_sentences_of_the_sets_are_a_file_or_those_of_all_pairs(tmp_path, file):
    names = [*SEVEN_STS, "stsb_train", "stsb_dev", "sickr_train", "sickr_trial"]
    for name in names:
        write_set(tmp_path, name, 2)
    expected = [f"{name} {side} {i}" for name in names for side in ("one", "two") for i in range(2)]
    if file is not None:
        expected = ["a b", "c", "d"]
        write(tmp_path / file, "a b\nc\nd\n")
    assert sts_sentences(tmp_path) == expected
    assert corpus_sentences({"corpus": "sts"}, tmp_path) == expected
    assert corpus_sentences({"corpus": "sts", "sentences": 2}, tmp_path) == expected[:2]


def test_a_text_is_of_the_data_folder_or_an_address_and_as_long_as_is_asked_for(tmp_path, monkeypatch):
    write(tmp_path / "mine.txt.gz", "one\ntwo\nthree\n")
    assert corpus_sentences({"corpus": "mine.txt.gz"}, tmp_path) == ["one", "two", "three"]
    assert corpus_sentences({"corpus": "mine.txt.gz", "sentences": 2}, tmp_path) == ["one", "two"]
    monkeypatch.setattr("benchmarks.texts.read_sentences", lambda source, limit: (source, limit))
    assert corpus_sentences({"corpus": "hf://a/b", "sentences": 5}, tmp_path) == ("hf://a/b", 5)


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
