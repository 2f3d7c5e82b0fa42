from __future__ import annotations

import gzip
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from transformers import BertTokenizer

from st_extras.text import counting, frequency
from st_extras.text.frequency import FrequencyTable


@pytest.fixture
def tokenizer(encoder: SentenceTransformer) -> BertTokenizer:
    return encoder.tokenizer


def counted_by_hand(texts: list[str], tokenizer: BertTokenizer) -> list[int]:
    seen = Counter(token for text in texts for token in tokenizer.tokenize(text))
    return [seen[token] for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]


def test_counts_are_those_of_a_loop_without_special_tokens(
    frequency_table: FrequencyTable, tokenizer: BertTokenizer, sentences: list[str]
) -> None:
    assert frequency_table.counts.tolist() == counted_by_hand(sentences, tokenizer)
    assert frequency_table.counts[tokenizer.convert_tokens_to_ids("the")] == 7
    assert frequency_table.counts[tokenizer.cls_token_id] == 0
    assert frequency_table.num_texts == len(sentences)
    assert frequency_table.total == frequency_table.counts.sum()


def test_neither_truncation_nor_padding_of_an_earlier_call_counts(
    tokenizer: BertTokenizer, sentences: list[str]
) -> None:
    text = " ".join(sentences * 5)
    tokenizer([text, "a"], truncation=True, max_length=4, padding=True)
    assert FrequencyTable.count([text, "a"], tokenizer).counts.tolist() == counted_by_hand([text, "a"], tokenizer)


def test_every_kind_of_corpus_gives_the_same_table(
    frequency_table: FrequencyTable, tokenizer: BertTokenizer, sentences: list[str], tmp_path: Path
) -> None:
    plain, packed = tmp_path / "corpus.txt", tmp_path / "corpus.txt.gz"
    plain.write_text("\n".join(sentences[:3]) + "\n", encoding="utf-8")
    with gzip.open(packed, "wt", encoding="utf-8") as file:
        file.write("\n".join(sentences[3:]))
    rows = Dataset.from_dict({"sentence": sentences})
    corpora = {
        "generator": (s for s in sentences),
        "files": [plain, packed],
        "column": rows["sentence"],
        "streamed column": rows.to_iterable_dataset()["sentence"],
    }
    for name, corpus in corpora.items():
        counted = FrequencyTable.count(corpus, tokenizer, batch_size=3)
        assert counted.counts.tolist() == frequency_table.counts.tolist(), name
        assert counted.num_texts == len(sentences), name


def test_shards_add_up(frequency_table: FrequencyTable, tokenizer: BertTokenizer, sentences: list[str]) -> None:
    shards = [FrequencyTable.count(sentences[i : i + 3], tokenizer) for i in range(0, len(sentences), 3)]
    merged = sum(shards)
    assert merged.counts.tolist() == frequency_table.counts.tolist()
    assert merged.num_texts == frequency_table.num_texts


def test_several_processes_count_the_same(
    frequency_table: FrequencyTable, tokenizer: BertTokenizer, sentences: list[str]
) -> None:
    counted = FrequencyTable.count(sentences, tokenizer, num_processes=2, batch_size=2, show_progress_bar=True)
    assert counted.counts.tolist() == frequency_table.counts.tolist()
    assert counted.num_texts == len(sentences)


class InstantPool(Executor):
    """Does each task as it is handed in."""

    def __init__(self, workers, context, initializer, arguments) -> None:
        initializer(*arguments)

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


