"""Files that are whole or not there; what is wrong with one is one sentence with its path and a remedy."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from st_extras import files
from st_extras.files import (
    Expected,
    read_checked_json,
    read_tensors,
    whole_file,
    write_checked_json,
    write_tensors,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def test_a_whole_file_appears_when_its_block_ends(path):
    with whole_file(path) as partial:
        partial.write_text("1 2")
        assert not path.exists()
    assert path.read_text() == "1 2"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_keeps_the_earlier_file_and_leaves_nothing_behind(path, error):
    path.write_text("earlier")
    with pytest.raises(error), whole_file(path) as partial:  # noqa: PT012
        partial.write_text("half")
        raise error
    assert path.read_text() == "earlier"
    assert list(path.parent.iterdir()) == [path]


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def half_of_safetensors(_: object, path: Path, __: object) -> None:
    path.write_bytes(b"half")
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("write", "place", "fault"),
    [
        (lambda path: write_checked_json(path, "kind", {}), (os, "fsync"), no_space),
        (lambda path: write_tensors(path, {}), (files, "save_file"), half_of_safetensors),
    ],
    ids=["json", "tensors"],
)
def test_a_full_disk_names_the_file(path, monkeypatch, write: Callable[[Path], None], place: Any, fault: Any):
    path.write_bytes(b"earlier")
    monkeypatch.setattr(*place, fault)
    with pytest.raises(OSError, match=r"No space left on device.*: free space there") as error:
        write(path)
    assert error.value.errno == errno.ENOSPC
    assert Path(error.value.filename).parent in (path.parent, path.with_name("rows"))
    assert path.read_bytes() == b"earlier"


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EDQUOT, "free space there"), (errno.EFBIG, "free space"), (errno.EIO, "look after")]
)
def test_the_number_of_an_error_of_safetensors_stays(path, monkeypatch, number, remedy):
    def fail(*_: object) -> None:
        raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})")

    monkeypatch.setattr(files, "save_file", fail)
    with pytest.raises(OSError, match=remedy) as error:
        write_tensors(path, {})
    assert error.value.errno == number


def test_checked_json(path):
    assert read_checked_json(path, "kind", "again") == {}
    write_checked_json(path, "kind", {"name": "é", "n": [1, None]})
    assert read_checked_json(path, "kind", "again") == {"name": "é", "n": [1, None]}
    text = path.read_text()
    for damaged in (text.replace("1,", "2,"), text.replace("kind", "kinds"), "[]", "{}", text[:-1]):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=rf"^'{re.escape(str(path))}' must be kind, .*: again\.$"):
            read_checked_json(path, "kind", "again")


# --- tensors ---

EXPECTED = {
    "mean": Expected(("D",), torch.float64),
    "scatter": Expected(("D", "D"), torch.float64),
    "state": Expected(None, torch.uint8),
    "weights": Expected((2, "D")),
}
FORMAT = {"format": "a test", "version": "1"}


def content(**changed: object) -> dict[str, torch.Tensor]:
    tensors = {
        "mean": torch.arange(3.0, dtype=torch.float64),
        "scatter": torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=torch.float64).T,
        "state": torch.empty(0, dtype=torch.uint8),
        "weights": torch.ones(2, 3, dtype=torch.bfloat16),
    }
    return {name: value for name, value in (tensors | changed).items() if value is not None}  # type: ignore[misc]


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    return read_tensors(path, EXPECTED, what="a test's file", remedy="do it again", metadata=FORMAT)


def test_tensors_that_were_written_are_read(path):
    write_tensors(path, content(), FORMAT | {"prompt": "q: "})
    stored, metadata = read(path)
    assert {name: tensor.dtype for name, tensor in stored.items()} == {n: t.dtype for n, t in content().items()}
    assert all(torch.equal(stored[name], tensor) for name, tensor in content().items())
    assert metadata["prompt"] == "q: "
    save_file({name: tensor.contiguous() for name, tensor in content().items()}, path, FORMAT)  # without a checksum
    assert torch.equal(read(path)[0]["mean"], content()["mean"])


@pytest.mark.parametrize(
    ("tensors", "metadata", "fault"),
    [
        (content(), FORMAT | {"version": "2"}, "version '2' instead of '1'"),
        (content(mean=None), FORMAT, "no tensor 'mean' in it"),
        (content(more=torch.ones(1)), FORMAT, "another tensor in it, 'more'"),
        (content(mean=torch.ones(4, dtype=torch.float64)), FORMAT, "shape (3, 3) instead of (4, 4)"),
        (content(mean=torch.ones(3, 1, dtype=torch.float64)), FORMAT, "'mean' of the shape (3, 1)"),
        (content(mean=torch.ones(3)), FORMAT, "'mean' of torch.float32 instead of torch.float64"),
        (content(weights=torch.ones(2, 3).long()), FORMAT, "'weights' of torch.int64 instead of floating-point"),
        (content(weights=torch.full((2, 3), torch.nan)), FORMAT, "'weights' with NaN"),
    ],
)
def test_other_tensors_are_refused(path, tensors, metadata, fault):
    write_tensors(path, tensors, metadata)
    with pytest.raises(ValueError, match=f"'{re.escape(str(path))}' must be a test's file, .*{re.escape(fault)}"):
        read(path)


def test_damage_of_tensors_is_seen(path):
    write_tensors(path, content(), FORMAT)
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[-3] ^= 1  # one bit of a weight: still a finite number
    for damaged in (whole[:-1], whole[:20], b"", bytes(changed)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"got a damaged file \(.*\): do it again\.$"):
            read(path)
    with pytest.raises(ValueError, match=r"got no such file: do it again"):
        read(path.parent)
