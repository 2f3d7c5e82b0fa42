import os
import random
from collections import Counter
from pathlib import Path

import nltk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from st_extras.text.eda import EDA, WordNetSynonyms, _wordnet

SYNSETS = {  # part of speech -> synsets
    "noun": [["car", "auto", "motor_car"], ["dog", "domestic_dog"], ["auto", "machine"]],
    "verb": [["run", "sprint"]],
    "adj": [["big", "large"]],
    "adv": [],
}


def write_wordnet(folder: Path) -> None:
    """A WordNet of a handful of synsets in WordNet's own file format (wndb(5WN), senseidx(5WN))."""
    folder.mkdir(parents=True)
    senses = []
    for number, (part, synsets) in enumerate(SYNSETS.items(), start=1):
        kind = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}[part]
        data = "  1 WordNet 3.0 Copyright 2006 of a test\n"
        offsets: dict[str, list[str]] = {}
        for lemmas in synsets:
            offset = f"{len(data):08d}"
            words = " ".join(f"{lemma} 0" for lemma in lemmas)
            frames = "01 + 02 00 " if part == "verb" else ""
            data += f"{offset} 00 {kind} {len(lemmas):02x} {words} 000 {frames}| a gloss\n"
            for lemma in lemmas:
                offsets.setdefault(lemma, []).append(offset)
                senses.append(f"{lemma}%{number}:00:00:: {offset} 1 0")
        lines = [f"{w} {kind} {len(o)} 0 {len(o)} 0 {' '.join(o)}" for w, o in sorted(offsets.items())]
        (folder / f"data.{part}").write_text(data)
        (folder / f"index.{part}").write_text("  1 licence\n" + "".join(f"{line}  \n" for line in lines))
        (folder / f"{part}.exc").write_text("ran run\n" if part == "verb" else "")
    (folder / "index.sense").write_text("".join(f"{sense}\n" for sense in sorted(senses)))
    (folder / "lexnames").write_text("00\tnoun.all\t1\n")


@pytest.fixture
def wordnet(tmp_path, monkeypatch):
    write_wordnet(tmp_path / "nltk_data" / "corpora" / "wordnet")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk_data")])
    return tmp_path / "nltk_data"


def test_wordnet_synonyms_from_its_own_file_format(wordnet):
    synonyms = WordNetSynonyms()
    assert synonyms("car") == ["auto", "motor car"]
    assert synonyms("auto") == ["car", "machine", "motor car"]  # over both of its synsets
    assert synonyms("dogs") == ["dog", "domestic dog"]  # NLTK finds the base form
    assert synonyms("ran") == ["run", "sprint"]
    assert synonyms("big") == ["large"]
    assert synonyms("carrot") == []


def test_a_forked_process_opens_its_own_files(wordnet, monkeypatch):
    synonyms = WordNetSynonyms()
    synonyms("car")
    before = _wordnet(synonyms._root, os.getpid())
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert synonyms("dog") == ["domestic dog"]
    assert _wordnet(synonyms._root, -1) is not before


def test_synonyms_replace_the_share_asked_for_and_keep_case():
    table = {word: [word + "x", word + "y"] for word in ("cat", "mat", "dog", "park", "paris")}
    assert EDA(synonym_ratio=1, synonyms={"paris": ["rome"], "usa": ["america"]})("Paris, USA!") == "Rome, AMERICA!"
    sentence = "cat mat dog park"
    for ratio, count in ((0.5, 2), (0.01, 1)):
        changed = EDA(synonym_ratio=ratio, synonyms=table)(sentence).split()
        assert sum(a != b for a, b in zip(sentence.split(), changed, strict=True)) == count


def test_stop_words_and_words_without_a_synonym_stay():
    eda = EDA(synonym_ratio=1.0, synonyms=lambda word: [] if word == "mat" else ["x"])
    assert eda("The cat is ON the mat") == "The x is ON the mat"
    assert EDA(synonym_ratio=1.0, synonyms={"the": ["a"]}, stop_words=[])("the mat") == "a mat"


def test_deletion_and_swap_keep_the_punctuation_in_order():
    delete = EDA(synonym_ratio=0, deletion_ratio=0.5)
    assert len({delete(f"one two, three ({i}) four.") for i in range(50)}) > 10
    swapped = EDA(synonym_ratio=0, swap_ratio=0.5)("one two, three four; five six")
    assert sorted(swapped.replace(",", "").replace(";", "").split()) == ["five", "four", "one", "six", "three", "two"]
    assert [c for c in swapped if not c.isalnum()] == list(" ,  ;  ")
    left = {EDA(synonym_ratio=0, deletion_ratio=1.0, seed=seed)("one, two three") for seed in range(20)}
    assert {w.strip(" ,") for w in left} == {"one", "two", "three"}, "one word is left"


@settings(deadline=None, max_examples=30)
@given(st.text(), st.integers(0, 5))
def test_any_text_passes_and_the_seed_decides(text, seed):
    def make(**options: float) -> EDA:
        return EDA(synonyms=lambda word: [word[::-1], "new"], seed=seed, **options)  # type: ignore[arg-type]

    every = {"synonym_ratio": 0.5, "deletion_ratio": 0.2, "swap_ratio": 0.2}
    assert make(**every)(text) == make(**every)(text)
    assert make(synonym_ratio=0)(text) == text
    assert Counter(make(synonym_ratio=0, swap_ratio=1.0)(text)) == Counter(text)


def test_a_generator_draws_anew_at_each_call():
    eda = EDA(synonyms={"cat": list("abcdefgh")})
    drawn, again = ([eda("a cat", generator) for _ in range(20)] for generator in (random.Random(3), random.Random(3)))
    assert drawn == again
    assert len(set(drawn)) > 3
    assert len({eda("a cat") for _ in range(5)}) == 1


@pytest.mark.parametrize(
    ("options", "sentence", "named"),
    [
        ({"synonym_ratio": -0.1}, "", "synonym_ratio"), ({"swap_ratio": float("nan")}, "", "swap_ratio"),
        ({"synonyms": {"cat": "feline"}}, "cat", ".*'feline' for 'cat'"), ({}, "a \ud800 cat", "sentence: .*surrogate"),
        ({"synonyms": None}, "", r".*nltk\.downloader wordnet"),
    ],
)  # fmt: skip
def test_wrong_arguments(options, sentence, named):
    with pytest.raises(ValueError, match=rf"^{named}"):
        EDA(**{"synonyms": {}, **options})(sentence)
