"""One reader and writer of tensor files: whatever is wrong with a file is one sentence with its path and a remedy."""

import errno
import re
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from st_extras import files
from st_extras.files import Expected, read_tensors, write_tensors

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
        "scatter": torch.eye(3, dtype=torch.float64),
        "state": torch.empty(0, dtype=torch.uint8),
        "weights": torch.ones(2, 3, dtype=torch.bfloat16),
    }
    return {name: value for name, value in (tensors | changed).items() if value is not None}  # type: ignore[misc]


def read(path: Path, **options: object) -> dict[str, torch.Tensor]:
    return read_tensors(path, EXPECTED, what="a test's file", remedy="do it again", metadata=FORMAT, **options)[0]  # type: ignore[arg-type]


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, content(scatter=torch.eye(3, dtype=torch.float64).T), FORMAT | {"prompt": "q: "})
    stored, metadata = read_tensors(path, EXPECTED, what="a file", remedy="do it again", metadata=FORMAT)
    assert {name: tensor.dtype for name, tensor in stored.items()} == {n: t.dtype for n, t in content().items()}
    assert all(torch.equal(stored[name], tensor) for name, tensor in content().items())
    assert metadata["prompt"] == "q: "
    write_tensors(path, content(weights=None), FORMAT)
    assert read(path, optional={"weights"}).keys() == content(weights=None).keys()


@pytest.mark.parametrize(
    ("tensors", "metadata", "fault"),
    [
        (content(), {}, "format None instead of 'a test'"),
        (content(), FORMAT | {"version": "2"}, "version '2' instead of '1'"),
        (content(mean=None), FORMAT, "no tensor 'mean' in it"),
        (content(more=torch.ones(1)), FORMAT, "another tensor in it, 'more'"),
        (content(mean=torch.ones(4, dtype=torch.float64)), FORMAT, "shape (3, 3) instead of (4, 4)"),
        (content(mean=torch.ones(3, 1, dtype=torch.float64)), FORMAT, "'mean' of the shape (3, 1)"),
        (content(weights=torch.ones(3, 3)), FORMAT, "'weights' of the shape (3, 3) instead of (2, 3)"),
        (content(mean=torch.ones(3)), FORMAT, "'mean' of torch.float32 instead of torch.float64"),
        (content(weights=torch.ones(2, 3).long()), FORMAT, "'weights' of torch.int64 instead of floating-point"),
        (content(weights=torch.full((2, 3), torch.nan)), FORMAT, "'weights' with NaN"),
    ],
)
def test_other_content_is_refused(tmp_path, tensors, metadata, fault):
    path = tmp_path / "a.safetensors"
    write_tensors(path, tensors, metadata)
    with pytest.raises(ValueError, match=f"{re.escape(repr(str(path)))} must be a test's file, got") as refused:
        read(path)
    assert fault in str(refused.value)
    assert str(refused.value).endswith(": do it again.")


def test_damage_is_seen(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, content(), FORMAT)
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[-3] ^= 1  # one bit of a weight: still a finite number
    for damaged in (whole[:-1], whole[:20], b"", b"{}", bytes(changed)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"got a damaged file \(.*\): do it again\.$"):
            read(path)
    for absent in (tmp_path, tmp_path / "other"):
        with pytest.raises(ValueError, match="got no such file: do it again"):
            read(absent)


def test_a_file_without_a_checksum_is_read(tmp_path):
    save_file(content(), tmp_path / "a", FORMAT)
    assert torch.equal(read(tmp_path / "a")["mean"], content()["mean"])


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    def full(_: object, path: Path, __: object) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    path = tmp_path / "a.safetensors"
    write_tensors(path, content())
    before = path.read_bytes()
    monkeypatch.setattr(files, "save_file", full)
    with pytest.raises(OSError, match=r"No space left on device.*: free space there and do the same again") as refused:
        write_tensors(path, content(state=None))
    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
