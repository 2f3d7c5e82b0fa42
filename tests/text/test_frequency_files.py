from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from transformers import BertTokenizer

from st_extras.text import frequency_files
from st_extras.text.frequency import FrequencyTable


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

    monkeypatch.setattr(frequency_files.os, "fsync", killed)
    for target in (path, tmp_path / "new.json"):
        with pytest.raises(KeyboardInterrupt):
            (frequency_table + frequency_table).save(target)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path).count("new.json") == 0
    assert not [entry for entry in os.listdir(tmp_path) if entry.startswith((".table", ".new"))]


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


def test_bad_files_are_named(frequency_table: FrequencyTable, tokenizer: BertTokenizer, tmp_path: Path) -> None:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    cases = [
        (lambda: frequency_table.save(tmp_path / "x", "pickle"), "format must be .* got 'pickle'"),
        (lambda: FrequencyTable(["a\nb"], [1]).save(tmp_path / "x.tsv"), r"'a\\nb'"),
        (lambda: FrequencyTable.from_file(write("a.tsv", "the\t1\nxyz\t3\n"), tokenizer), "'xyz'"),
        (lambda: FrequencyTable.from_file(write("b.tsv", "a\t1\n\nthe\tmany\n")), r"b\.tsv, line 3: .* 'the<TAB>many'"),
        (lambda: FrequencyTable.from_file(write("c.tsv", "the\t1\nthe\t2\n")), "each token once, got 'the' twice"),
        (lambda: FrequencyTable.from_file(write("d.tsv", "")), "at least one line token<TAB>count, got none"),
        (lambda: FrequencyTable.from_file(write("e.json", '{"the": 1, "a"')), "not a complete JSON"),
        (lambda: FrequencyTable.from_file(write("i.json", '{"the": 1, "the": 2}')), "each token once, got 'the' twice"),
        (
            lambda: FrequencyTable.from_file(write("j.json", '{"format": "st-extras frequency table"}')),
            "without counts",
        ),
        (lambda: FrequencyTable.from_file(write("f.json", '{"the": "1"}')), "'the': '1'"),
    ]
    for action, message in cases:
        with pytest.raises(ValueError, match=message):
            action()


def test_a_token_may_hold_a_tab(tmp_path: Path) -> None:
    table = FrequencyTable(["a\tb", "{", "c"], [1, 2, 3])
    table.save(tmp_path / "t.tsv")
    again = FrequencyTable.from_file(tmp_path / "t.tsv")
    assert (again.tokens, again.counts.tolist()) == (table.tokens, [1, 2, 3])
