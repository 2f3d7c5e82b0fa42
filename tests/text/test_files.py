import gzip

import pytest

from st_extras.text.files import MAX_LINE, file_kind, parse_json, read_lines, read_records, read_tsv
from tests.helpers import write


@pytest.fixture(params=["a.tsv", "a.tsv.gz", "a.tsv.bz2", "a.tsv.xz"])
def path(request, tmp_path):
    return tmp_path / request.param


def test_lines_are_numbered_and_keep_their_ends(path):
    write(path, "\ufeffone\r\n\nthree\u2028\rthree\nlast".encode())
    expected = [(1, "one\r\n"), (2, "\n"), (3, "three\u2028\rthree\n"), (4, "last")]
    assert list(read_lines(path)) == list(read_lines(str(path))) == expected


def test_fields_of_each_line(path):
    write(path, b'a\t"b\r\n\nc\t\td\n')
    assert list(read_tsv(path)) == [(1, ["a", '"b']), (2, [""]), (3, ["c", "", "d"])]


def test_a_line_with_too_few_fields_is_named(path):
    write(path, b"a\tb\nc\td\te\nf\n")
    rows = read_tsv(path, at_least=2)
    assert [next(rows), next(rows)] == [(1, ["a", "b"]), (2, ["c", "d", "e"])]
    with pytest.raises(ValueError, match=rf"{path.name}, line 3: 1 tab-separated fields, expected 2\."):
        next(rows)


@pytest.mark.parametrize("content", [b"one\rtwo\r\r three", b"one\rtwo\r\r three\r"])
def test_a_file_without_line_feeds_ends_its_lines_at_carriage_returns(path, content):
    write(path, content)
    assert [line.rstrip("\r") for _, line in read_lines(path)] == ["one", "two", "", " three"]


def test_carriage_returns_before_other_ends(path):
    write(path, ("x\r" * 2000 + "\n" + "y\r\nz").encode())
    lines = [line.rstrip("\r\n") for _, line in read_lines(path, max_line=1000)]
    assert lines == ["x"] * 2000 + ["y", "z"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("one\ntwo".encode("utf-16-le"), "line 1: not UTF-8 text .a NUL at byte 1"),
        ("one".encode("utf-16"), "line 1: not UTF-8"),
        (b"one\nt\0wo\n", "line 2: not UTF-8 text .a NUL at byte 1"),
        (b"one\n\xed\xa0\x80\n", "line 2: not UTF-8"),  # a lone surrogate
    ],
)
def test_what_is_no_text_is_refused(path, content, message):
    write(path, content)
    with pytest.raises(ValueError, match=rf"{path.name}, {message}"):
        list(read_lines(path))


def test_a_line_over_the_limit_is_refused(path):
    for end in (b"\n", b"\r"):
        write(path, b"one" + end + b"x" * (MAX_LINE - 1) + end)
        assert len(list(read_lines(path))) == 2
        write(path, b"one" + end + b"x" * (MAX_LINE + 1) + end)
        with pytest.raises(ValueError, match=rf"{path.name}, line 2: .* at most {MAX_LINE} bytes.* max_line"):
            list(read_lines(path))
        assert len(list(read_lines(path, max_line=2 * MAX_LINE))) == 2
    write(path, b"one\ntwo\n")
    with pytest.raises(ValueError, match=r"line 1: .* at most 2 bytes"):
        next(read_lines(path, max_line=2))


def test_records(path):
    write(path, b'a,b\n\n"1,\n2",x\n3\n')
    assert list(read_records(path, delimiter=",", quoted=True)) == [(1, ["a", "b"]), (3, ["1,\n2", "x"]), (5, ["3"])]
    write(path, b'a\tb\n\n"1\tx\n')
    assert list(read_records(path)) == [(1, ["a", "b"]), (3, ['"1', "x"])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n1,2,3\n", "line 3: .* at most 2 fields, one for each column, got 3"),
        (b'a,b\n1,2\n1,"2\n3,4\n', "line 3: a quote is opened and never closed"),
        (b'a,b\n1,2\n"1" and,2\n', "line 3: .*: double a quote"),
    ],
)
def test_broken_records_are_named(path, content, message):
    write(path, content)
    with pytest.raises(ValueError, match=rf"{path.name}, {message}"):
        list(read_records(path, delimiter=",", quoted=True))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1',
        "[" * 100_000,
        "1" * 5000,
        '"\\ud800"',
        '{"\\udfff": 1}',
        '["\\ude00\\ud83d"]',
        '{"a": {"b": 1, "b": 2}}',
        '"\n"',
    ],
)
def test_json_that_would_be_guessed_is_refused(text):
    with pytest.raises(ValueError, match=r"file, line 3.*\.$") as caught:
        parse_json(text, "file, line 3")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_json_is_read():
    text = '{"a": ["\\ud83d\\ude00", "\\\\ud800", null], "b": {"a": 2.5}}'
    assert parse_json(text, "file") == {"a": ["\U0001f600", "\\ud800", None], "b": {"a": 2.5}}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("A.CSV", (".csv", "")), ("a.Tsv.GZ", (".tsv", ".gz")), ("C.ndjson", (".jsonl", "")), ("a.JSON", (".json", "")),
        ("a.b.PARQUET", (".parquet", "")), ("a.gz", ("", ".gz")), ("a", ("", "")), ("a.csv.old", ("", "")),
        ("hf://datasets/a/b/*.Parquet", (".parquet", "")),
    ],
)  # fmt: skip
def test_the_case_of_a_name_does_not_decide_what_a_file_is(name, kind):
    assert file_kind(name) == kind


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"PK\x03\x04\x14\x00", "a zip archive or a spreadsheet"),
        (b"PAR1\x15\x04", "a parquet file"),
        (gzip.compress(b"one", mtime=0), "a gzip file without .gz in its name"),
        (b"%PDF-1.7", "a PDF"),
        (bytes.fromhex("28b52ffd"), "a zstd file: unpack it"),
    ],
)
def test_a_file_of_another_kind_is_told_what_is_read(tmp_path, start, message):
    (tmp_path / "book.xlsx").write_bytes(start + b"rest")
    with pytest.raises(
        ValueError, match=rf"book\.xlsx must be a text, \.jsonl, \.csv or \.tsv file .*, got {message}\."
    ):
        list(read_lines(tmp_path / "book.xlsx"))


@pytest.mark.parametrize(
    ("rows", "warned"),
    [
        ('1\t"he said ""no"""', True), ('"one\nand two"\t1', True), ('1\t"one', False), ('1\t"three"', False),
        ('1\t5" and 6"', False),
    ],
)  # fmt: skip
def test_quotes_of_pandas_in_a_tsv_are_warned_of_once(tmp_path, rows, warned, caplog):
    (tmp_path / "a.tsv").write_text(f"id\ttext\n{rows}\n{rows}\n")
    list(read_records(tmp_path / "a.tsv"))
    assert len(caplog.messages) == warned
    assert ("line 2: a field in double quotes" in caplog.text) == warned