@pytest.mark.parametrize("num_processes", [1, 2])
def test_the_corpus_is_never_held(
    tokenizer: BertTokenizer, num_processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_out = itertools.count(1)
    lead = []
    done = [0]
    original = counting.counted
    if num_processes > 1:  # what counts is how far the stream is read ahead of the results
        monkeypatch.setattr(counting, "ProcessPoolExecutor", InstantPool)

    def corpus() -> Iterator[str]:
        for _ in range(400):
            lead.append(next(handed_out) - done[0])
            yield "the cat"

    def watched(*arguments):
        for size, ids in original(*arguments):
            done[0] += size
            yield size, ids

    monkeypatch.setattr(frequency, "counted", watched)
    counted = FrequencyTable.count(corpus(), tokenizer, batch_size=5, num_processes=num_processes)
    assert counted.num_texts == 400
    assert max(lead) <= 5 * (1 if num_processes == 1 else 4 * num_processes)


def test_documents_make_small_batches() -> None:
    text = "x" * (counting._BATCH_CHARACTERS // 2)
    assert [len(batch) for batch in counting.batches(iter([text] * 7), 1000)] == [3, 3, 1]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("t.json", None),
        ("t.json.gz", None),
        ("table", None),
        ("t.tsv", None),
        ("t.tsv.gz", None),
        ("a.json", "json"),
    ],
)
def test_round_trip(
    frequency_table: FrequencyTable, tokenizer: BertTokenizer, tmp_path: Path, name: str, format: str | None
) -> None:
    frequency_table.save(tmp_path / name, format)
    for again in (FrequencyTable.load(tmp_path / name, tokenizer), FrequencyTable.from_file(tmp_path / name)):
        assert again.tokens == frequency_table.tokens
        assert again.counts.tolist() == frequency_table.counts.tolist()
    if format is None and "tsv" not in name:
        assert again.num_texts == frequency_table.num_texts
    assert os.listdir(tmp_path).count(name) == 1
    assert not [entry for entry in os.listdir(tmp_path) if entry.startswith(".")]


def test_the_authors_json_in_any_order_finds_its_ids(
    frequency_table: FrequencyTable, tokenizer: BertTokenizer, tmp_path: Path
) -> None:
    counts = {
        token: count
        for token, count in zip(frequency_table.tokens, frequency_table.counts.tolist(), strict=True)
        if count
    }
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(dict(sorted(counts.items(), key=lambda item: -item[1])), indent=2))
    assert FrequencyTable.from_file(path, tokenizer).counts.tolist() == frequency_table.counts.tolist()
    with pytest.raises(ValueError, match="same vocabulary"):
        FrequencyTable.load(path, tokenizer)


