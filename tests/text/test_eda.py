import os
import random
from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from st_extras.text import eda
from st_extras.text.eda import EDA, wordnet_synonyms


class Synset(NamedTuple):
    names: list[str]

    def lemma_names(self) -> list[str]:
        return self.names


def test_wordnet_synonyms_are_those_of_all_synsets_read_by_the_process_itself(monkeypatch):
    found, processes = [Synset(["car", "auto", "motor_car"]), Synset(["Auto", "machine"])], []
    reader = SimpleNamespace(synsets={"auto": found, "carrot": []}.get)
    monkeypatch.setattr(eda, "_wordnet", lambda process: processes.append(process) or reader)
    wordnet_synonyms.cache_clear()
    assert EDA(synonym_ratio=1.0)("Auto") in ("Car", "Machine", "Motor car")
    assert wordnet_synonyms("auto") == ("car", "machine", "motor car")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert wordnet_synonyms("carrot") == ()
    assert processes[-1] == -1 != processes[0], "forked processes would share the read position of open files"
    wordnet_synonyms.cache_clear()


def test_synonyms_replace_the_share_asked_for_and_keep_case():
    table = {word: [word + "x", word + "y"] for word in ("cat", "mat", "dog", "park", "paris")}
    assert EDA(synonym_ratio=1, synonyms={"paris": ["rome"], "usa": ["america"]})("Paris, USA!") == "Rome, AMERICA!"
    sentence = "cat mat dog park"
    for ratio, count in ((0.5, 2), (0.01, 1)):
        changed = EDA(synonym_ratio=ratio, synonyms=table)(sentence).split()
        assert sum(a != b for a, b in zip(sentence.split(), changed, strict=True)) == count
    changed = [(a, b) for a, b in zip(sentence.split(), EDA(synonyms=table)(sentence).split(), strict=True) if a != b]
    assert len(changed) == 2, "half of the words and nothing else, unless it is set"
    first = [EDA(synonyms=table, seed=seed)(sentence).startswith("cat ") for seed in range(20)]
    assert len({*first}) == 2, "any of them"
    first = [EDA(synonyms=table)(f"{sentence} {number}").startswith("cat ") for number in range(20)]
    assert len({*first}) == 2, "of each sentence others"
    assert all(b in table[a] for a, b in changed)
    drawn = {EDA(synonym_ratio=1, synonyms={"cat": ["one", "two", "three"]}, seed=seed)("cat") for seed in range(20)}
    assert drawn == {"one", "two", "three"}, "any of its synonyms"
    change = EDA(synonym_ratio=1.0, synonyms=lambda word: [] if word == "mat" else ["x"])
    assert change("The cat is ON the mat") == "The x is ON the mat", "nor stop words"
    every = EDA(synonym_ratio=1.0, synonyms=lambda word: ["x"], stop_words=[])
    assert every("The cat is here") == "X x x x", "no stop words at all"
    own = EDA(synonym_ratio=1.0, synonyms=table, stop_words=["Cat"], words=lambda text: [(0, 3), (4, 7)])
    assert own("CAT dog mat") in ("CAT dogx mat", "CAT dogy mat"), "with stop words and words of one's own"


def test_deletion_and_swap_keep_the_punctuation_in_order():
    delete = EDA(synonym_ratio=0, deletion_ratio=0.5)
    left = {delete(f"one two, three (four) five; {i}.") for i in range(100)}
    assert len(left) > 50
    for text in left:
        assert [c for c in text if c in ",();."] == list(",();.")
        assert "  " not in text
        assert not text.startswith(" "), "a space goes with each word"
        assert " ," not in text, "that before it"
    rarely = EDA(synonym_ratio=0, deletion_ratio=0.2)
    assert sum(len(rarely(f"{'word ' * 50}{i}").split()) for i in range(100)) in range(4000, 4160), "of 51, 41"
    generator = random.Random(0)
    assert len({delete("one two three four", generator) for _ in range(20)}) > 1, "each call draws anew"
    words = ["one", "two", "three", "four", "five", "six"]
    for ratio, allowed in ((0.01, {2}), (0.34, {0, 3, 4})):  # one swap, and two: of the same, of three or of four words
        changes = [EDA(synonym_ratio=0, swap_ratio=ratio, seed=seed) for seed in range(20)]
        moved = {sum(a != b for a, b in zip(words, change(" ".join(words)).split(), strict=True)) for change in changes}
        assert max(allowed) in moved <= allowed
    swapped = EDA(synonym_ratio=0, swap_ratio=0.5)("one two, three four; five six")
    assert sorted(swapped.replace(",", "").replace(";", "").split()) == ["five", "four", "one", "six", "three", "two"]
    assert [c for c in swapped if not c.isalnum()] == list(" ,  ;  ")
    left = {EDA(synonym_ratio=0, deletion_ratio=1.0, seed=seed)("one, two three four five") for seed in range(40)}
    assert {w.strip(" ,") for w in left} == {"one", "two", "three", "four", "five"}, "one word is left"


@settings(deadline=None, max_examples=30)
@given(st.text(), st.integers(0, 5))
def test_any_text_passes_and_the_seed_decides(text, seed):
    def make(**options: float) -> EDA:
        return EDA(synonyms=lambda word: [word[::-1], "new"], seed=seed, **options)  # type: ignore[arg-type]

    every = {"synonym_ratio": 0.5, "deletion_ratio": 0.2, "swap_ratio": 0.2}
    assert make(**every)(text) == make(**every)(text)
    assert make(**every)(text, random.Random(seed)) == make(**every)(text, random.Random(seed))
    assert make(synonym_ratio=0)(text) == text
    assert Counter(make(synonym_ratio=0, swap_ratio=1.0)(text)) == Counter(text)


@pytest.mark.parametrize(
    ("options", "sentence", "named"),
    [
        ({"swap_ratio": float("nan")}, "", "swap_ratio"), ({"synonyms": None}, "", r".*nltk\.downloader wordnet"),
        ({"synonyms": {"cat": "feline"}}, "cat", ".*'feline' for 'cat'"), ({}, "a \ud800 cat", "sentence: .*surrogate"),
        ({"synonym_ratio": 1.1}, "", "synonym_ratio"), ({"deletion_ratio": -0.1}, "", "deletion_ratio"),
        ({"stop_words": "the"}, "", "stop_words"), ({"seed": 1.0}, "", "seed"),
    ],
)  # fmt: skip
def test_wrong_arguments(options, sentence, named):
    with pytest.raises(ValueError, match=rf"^{named}"):
        EDA(**{"synonyms": {}, **options})(sentence)


@pytest.mark.parametrize("synonyms", [{"aged", "ancient"}, [3]])
def test_synonyms_that_are_no_list_of_strings_are_refused(synonyms):
    """The order of a set differs between processes."""
    with pytest.raises(ValueError, match=r"^synonyms must hold a list of strings for each word, got .* for 'old'"):
        EDA(synonyms={"old": synonyms})("the old man")
