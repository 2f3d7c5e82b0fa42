"""Lines, fields and records of files: plain or packed, with errors that name the file and the line."""

import pytest

from st_extras.text.files import MAX_LINE, file_kind, parse_json, read_lines, read_records, read_tsv
from tests.helpers import write


@pytest.fixture(params=["a.tsv", "a.tsv.gz", "a.tsv.bz2", "a.tsv.xz"])
def path(request, tmp_path):
    return tmp_path / request.param


def test_lines_are_numbered_and_keep_their_ends(path):
    write(path, "\ufeffone\r\n\nthree\u2028\rthree\nlast".encode())
    assert list(read_lines(path)) == [(1, "one\r\n"), (2, "\n"), (3, "three\u2028\rthree\n"), (4, "last")]
    write(path, b"one\rtwo\r\r three")  # without line feeds
    assert [line.rstrip("\r") for _, line in read_lines(path)] == ["one", "two", "", " three"]
    write(path, ("x\r" * 2000 + "\n" + "y\r\nz").encode())
    assert [line.strip() for _, line in read_lines(path, max_line=1000)] == ["x"] * 2000 + ["y", "z"]

    if path.suffix != ".tsv":
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(ValueError, match=f"{path.name}: not a whole {path.suffix} file"):
            list(read_lines(path))


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_a_line_over_the_limit_is_refused(tmp_path, end):
    path = write(tmp_path / "a.tsv", b"one" + end + b"x" * (MAX_LINE + 1) + end)
    with pytest.raises(ValueError, match=r"a\.tsv, line 2: .* max_line"):
        list(read_lines(path))
    assert len(list(read_lines(path, max_line=2 * MAX_LINE))) == 2


@pytest.mark.parametrize(
    ("content", "line"),
    [("one\ntwo".encode("utf-16-le"), 1), ("one".encode("utf-16"), 1), (b"a\nt\0w\n", 2), (b"a\n\xed\xa0\x80\n", 2)],
)
def test_what_is_no_text_is_refused(tmp_path, content, line):
    with pytest.raises(ValueError, match=rf"a\.txt, line {line}: not UTF-8"):
        list(read_lines(write(tmp_path / "a.txt", content)))


def test_fields_and_records(tmp_path):
    path = write(tmp_path / "a.tsv", b'a\t"b\r\n\nc\t\n')
    assert list(read_tsv(path)) == [(1, ["a", '"b']), (2, [""]), (3, ["c", ""])]
    assert list(read_records(path)) == [(1, ["a", '"b']), (3, ["c", ""])]
    with pytest.raises(ValueError, match=r"a\.tsv, line 2"):
        list(read_tsv(path, at_least=2))
    write(path, b'a,b\n\n"1,\n2",x\n3\n')
    assert list(read_records(path, delimiter=",", quoted=True)) == [(1, ["a", "b"]), (3, ["1,\n2", "x"]), (5, ["3"])]
    for content in (b"a,b\n1,2\n1,2,3\n", b'a,b\n1,2\n1,"2\n3,4\n', b'a,b\n1,2\n"1" and,2\n'):
        with pytest.raises(ValueError, match=r"a\.tsv, line 3"):
            list(read_records(write(path, content), delimiter=",", quoted=True))


@pytest.mark.parametrize("text", ['{"a": 1', "[" * 100_000, "1" * 5000, '{"\\udfff": 1}', '{"a": {"b": 1, "b": 2}}'])
def test_json_that_would_be_guessed_is_refused(text):
    with pytest.raises(ValueError, match="file, line 3") as caught:
        parse_json(text, "file, line 3")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_the_case_of_a_name_does_not_decide_what_a_file_is():
    kinds = {
        "A.CSV": (".csv", ""), "a.Tsv.GZ": (".tsv", ".gz"), "C.ndjson": (".jsonl", ""), "a.gz": ("", ".gz"),
        "a.b.PARQUET": (".parquet", ""), "a.csv.old": ("", ""), "hf://datasets/a/b/*.Json": (".json", ""),
    }  # fmt: skip
    assert {name: file_kind(name) for name in kinds} == kinds


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (b"PK\x03\x04\x14\x00", "zip"),
        (bytes.fromhex("1f8b08"), "gzip"),
        (bytes.fromhex("28b52ffd"), "zstd file: unpack it"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, start, found):
    with pytest.raises(ValueError, match=rf"book\.xlsx must .* got .*{found}"):
        list(read_lines(write(tmp_path / "book.xlsx", start + b"rest")))


@pytest.mark.parametrize(
    ("rows", "warned"),
    [('1\t"he said ""no"""', True), ('"one\nand two"\t1', True), ('1\t"one', False), ('1\t5" and 6"', False)],
)
def test_quotes_of_pandas_in_a_tsv_are_warned_of_once(tmp_path, rows, warned, caplog):
    list(read_records(write(tmp_path / "a.tsv", f"id\ttext\n{rows}\n{rows}\n")))
    assert len(caplog.messages) == warned
