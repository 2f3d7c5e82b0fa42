"""Settings of another type are refused where they are given, with the argument's name and the value."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertTokenizer

from st_extras.text import EDA, ChunkPhrases, PhraseMasking, RakeKeywords, RakePhrases, TfidfKeywords
from st_extras.text.frequency import FrequencyTable

SPELLED: dict[str, Any] = {"synonyms": {"cat": ["feline"]}}
FITTED: dict[str, Any] = {"idf": {"cat": 1.0}, "unseen_idf": 2.0}
PARSED: dict[str, Any] = {"parse": str}
TABLE: dict[str, Any] = {"tokens": ("a", "b"), "counts": [1, 2]}
CORPUS = ["the cat sat", "the dog ran home"]


@pytest.mark.parametrize(
    ("call", "good", "name", "value", "allowed"),
    [
        (PhraseMasking, {}, "sample", "False", "True or False"),
        (PhraseMasking, {}, "extractor", 11, "a function or None"),
        (PhraseMasking, {}, "augmentation", 0, "a function or None"),
        (PhraseMasking, {}, "words", 0, "a function"),
        (PhraseMasking, {}, "column", 0, "a str"),
        (PhraseMasking, {}, "seed", "7", "a whole number"),
        (RakePhrases, {}, "words", 0, "a function or None"),
        (EDA, SPELLED, "words", "", "a function"),
        (EDA, {}, "synonyms", 3, "a mapping, a callable or None"),
        (EDA, SPELLED, "seed", 0.5, "a whole number"),
        (ChunkPhrases, {}, "parse", 0, "a function or None"),
        (ChunkPhrases, {}, "tagger", False, "a function or None"),
        (ChunkPhrases, PARSED, "grammar", -0.5, "a str"),
        (ChunkPhrases, PARSED, "kinds", 2.5, "a non-empty collection of strings"),
        (ChunkPhrases, PARSED, "kinds", [None], "a non-empty collection of strings"),
        (ChunkPhrases, PARSED, "seed", None, "a whole number"),
        (ChunkPhrases, PARSED, "seed", True, "a whole number"),
        (TfidfKeywords, FITTED, "idf", [1, 2], "a dict"),
        (TfidfKeywords, FITTED, "unseen_idf", None, "a finite number >= 0"),
        (FrequencyTable, TABLE, "tokens", 0.05, "a sequence of strings"),
        (FrequencyTable, TABLE, "tokens", "ab", "a sequence of strings"),
        (FrequencyTable, TABLE, "counts", 7, "one entry for each of the 2 tokens"),
        (FrequencyTable, TABLE, "counts", [0.5, 1], "whole numbers"),
        (FrequencyTable, TABLE, "counts", None, "whole numbers"),
    ],
)
def test_a_setting_of_another_type_is_named(call: Any, good: Any, name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must .*{allowed}.*{re.escape(repr(value))}.*\.$"):
        call(**good | {name: value})


@pytest.mark.parametrize("value", ["the", 2.5, [1], b"the", range(3), torch.zeros(0), np.zeros((2, 3))])
@pytest.mark.parametrize(
    ("call", "good"),
    [
        (EDA, SPELLED),
        (RakeKeywords, {}),
        (RakePhrases, {}),
        (TfidfKeywords, FITTED),
        (TfidfKeywords.fit, {"sentences": CORPUS}),
    ],
)
def test_stop_words_are_a_collection_of_strings(call: Any, good: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^stop_words must be a collection of strings, got .*\.$"):
        call(**good, stop_words=value)
    for words in (["cat"], {"cat"}, iter(["cat"]), np.array(["cat"])):
        assert call(**good, stop_words=words).stop_words >= {"cat"}


def test_a_table_of_idf_holds_finite_numbers() -> None:
    with pytest.raises(ValueError, match=r"^idf\['cat'\] must be a finite number, got nan\.$"):
        TfidfKeywords({"dog": 1.0, "cat": float("nan")}, 2.0)
    assert type(TfidfKeywords({"cat": np.float32(1.5)}, 2).config["idf"]["cat"]) is float


@pytest.mark.parametrize(
    ("name", "value"), [("tokenizer", True), ("show_progress_bar", "False"), ("texts", torch.tensor(0.5))]
)
def test_counting_names_its_settings(name: str, value: Any, tokenizer: BertTokenizer) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got .*{re.escape(repr(value))}(: give .*)?\.$"):
        FrequencyTable.count(**{"texts": CORPUS, "tokenizer": tokenizer} | {name: value})


def test_a_token_that_is_no_string_is_named() -> None:
    with pytest.raises(ValueError, match=r"^tokens must hold strings, .* got the item 3\.$"):
        FrequencyTable(["a", 3], [1, 2])
    assert FrequencyTable(["a", None], [1, 0]).tokens == ("a", None)


@pytest.mark.parametrize("generator", [None, random.Random(0)])
def test_half_a_surrogate_pair_is_named(generator: random.Random | None) -> None:
    with pytest.raises(ValueError, match=r"^sentence: a sentence must be valid text, got a lone surrogate in .*\.$"):
        EDA(**SPELLED)("a \ud800 cat", generator)
    with pytest.raises(ValueError, match=r"^sentence: a sentence must be valid text, got a lone surrogate in .*\.$"):
        ChunkPhrases(**PARSED)("a \ud800 cat")


@pytest.mark.parametrize("synonyms", [{"cat": "feline"}, lambda word: "feline"])
def test_synonyms_of_a_word_are_a_list(synonyms: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^synonyms must hold a list for each word, got the string 'feline' for 'cat'"
    ):
        EDA(synonyms=synonyms)("cat")


def test_numpy_seeds_draw_as_python_ones_do() -> None:
    sentence = "one two three four five six"
    changed = [EDA(synonym_ratio=0, swap_ratio=0.5, seed=seed)(sentence) for seed in (7, np.int64(7))]
    assert changed[0] == changed[1] != sentence
    drawn = [PhraseMasking(sample=True, seed=seed)(["a red cat and a dog"] * 9) for seed in (7, np.uint8(7))]
    assert drawn[0] == drawn[1]


def test_a_table_is_saved_in_an_existing_folder(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "table.tsv"
    with pytest.raises(ValueError, match=rf"^path must be in an existing folder, got '{re.escape(str(path))}'\.$"):
        FrequencyTable(**TABLE).save(path)
