"""Rows in a folder: whole after a kill, checked when they are read, written by one process at a time."""

import errno
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from st_extras.files import (
    RowFile,
    checked_rows,
    map_rows,
    one_writer,
    read_checked_json,
    require_whole,
    write_checked_json,
)

KIND = "rows of a test, version 1"
FIELDS = [("key", "S4"), ("vector", "<f4", (3,))]


def differing(known: dict[str, Any], given: dict[str, Any]) -> list[str]:
    return sorted(key for key in known.keys() | given.keys() if known.get(key) != given.get(key))


def rows(*numbers: int, width: int = 3) -> np.ndarray:
    vectors = np.array([[number] * width for number in numbers], np.float32)
    return checked_rows([FIELDS[0], ("vector", "<f4", (width,))], key=[b"%d" % n for n in numbers], vector=vectors)


def written(path: Path, *blocks: np.ndarray, settings: dict[str, Any] | None = None, **state: Any) -> None:
    with RowFile.open(path, KIND, settings or {"a": 1}, differing) as file:
        for block in blocks:
            file.append(block)
        file.commit(**state)


@pytest.mark.parametrize("in_folder", [False, True])
def test_rows_are_appended_and_read(tmp_path, in_folder):
    folder = tmp_path / "rows" if in_folder else None
    with RowFile.open(folder, KIND, {"a": 1}, differing) as file:
        assert list(file.blocks(2)) == []
        file.append(rows(1, 2))
        file.append(rows(3))
        file.commit(read=7)
        if folder is None:
            assert file.rows()["vector"][:, 0].tolist() == [1, 2, 3]
            return
    mapped, settings, state = map_rows(folder, KIND)
    assert isinstance(mapped, np.memmap)
    assert (mapped["vector"][:, 2].tolist(), settings, state) == ([1, 2, 3], {"a": 1}, {"read": 7})
    assert mapped["key"].tolist() == [b"1", b"2", b"3"]
    with RowFile.open(folder, KIND, {"a": 1}, differing) as file:
        assert [block["vector"][:, 0].tolist() for block in file.blocks(2)] == [[1, 2], [3]]
        assert file.state == {"read": 7}
        file.append(rows(4))
        file.commit(read=8)
    assert map_rows(folder, KIND)[0]["vector"][:, 0].tolist() == [1, 2, 3, 4]


def test_what_was_not_committed_is_cut_off(tmp_path):
    path = tmp_path / "rows"
    written(path, rows(1, 2))
    with RowFile.open(path, KIND, {"a": 1}, differing) as file:
        file.append(rows(3, 4))
    (path / ".rows.json.1.partial").write_text("half")  # of a process that was killed
    assert len(map_rows(path, KIND)[0]) == 2
    with RowFile.open(path, KIND, {"a": 1}, differing) as file:
        assert [block["vector"][:, 0].tolist() for block in file.blocks(9)] == [[1, 2]]
        file.append(rows(5))
        file.commit()
    assert map_rows(path, KIND)[0]["vector"][:, 0].tolist() == [1, 2, 5]
    assert sorted(file.name for file in path.iterdir()) == ["rows.bin", "rows.json"]


@pytest.mark.parametrize("place", ["key", "vector", "check"])
def test_a_damaged_row_is_seen(tmp_path, place):
    path = tmp_path / "rows"
    written(path, rows(1, 2, 3))
    size, offset = rows(1).dtype.itemsize, rows(1).dtype.fields[place][1]
    content = bytearray((path / "rows.bin").read_bytes())
    content[size + offset] ^= 1
    (path / "rows.bin").write_bytes(content)
    mapped = map_rows(path, KIND)[0]
    assert require_whole(mapped[[0, 2]], path)["vector"][1, 0] == 3
    message = rf"^'{re.escape(str(path))}' holds a damaged row: delete the folder and start again\.$"
    with pytest.raises(ValueError, match=message):
        require_whole(mapped, path)
    with RowFile.open(path, KIND, {"a": 1}, differing) as file, pytest.raises(ValueError, match=message):
        list(file.blocks(2))


@pytest.mark.parametrize(("file", "kept"), [("rows.bin", 9), ("rows.bin", 0), ("rows.json", 40), ("rows.json", 0)])
def test_a_shortened_file_is_refused_by_name(tmp_path, file, kept):
    path = tmp_path / "rows"
    written(path, rows(1, 2))
    (path / file).write_bytes((path / file).read_bytes()[:kept])
    for read in (lambda: map_rows(path, KIND), lambda: written(path, rows(3))):
        with pytest.raises(ValueError, match=rf"^'{re.escape(str(path / file))}' must .*: delete the folder and .*\.$"):
            read()


def test_what_a_folder_refuses(tmp_path):
    path = tmp_path / "rows"
    written(path, rows(1), settings={"a": 1, "b": None})
    with pytest.raises(ValueError, match=r"same settings, got .* with another a, c: take a new folder\.$"):
        written(path, rows(1), settings={"a": 2, "b": None, "c": 1})
    with pytest.raises(ValueError, match=r"must be another kind, as it was written, got a damaged or another file"):
        map_rows(path, "another kind")
    with pytest.raises(ValueError, match=r"must get rows of .*\(4,\)"):
        written(path, rows(1, width=4), settings={"a": 1, "b": None})
    with pytest.raises(ValueError, match=r"^folder must be new or empty, in an existing folder"):  # noqa: SIM117
        with RowFile.open(path, KIND, {"a": 1, "b": None}, differing, new=True):
            pass
    (tmp_path / "rows.bin").write_text("somebody's")
    for wrong in (tmp_path, tmp_path / "rows.bin", tmp_path / "none" / "rows"):
        with pytest.raises(ValueError, match=r"^folder must be new or empty or one of an earlier call, in an existing"):
            written(wrong, rows(1))
    assert (tmp_path / "rows.bin").read_text() == "somebody's"
    for none in (tmp_path, tmp_path / "none", tmp_path / "rows.bin"):
        with pytest.raises(ValueError, match="got another one or an empty one"):
            map_rows(none, KIND)


def test_one_process_writes_at_a_time(tmp_path):
    path = tmp_path / "rows"
    with RowFile.open(path, KIND, {"a": 1}, differing) as file:
        file.append(rows(1))
        with pytest.raises(ValueError, match=r"^folder must have one writer, got .*: wait for it, or take another"):
            written(path, rows(2))
        file.commit()
    written(path, rows(2))
    assert len(map_rows(path, KIND)[0]) == 2
    with one_writer(path), one_writer(tmp_path):
        pass


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    path = tmp_path / "rows"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with RowFile.open(path, KIND, {"a": 1}, differing) as file:
        file.append(rows(1))
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left.*: free space there.*rows\.bin"):
            file.commit()


def test_checked_json(tmp_path):
    path = tmp_path / "a.json"
    assert read_checked_json(path, "kind", "again") == {}
    write_checked_json(path, "kind", {"name": "é", "n": [1, None]})
    assert read_checked_json(path, "kind", "again") == {"name": "é", "n": [1, None]}
    text = path.read_text()
    for damaged in (text.replace("1,", "2,"), text.replace("kind", "kinds"), "[]", "{}", "3", text[:-1]):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=rf"^'{re.escape(str(path))}' must be kind, .*: again\.$"):
            read_checked_json(path, "kind", "again")
