"""Lines of files: plain or packed, with errors that name the file and the line."""

import bz2
import codecs
import lzma

import pytest

from st_extras.text import files
from st_extras.text.corpus import read_sentences
from st_extras.text.files import file_kind, parse_json, read_lines
from tests.helpers import write


@pytest.fixture(params=["a.tsv", "a.tsv.gz", "a.tsv.bz2", "a.tsv.xz"])
def path(request, tmp_path):
    return tmp_path / request.param


def test_lines_are_numbered_and_keep_their_ends(path):
    write(path, "\ufeffone\r\n\nthree\u2028\rthree\nlast".encode())
    assert list(read_lines(path)) == [(1, "one\r\n"), (2, "\n"), (3, "three\u2028\rthree\n"), (4, "last")]
    write(path, b"one\rtwo\r\r three")  # without line feeds
    assert [line.rstrip("\r") for _, line in read_lines(path)] == ["one", "two", "", " three"]
    if path.suffix != ".tsv":
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(ValueError, match=f"{path.name}: not a whole {path.suffix} file"):
            list(read_lines(path))
        path.write_bytes(path.read_bytes()[:12] + b"\xff" * 2000)
        with pytest.raises(ValueError, match=f"{path.name}: not a whole {path.suffix} file"):
            list(read_lines(path))


def test_a_line_over_the_limit_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tsv", "one\n" + "x" * 100)
    monkeypatch.setattr(files, "MAX_LINE", 100)
    assert len(list(read_lines(path))) == 2
    monkeypatch.setattr(files, "MAX_LINE", 99)
    with pytest.raises(ValueError, match=r"a\.tsv, line 2: .* at most 99"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [(codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF8, "utf8"), (b"", "utf8")],
)
def test_a_byte_order_mark_names_the_encoding(tmp_path, mark, encoding):
    path = write(tmp_path / "a.txt", mark + "één\r\ntwee\n".encode(encoding))
    assert list(read_lines(path)) == [(1, "één\r\n"), (2, "twee\n")]


def test_byte_order_marks_before_a_line_are_no_text(tmp_path):
    """As where files were joined, or a program wrote one before that of another."""
    joined = b"".join(text.encode("utf-8-sig") for text in ("", "one\n", "two\n"))
    assert [line for _, line in read_lines(write(tmp_path / "a.txt", joined))] == ["one\n", "two\n"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("one\ntwo".encode("utf-16-le"), "line 1: .*UTF-16"), (b"a\nt\0w\n", "line 2: .*NUL"),
        ("one".encode("utf-16")[:-1], "line 1: not UTF-16"), (b"a\n\xed\xa0\x80\n", "line 2: .*0xed"),
        ("ja\ncafé\n".encode("latin-1"), "line 2: not UTF-8, got the byte 0xe9: .*iconv -f cp1252 .*Latin-1"),
    ],
)  # fmt: skip
def test_what_is_no_utf_8_is_refused_with_its_remedy(tmp_path, content, message):
    with pytest.raises(ValueError, match=rf"a\.txt, {message}"):
        list(read_lines(write(tmp_path / "a.txt", content)))


@pytest.mark.parametrize("text", ['{"a": 1', "[" * 100_000, "1" * 5000, '{"\\udfff": 1}', f'["{"x" * 99}\\ud800"]'])
def test_json_that_would_be_guessed_is_refused(text):
    with pytest.raises(ValueError, match="file, line 3") as caught:
        parse_json(text, "file, line 3")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_the_case_of_a_name_does_not_decide_what_a_file_is():
    kinds = {
        "A.CSV": (".csv", ""), "a.Tsv.GZ": (".tsv", ".gz"), "C.ndjson": (".jsonl", ""), "a.gz": ("", ".gz"),
        "a.b.PARQUET": (".parquet", ""), "a.csv.old": ("", ""), "data/*.Json": (".json", ""),
    }  # fmt: skip
    assert {name: file_kind(name) for name in kinds} == kinds


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (b"PK\x03\x04\x14\x00", "zip"),
        (bytes.fromhex("1f8b08"), "gzip"),
        (bytes.fromhex("28b52ffd"), "zstd file: unpack it"),
        (bytes.fromhex("04224d18"), "lz4 file: unpack it"),
        (bytes.fromhex("d0cf11e0"), "a document of an office program"),
        (bz2.compress(b"one"), "a bzip2 file without .bz2"),
        (lzma.compress(b"one"), "an xz file without .xz"),
        (b"PAR1\x15", "a parquet file"),
        (b"%PDF-1.7", "a PDF"),
        (b"corpus.jsonl".ljust(257, b"\0") + b"ustar  \0", "tar archive: unpack it"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, start, found):
    with pytest.raises(ValueError, match=rf"book\.xlsx must .* got .*{found}"):
        list(read_lines(write(tmp_path / "book.xlsx", start + b"rest")))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.html", "an HTML page"), ("a.HTM", "an HTML page"), ("a.rst", "reStructuredText"), ("a.ipynb", "a notebook"),
        ("a.yaml", "YAML"), ("a.yml", "YAML"), ("a.adoc", "AsciiDoc"), ("a.html.gz", "an HTML page"),
    ],
)  # fmt: skip
def test_a_single_file_of_markup_is_refused_by_its_name(tmp_path, name, what):
    write(tmp_path / name, "one\ntwo\n")
    for source in (tmp_path / name, f"{tmp_path}/*"):
        with pytest.raises(ValueError, match=rf"{name} must be a text file or table, .* got {what}: save its text as"):
            read_sentences(source)
    with pytest.raises(ValueError, match="is a folder without"):
        read_sentences(tmp_path)