def test_a_killed_write_leaves_the_old_table(
    frequency_table: FrequencyTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.json"
    frequency_table.save(path)
    before = path.read_bytes()

    def killed(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(frequency.os, "fsync", killed)
    for target in (path, tmp_path / "new.json"):
        with pytest.raises(KeyboardInterrupt):
            (frequency_table + frequency_table).save(target)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path).count("new.json") == 0
    assert not [entry for entry in os.listdir(tmp_path) if entry.startswith((".table", ".new"))]


def test_labels_by_hand() -> None:
    table = FrequencyTable(["a", "b", "c", "d", "e", "f"], [5, 0, 1, 9, 7, 2])
    assert table.labels(0.5).tolist() == [0, 1, 1, 0, 0, 1]  # int(0.5 * 5) = 2 of the seen, and b
    assert table.labels(0.7).tolist() == [1, 1, 1, 0, 0, 1]
    assert table.labels(0.1).tolist() == [0, 1, 0, 0, 0, 0]
    ids = torch.tensor([[0, 1], [5, 3]])
    assert table.rare(ids).tolist() == [[False, True], [True, False]]
    tied = FrequencyTable(["a", "b", "c", "d"], [3, 3, 3, 3])
    assert tied.labels(0.5).tolist() == [1, 1, 0, 0]


def test_bad_input_is_named(frequency_table: FrequencyTable, tokenizer: BertTokenizer, tmp_path: Path) -> None:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    cases = [
        (lambda: FrequencyTable.count([], tokenizer), "texts is empty"),
        (lambda: FrequencyTable.count(["", ""], tokenizer), "no token"),
        (lambda: FrequencyTable.count("a string", tokenizer), "'a string'"),
        (lambda: FrequencyTable.count([{"sentence": "x"}], tokenizer), r"dataset\['sentence'\]"),
        (lambda: FrequencyTable.count([None], tokenizer), "NoneType: None"),
        (lambda: FrequencyTable.count(["a"], tokenizer, batch_size=0), "batch_size .* 0"),
        (lambda: FrequencyTable.count(["a"], tokenizer, num_processes=1.5), "num_processes .* 1.5"),
        (lambda: frequency_table.labels(0), "low_frequency_ratio .* 0"),
        (lambda: frequency_table.labels(1.0), "low_frequency_ratio .* 1.0"),
        (lambda: frequency_table.save(tmp_path / "x", "pickle"), "'pickle'"),
        (lambda: FrequencyTable(["a\nb"], [1]).save(tmp_path / "x.tsv"), r"'a\\nb'"),
        (lambda: FrequencyTable(["a"], [1, 2]), r"\(2,\)"),
        (lambda: FrequencyTable(["a"], [-1]), "-1"),
        (lambda: frequency_table + FrequencyTable(["a"], [1]), r"id 0 is '\[PAD\]' here and 'a' there"),
        (
            lambda: frequency_table + FrequencyTable(frequency_table.tokens[:-1], frequency_table.counts[:-1]),
            "ids here",
        ),
        (lambda: FrequencyTable.from_file(write("a.tsv", "the\t1\nxyz\t3\n"), tokenizer), "'xyz'"),
        (lambda: FrequencyTable.from_file(write("b.tsv", "the\tmany\n")), "the<TAB>many"),
        (lambda: FrequencyTable.from_file(write("c.tsv", "the\t1\nthe\t2\n")), "1 repeated"),
        (lambda: FrequencyTable.from_file(write("d.tsv", "")), "0 rows"),
        (lambda: FrequencyTable.from_file(write("e.json", '{"the": 1, "a"')), "not a complete JSON"),
        (lambda: FrequencyTable.from_file(write("i.json", '{"the": 1, "the": 2}')), "each token once, got 'the' twice"),
        (lambda: FrequencyTable.from_file(write("j.json", '{"format": "st-extras frequency table"}')), "lacks counts"),
        (lambda: FrequencyTable.from_file(write("f.json", '{"the": "1"}')), "'the': '1'"),
        (lambda: FrequencyTable.from_wordfreq(tokenizer, "xx"), "'xx'"),
    ]
    for action, message in cases:
        with pytest.raises(ValueError, match=message):
            action()
    with pytest.raises(TypeError):
        frequency_table + 1


def test_another_tokenizers_table_is_refused(
    frequency_table: FrequencyTable, tokenizer: BertTokenizer, tmp_path: Path
) -> None:
    frequency_table.check_tokenizer(tokenizer)
    frequency_table.save(tmp_path / "table.json")
    tokenizer.add_tokens(["moor"])
    with pytest.raises(ValueError, match="same vocabulary"):
        frequency_table.check_tokenizer(tokenizer)
    with pytest.raises(ValueError, match="same vocabulary"):
        FrequencyTable.load(tmp_path / "table.json", tokenizer)


def test_wordfreq_gives_plausible_counts(tokenizer: BertTokenizer) -> None:
    pytest.importorskip("wordfreq")
    table = FrequencyTable.from_wordfreq(tokenizer)
    count = {token: int(n) for token, n in zip(table.tokens, table.counts, strict=True)}
    assert count["the"] > count["dog"] > count["carrots"] > 0
    assert count[","] == max(count.values())


def test_bookcorpus_labels_agree_with_the_sorted_counts(data_folder: Path) -> None:
    table = FrequencyTable.from_file(data_folder / "bookcorpus_bert_base_uncased.tsv.gz")
    labels = table.labels(0.5)
    counts = table.counts
    seen = counts[counts > 0].sort().values
    middle = seen[len(seen) // 2]  # the authors call low what lies below it, and nothing ties with it here
    assert len(table) == 30522
    assert table.num_seen == 27528
    assert (labels == (counts < middle).long()).all()
    assert labels[(counts > 0)].sum() == len(seen) // 2


def test_files_that_cannot_be_read_are_named(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    packed = gzip.compress(b"the\t5\ncat\t3\n" * 100)
    for name, content, message in (
        ("cut.txt.gz", packed[:-9], "not a whole gzip file"),
        ("broken.txt.gz", packed[:20] + b"\xff" * 9 + packed[29:], "not a whole gzip file"),
        ("latin.txt", "the cat\ncaf\u00e9\n".encode("latin-1"), r"latin\.txt, line 2: not UTF-8"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        for read in (FrequencyTable.from_file, lambda path: FrequencyTable.count(path, tokenizer)):
            with pytest.raises(ValueError, match=message):
                read(path)


@pytest.mark.parametrize("content", ["the\t5\ncat\t3\n", '{"the": 5, "cat": 3}'])
def test_a_byte_order_mark_is_no_token(tokenizer: BertTokenizer, tmp_path: Path, content: str) -> None:
    path = tmp_path / "table"
    path.write_text(content, encoding="utf-8-sig")
    table = FrequencyTable.from_file(path, tokenizer)
    assert [int(table.counts[tokenizer.convert_tokens_to_ids(token)]) for token in ("the", "cat")] == [5, 3]
