from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from st_extras.text.files import read_lines, read_tsv


@pytest.fixture(params=["a.tsv", "a.tsv.gz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / request.param


def write(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def test_lines_are_numbered_and_keep_their_ends(path: Path) -> None:
    write(path, "\ufeffone\r\n\nthree\u2028\rthree\nlast".encode())
    expected = [(1, "one\r\n"), (2, "\n"), (3, "three\u2028\rthree\n"), (4, "last")]
    assert list(read_lines(path)) == list(read_lines(str(path))) == expected


def test_fields_of_each_line(path: Path) -> None:
    write(path, b'a\t"b\r\n\nc\t\td\n')
    assert list(read_tsv(path)) == [(1, ["a", '"b']), (2, [""]), (3, ["c", "", "d"])]


def test_a_line_with_too_few_fields_is_named(path: Path) -> None:
    write(path, b"a\tb\nc\td\te\nf\n")
    rows = read_tsv(path, at_least=2)
    assert [next(rows), next(rows)] == [(1, ["a", "b"]), (2, ["c", "d", "e"])]
    with pytest.raises(ValueError, match=rf"{path.name}, line 3: 1 tab-separated fields, expected 2\."):
        next(rows)


def test_a_line_that_is_not_utf8_is_named(path: Path) -> None:
    write(path, b"one\tone\ncaf\xe9s\ttwo\n")
    with pytest.raises(ValueError, match=rf"{path.name}, line 2: not UTF-8 .*byte 3"):
        list(read_tsv(path))
