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

    monkeypatch.setattr("os.fsync", killed)
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
        (lambda: FrequencyTable.from_file(write("e.json", '{"the": 1, "a"')), r"e\.json: not JSON"),
        (
            lambda: FrequencyTable.from_file(write("i.json", '{"the": 1, "the": 2}')),
            r"i\.json .* once, got 'the' twice",
        ),
        (
            lambda: FrequencyTable.from_file(write("j.json", '{"format": "st-extras frequency table", "version": 1}')),
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


@pytest.fixture
def table_file(tmp_path: Path) -> Path:
    FrequencyTable(["a", None, "b"], [1, 0, 2], num_texts=3).save(tmp_path / "table.json")
    return tmp_path / "table.json"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "version 1 to 2, got 3"),
        ({"version": "1"}, "version 1 to 2, got '1'"),
        ({"version": True}, "version 1 to 2, got True"),
        ({"vocabulary_size": 4}, "vocabulary that its size and hash state"),
        ({"tokens": ["b", None, "a"]}, "vocabulary that its size and hash state"),
        ({"tokens": ["a", None, 5]}, "list of strings or null"),
        ({"tokens": "ab"}, "list of strings or null"),
        ({"tokens": ["a", None, "a"]}, "each token once"),
        ({"counts": [1, 0, -2]}, "one whole number"),
        ({"counts": [1, 0, 2.5]}, "one whole number"),
        ({"counts": [1, 0, True]}, "one whole number"),
        ({"counts": [1, 0, 2**63]}, "one whole number"),
        ({"counts": [1, 0]}, "one whole number"),
        ({"counts": [0, 0, 0]}, "at least one count > 0"),
        ({"counts": [2**62, 2**62, 2**62]}, "sum below"),
        ({"num_texts": -1}, "num_texts, got -1"),
    ],
)
def test_a_changed_table_is_refused_by_name(table_file: Path, changes: dict[str, object], message: str) -> None:
    table_file.write_text(json.dumps(json.loads(table_file.read_text()) | changes))
    with pytest.raises(ValueError, match=rf"table\.json.*{message}"):
        FrequencyTable.from_file(table_file)


def test_a_table_of_version_1_is_read(table_file: Path) -> None:
    content = json.loads(table_file.read_text())
    old = {key: content[key] for key in ("format", "num_texts", "tokens", "counts")} | {"version": 1}
    table_file.write_text(json.dumps(old))
    again = FrequencyTable.from_file(table_file)
    assert (again.tokens, again.counts.tolist(), again.num_texts) == (("a", None, "b"), [1, 0, 2], 3)


@pytest.mark.parametrize(
    "content",
    [
        '{"a": -1, "b": 2}',
        '{"a": 1.0}',
        '{"a": true}',
        '{"a": 1',
        '{"a": 1' + "0" * 5000 + "}",
        "[" * 100_000,
        '{"\\ud800": 1}',
        '{"\\ud83d\\ude00": 1, "\\ude00": 2}',
        "a\t-1\n",
        "a\t1" + "0" * 30 + "\n",
        "a\0\t1\n",
    ],
)
def test_other_files_of_nonsense_are_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "list"
    path.write_text(content)
    with pytest.raises(ValueError, match="list"):
        FrequencyTable.from_file(path)


@pytest.mark.parametrize(("name", "format"), [("t.json", "table"), ("t.tsv", "tsv"), ("t.json", "json")])
def test_a_table_of_another_vocabulary_is_refused(
    frequency_table: FrequencyTable, tokenizer: BertTokenizer, tmp_path: Path, name: str, format: str
) -> None:
    frequency_table.save(tmp_path / name, format)
    tokenizer.add_tokens(["moor"])
    for read in (FrequencyTable.from_file, FrequencyTable.load):
        with pytest.raises(ValueError, match=rf"{name}.*vocabulary"):
            read(tmp_path / name, tokenizer)


def test_a_packed_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frequency_files, "_MAX_SIZE", 1000)
    for name, content in (("lines.gz", b"a\t1\n" * 1000), ("line.gz", b"a" * 5000)):
        (tmp_path / name).write_bytes(gzip.compress(content))
        with pytest.raises(ValueError, match=rf"{name}.* at most 1000"):
            FrequencyTable.from_file(tmp_path / name)
