import json
import os

import pytest

from st_extras.text.frequency import FrequencyTable


@pytest.mark.parametrize(
    ("name", "format"),
    [("t.json", None), ("t.json.gz", None), ("table", None), ("t.tsv", None), ("T.TSV.GZ", None), ("a.json", "json")],
)
def test_round_trip(frequency_table, tokenizer, tmp_path, name, format):
    frequency_table.save(tmp_path / name, format)
    for again in (FrequencyTable.load(tmp_path / name, tokenizer), FrequencyTable.from_file(tmp_path / name)):
        assert again.tokens == frequency_table.tokens
        assert again.counts.tolist() == frequency_table.counts.tolist()
    if format is None and "tsv" not in name.lower():
        assert again.num_texts == frequency_table.num_texts
    assert os.listdir(tmp_path).count(name) == 1
    assert not [entry for entry in os.listdir(tmp_path) if entry.startswith(".")]


def test_the_authors_json_in_any_order_finds_its_ids(frequency_table, tokenizer, tmp_path):
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


@pytest.mark.parametrize("content", ["the\t5\ncat\t3\n", '{"the": 5, "cat": 3}'])
def test_a_byte_order_mark_is_no_token(tokenizer, tmp_path, content):
    path = tmp_path / "table"
    path.write_text(content, encoding="utf-8-sig")
    table = FrequencyTable.from_file(path, tokenizer)
    assert [int(table.counts[tokenizer.convert_tokens_to_ids(token)]) for token in ("the", "cat")] == [5, 3]


def test_a_token_may_hold_a_tab(tmp_path):
    table = FrequencyTable(["a\tb", "{", "c"], [1, 2, 3])
    table.save(tmp_path / "t.tsv")
    again = FrequencyTable.from_file(tmp_path / "t.tsv")
    assert (again.tokens, again.counts.tolist()) == (table.tokens, [1, 2, 3])


@pytest.fixture
def table_file(tmp_path):
    FrequencyTable(["a", None, "b"], [1, 0, 2], num_texts=3).save(tmp_path / "table.json")
    return tmp_path / "table.json"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "version 2, got 3"),
        ({"vocabulary_size": 4}, "the file was modified"),
        ({"tokens": ["b", None, "a"]}, "the file was modified"),
        ({"counts": [1, 0, 2.5]}, "a whole number from 0"),
        ({"counts": [1, 0]}, "one entry for each"),
        ({"counts": [0, 0, 0]}, "at least one count > 0"),
    ],
)
def test_a_changed_table_is_refused_by_name(table_file, changes, message):
    table_file.write_text(json.dumps(json.loads(table_file.read_text()) | changes))
    with pytest.raises(ValueError, match=rf"table\.json.*{message}"):
        FrequencyTable.from_file(table_file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": -1, "b": 2}', "'a': -1"),
        ('{"the": 1, "the": 2}', "once, got 'the' twice"),
        ('{"format": "st-extras frequency table", "version": 2}', "one without 'tokens'"),
        ("a\t-1\n", "line 1: expected token<TAB>count"),
        ("a\t1" + "0" * 30 + "\n", "line 1"),
        ("a\t1\n\nthe\tmany\n", "line 3: .* 'the<TAB>many'"),
        ("the\t1\nthe\t2\n", "each token once, got 'the' twice"),
        ("", "at least one line token<TAB>count, got none"),
    ],
)
def test_files_that_are_no_table_are_refused_by_name(tmp_path, content, message):
    path = tmp_path / "list"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"list.*{message}"):
        FrequencyTable.from_file(path)


def test_what_cannot_be_written_or_has_another_vocabulary(tokenizer, tmp_path):
    table = FrequencyTable(["a\nb"], [1])
    with pytest.raises(ValueError, match=r"'a\\nb'"):
        table.save(tmp_path / "x.tsv")
    with pytest.raises(ValueError, match=r"format must be .* got 'pickle'"):
        table.save(tmp_path / "x", "pickle")
    (tmp_path / "a.tsv").write_text("the\t1\nxyz\t3\n")
    with pytest.raises(ValueError, match="'xyz'"):
        FrequencyTable.from_file(tmp_path / "a.tsv", tokenizer)
    (tmp_path / "b.tsv").write_text("the\t1\ncat\t0\n")
    with pytest.raises(ValueError, match=r"as it lists counts of 0 too, got .* left out"):
        FrequencyTable.from_file(tmp_path / "b.tsv", tokenizer)


@pytest.mark.parametrize(("name", "format"), [("t.json", "table"), ("t.tsv", "tsv"), ("t.json", "json")])
def test_a_table_of_another_vocabulary_is_refused(frequency_table, tokenizer, tmp_path, name, format):
    frequency_table.save(tmp_path / name, format)
    tokenizer.add_tokens(["moor"])
    for read in (FrequencyTable.from_file, FrequencyTable.load):
        with pytest.raises(ValueError, match=rf"{name}.*vocabulary"):
            read(tmp_path / name, tokenizer)
