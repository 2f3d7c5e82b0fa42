"""Frequency tables: counts as a loop, labels by hand, files that come back, and what is refused."""

import json
import os
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from datasets import Dataset

from st_extras.text import counting
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import build_byte_level_encoder
from tests.helpers import write


def test_counts_are_those_of_a_loop_without_special_tokens_and_truncation(tokenizer, sentences):
    texts = [" ".join(sentences * 5), "a"]
    tokenizer(texts, truncation=True, max_length=4, padding=True)
    table = FrequencyTable.count(texts, tokenizer)  # the tokenizer still truncates
    seen = Counter(token for text in texts for token in tokenizer.tokenize(text))
    assert table.counts.tolist() == [seen[token] for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
    assert table.counts[tokenizer.cls_token_id] == 0
    assert table.num_texts == 2


def test_every_kind_of_corpus_gives_the_same_table(frequency_table, tokenizer, sentences, tmp_path):
    files = [write(tmp_path / "a.txt", "\n".join(sentences[:3]) + "\n")]
    files.append(write(tmp_path / "b.txt.gz", "\n".join(sentences[3:])))
    rows = Dataset.from_dict({"sentence": sentences})
    for corpus in (iter(sentences), files, rows, rows.to_iterable_dataset()):
        counted = FrequencyTable.count(corpus, tokenizer, batch_size=3)
        assert counted.counts.tolist() == frequency_table.counts.tolist()
        assert counted.num_texts == len(sentences)


@pytest.mark.slow
def test_several_processes_count_the_same(frequency_table, tokenizer, sentences):
    counted = FrequencyTable.count(sentences, tokenizer, num_processes=2, batch_size=2, show_progress_bar=True)
    assert counted.counts.tolist() == frequency_table.counts.tolist()


def test_the_corpus_is_never_held(tokenizer, monkeypatch):
    corpus, sizes, encode = iter(["the cat"] * 400), [], counting._histogram
    monkeypatch.setattr(counting, "_histogram", lambda *given: sizes.append(len(list(corpus))) or encode(*given))
    FrequencyTable.count(corpus, tokenizer, batch_size=5)
    assert sizes == [395]


def test_text_that_the_tokenizer_does_not_know(tokenizer, caplog):
    with pytest.raises(ValueError, match=r"^texts must hold words that the tokenizer knows"):
        FrequencyTable.count(["今天天气很好", "一二三"], tokenizer)
    FrequencyTable.count(["the cat sat on the mat"], tokenizer)
    assert not caplog.messages
    FrequencyTable.count(["the cat sat on 天", "the cat"], tokenizer)
    assert "14% of the tokens are words that the tokenizer does not know" in caplog.text


def test_shards_add_up(frequency_table, tokenizer, sentences):
    merged = sum(FrequencyTable.count(sentences[i : i + 3], tokenizer) for i in range(0, len(sentences), 3))
    assert merged.counts.tolist() == frequency_table.counts.tolist()
    assert merged.num_texts == frequency_table.num_texts
    with pytest.raises(ValueError, match=r"id 0 is '\[PAD\]' here and 'a' there"):
        frequency_table + FrequencyTable(["a"], [1])


def test_labels_by_hand():
    table = FrequencyTable(["a", "b", "c", "d", "e", "f"], [5, 0, 1, 9, 7, 2])
    assert table.labels(0.5).tolist() == [0, 1, 1, 0, 0, 1]  # int(0.5 * 5) = 2 of the seen, and b
    assert table.labels(0.1).tolist() == [0, 1, 0, 0, 0, 0]
    assert FrequencyTable(["a", "b", "c", "d"], [3, 3, 3, 3]).labels(0.5).tolist() == [1, 1, 0, 0]
    with pytest.raises(ValueError, match=r"^low_frequency_ratio must"):
        table.labels(1.0)


def test_what_is_no_table_text_or_tokenizer_is_named(tokenizer):
    for counts in ([1, 2], [-1], [1.5], [0]):
        with pytest.raises(ValueError, match=r"^counts must"):
            FrequencyTable(["a"], counts)
    for texts, named in (([], "texts must"), (["", ""], "counts must"), ("a string", "texts must")):
        with pytest.raises(ValueError, match=rf"^{named}"):
            FrequencyTable.count(texts, tokenizer)
    with pytest.raises(ValueError, match=r"^tokenizer must"):
        FrequencyTable.count(["a cat"], tokenizer.backend_tokenizer)


def test_wordfreq_words_begin_with_a_space_for_byte_level_tokenizers(tmp_path, monkeypatch):
    """In a corpus nearly every word follows a space, and its token there is another than at the start of a text."""
    module = SimpleNamespace(
        available_languages=lambda: ["en"],
        get_frequency_dict=lambda language: {"park": 0.5, "river": 0.25},
        word_frequency=lambda word, language: 0.0,
    )
    monkeypatch.setitem(sys.modules, "wordfreq", module)
    table = FrequencyTable.from_wordfreq(build_byte_level_encoder(tmp_path).tokenizer, scale=1000)
    count = dict(zip(table.tokens, table.counts.tolist(), strict=True))
    assert (count["\u0120park"], count["\u0120river"], count["p"], count["."]) == (500, 250, 0, 500)


# --- files ---


@pytest.mark.parametrize(("name", "format"), [("t.json.gz", None), ("T.TSV.GZ", None), ("a.json", "json")])
def test_round_trip(frequency_table, tokenizer, tmp_path, name, format):
    frequency_table.save(tmp_path / name, format)
    assert os.listdir(tmp_path) == [name]
    for again in (FrequencyTable.load(tmp_path / name, tokenizer), FrequencyTable.from_file(tmp_path / name)):
        assert again.tokens == frequency_table.tokens
        assert again.counts.tolist() == frequency_table.counts.tolist()
    tokenizer.add_tokens(["moor"])
    with pytest.raises(ValueError, match=rf"{name}.*vocabulary"):
        FrequencyTable.load(tmp_path / name, tokenizer)


def test_the_authors_json_in_any_order_finds_its_ids(frequency_table, tokenizer, tmp_path):
    counts = dict(zip(frequency_table.tokens, frequency_table.counts.tolist(), strict=True))
    seen = dict(sorted(((token, count) for token, count in counts.items() if count), key=lambda item: -item[1]))
    path = write(tmp_path / "labels.json", json.dumps(seen, indent=2))
    assert FrequencyTable.from_file(path, tokenizer).counts.tolist() == frequency_table.counts.tolist()
    with pytest.raises(ValueError, match="same vocabulary"):
        FrequencyTable.load(path, tokenizer)


def test_neither_a_byte_order_mark_nor_a_tab_disturbs_a_token(tmp_path):
    table = FrequencyTable(["a\tb", "{", "c"], [1, 2, 3])
    table.save(tmp_path / "t.tsv")
    path = write(tmp_path / "marked.tsv", b"\xef\xbb\xbf" + (tmp_path / "t.tsv").read_bytes())
    again = FrequencyTable.from_file(path)
    assert (again.tokens, again.counts.tolist()) == (table.tokens, [1, 2, 3])
    with pytest.raises(ValueError, match="TSV"):
        FrequencyTable(["a\nb"], [1]).save(tmp_path / "x.tsv")


@pytest.mark.parametrize("changes", [{"version": 3}, {"tokens": ["b", None, "a"]}, {"counts": [1, 0]}])
def test_a_changed_table_is_refused_by_name(tmp_path, changes):
    path = tmp_path / "table.json"
    FrequencyTable(["a", None, "b"], [1, 0, 2], num_texts=3).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=r"table\.json"):
        FrequencyTable.from_file(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": -1, "b": 2}', "'a': -1"), ("the\t1\nthe\t2\n", "'the' twice"), ("a\t1\n\nthe\tmany\n", "line 3"),
        ("the\t1\nxyz\t3\n", "'xyz'"), ("the\t1\ncat\t0\n", "left out"),
    ],
)  # fmt: skip
def test_files_that_are_no_table_are_refused_by_name(tmp_path, tokenizer, content, message):
    with pytest.raises(ValueError, match=rf"list.*{message}"):
        FrequencyTable.from_file(write(tmp_path / "list", content), tokenizer)
