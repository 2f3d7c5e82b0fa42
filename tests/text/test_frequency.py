"""Frequency tables: counts as a loop, labels by hand, files that come back, and what is refused."""

import json
import logging
import os
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset

from st_extras.text.frequency import FrequencyTable, vocabulary


def test_counts_are_those_of_a_loop_without_special_tokens_and_truncation(tokenizer, sentences, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    texts, tokenizer.model_max_length = [" ".join(sentences * 5), "a"], 16
    tokenizer(texts, truncation=True, max_length=4, padding=True)
    table = FrequencyTable.count(texts, tokenizer)  # the tokenizer still truncates
    assert not caplog.messages, "no encoder reads them, so none is too long"
    seen = Counter(token for text in texts for token in tokenizer.tokenize(text))
    assert table.counts.tolist() == [seen[token] for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
    assert table.counts[tokenizer.cls_token_id] == 0
    assert table.num_texts == 2
    assert repr(table) == f"FrequencyTable(types={len(seen)}/{len(tokenizer)}, tokens={seen.total()}, texts=2)"


def test_every_kind_of_corpus_gives_the_same_table(frequency_table, tokenizer, sentences):
    rows = Dataset.from_dict({"sentence": sentences})
    for corpus in (iter(sentences), rows, rows.to_iterable_dataset()):
        counted = FrequencyTable.count(corpus, tokenizer, batch_size=3)
        assert counted.counts.tolist() == frequency_table.counts.tolist()
        assert counted.num_texts == len(sentences)


def test_the_corpus_is_never_held(tokenizer, monkeypatch):
    corpus, left, bincount = iter(["the cat"] * 15), [], np.bincount
    monkeypatch.setattr(np, "bincount", lambda ids, **given: left.append(len(list(corpus))) or bincount(ids, **given))
    assert FrequencyTable.count(corpus, tokenizer, batch_size=5).num_texts == 5
    assert left == [10]


def test_text_that_the_tokenizer_does_not_know(tokenizer, caplog):
    with pytest.raises(ValueError, match=r"^texts must hold words that the tokenizer knows"):
        FrequencyTable.count(["今天天气很好", "一二三"], tokenizer)
    FrequencyTable.count(["the cat sat on the mat"], tokenizer)
    assert not caplog.messages
    FrequencyTable.count(["the cat sat on 天", "the cat"], tokenizer)
    assert "14% of the tokens are words that the tokenizer does not know" in caplog.text
    caplog.clear()
    FrequencyTable.count(["天", "the cat sat on the mat the cat sat"], tokenizer)
    assert not caplog.messages, "a tenth is not more than a tenth"
    tokenizer.unk_token = None
    assert FrequencyTable.count(["the"], tokenizer).total == 1, "no token is one of unknown words"


def test_labels_by_hand():
    table = FrequencyTable(["a", "b", "c", "d", "e", "f"], [5, 0, 1, 9, 7, 2])
    assert table.labels(0.5).tolist() == [0, 1, 1, 0, 0, 1]  # int(0.5 * 5) = 2 of the seen, and b
    assert table.labels(0.1).tolist() == [0, 1, 0, 0, 0, 0]
    assert table.labels(0.35).tolist() == [0, 1, 1, 0, 0, 0]  # int(0.35 * 5) = 1
    assert FrequencyTable(["a", "b", "c", "d"], [3, 3, 3, 3]).labels(0.5).tolist() == [1, 1, 0, 0]
    many = FrequencyTable([f"t{i}" for i in range(1000)], [i % 3 for i in range(1000)])
    lowest = sorted(range(1000), key=lambda i: (many.counts[i], i))[: 334 + 333]
    assert many.labels().tolist() == [int(i in {*lowest}) for i in range(1000)], "equal counts by id"
    assert many.labels().dtype == torch.int64
    for wrong in (0, 1.0):
        with pytest.raises(ValueError, match=r"^low_frequency_ratio must"):
            table.labels(wrong)


@pytest.mark.parametrize("counts", [torch.tensor([3, 0, 1]), np.array([3, 0, 1])], ids=type)
def test_counts_that_are_counted_on_elsewhere_stay_in_the_table(counts):
    table = FrequencyTable(["a", "b", "c"], counts)
    counts += 1
    assert table.counts.tolist() == [3, 0, 1]


def test_what_is_no_table_text_or_tokenizer_is_named(tokenizer):
    for counts in ([1, 2], [-1], [1.5], [0]):
        with pytest.raises(ValueError, match=r"^counts must"):
            FrequencyTable(["a"], counts)
    with pytest.raises(ValueError, match=r"^tokens must"):
        FrequencyTable([3], [1])
    for texts, named in (([], "texts must"), (["", ""], "counts must"), ("a string", "texts must")):
        with pytest.raises(ValueError, match=rf"^{named}"):
            FrequencyTable.count(texts, tokenizer)
    with pytest.raises(ValueError, match=r"^tokenizer must"):
        FrequencyTable.count(["a cat"], tokenizer.backend_tokenizer)
    for size in (0, 1_000_001):
        with pytest.raises(ValueError, match=r"^batch_size must"):
            FrequencyTable.count(["a cat"], tokenizer, batch_size=size)
    with pytest.raises(ValueError, match=r"^num_texts must"):
        FrequencyTable(["a"], [1], num_texts=-1)


def test_a_vocabulary_is_compared_id_by_id(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "get_vocab", lambda: {"b": 3, "a": 0})
    assert vocabulary(tokenizer) == ("a", None, None, "b")
    FrequencyTable(["a", None, None, "b"], [1, 0, 0, 2]).check_tokenizer(tokenizer)
    for tokens, difference in (
        (["a", None, "c", "b"], "id 2 is 'c' here and None there"),
        (["a"], "1 ids here, 4 there"),
        (["a", None, None, "b", "c"], "5 ids here, 4 there"),
    ):
        with pytest.raises(ValueError, match=rf"^Mine and the tokenizer must .*, got a difference: {difference}\.$"):
            FrequencyTable(tokens, [1] * len(tokens)).check_tokenizer(tokenizer, "Mine")
    monkeypatch.setattr(tokenizer, "get_vocab", dict)
    with pytest.raises(ValueError, match=r"^tokenizer must have a vocabulary"):
        vocabulary(tokenizer)


# --- files ---


@pytest.mark.parametrize("name", ["t.json.gz", "t.json.bz2", "t.JSON.XZ", "T.JSON", "counts"])
def test_round_trip(frequency_table, tokenizer, tmp_path, name):
    frequency_table.save(tmp_path / name)
    assert os.listdir(tmp_path) == [name]
    again = FrequencyTable.load(tmp_path / name, tokenizer)
    assert again.tokens == frequency_table.tokens
    assert again.counts.tolist() == frequency_table.counts.tolist()
    assert again.num_texts == frequency_table.num_texts
    tokenizer.add_tokens(["moor"])
    with pytest.raises(ValueError, match=rf"{name}.*vocabulary"):
        FrequencyTable.load(tmp_path / name, tokenizer)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "x"},
        {"tokens": ["b", 3, "a"]},
        {"counts": [1, 0]},
        {"counts": "many"},
        {"num_texts": -1},
        {"counts": [2**70, 0, 1]},
    ],
)
def test_a_changed_table_is_refused_by_name(tmp_path, changes):
    path = tmp_path / "table.json"
    FrequencyTable(["a", None, "b"], [1, 0, 2], num_texts=3).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=r"table\.json"):
        FrequencyTable.load(path)
    path.write_text("[1]")
    with pytest.raises(ValueError, match=r"table\.json must be a file that FrequencyTable\.save wrote, got \[1\]"):
        FrequencyTable.load(path)
