"""Which checkpoint is complete, and which one is the last."""

from pathlib import Path

import pytest

from st_extras.training.checkpoints import MARKER, has_checkpoint, last_checkpoint, mark_complete, remove_incomplete
from st_extras.training.loss_state import FILE_NAME


def checkpoint(checkpoints: Path, name: str, *, complete: bool = True) -> Path:
    folder = checkpoints / name
    folder.mkdir(parents=True)
    for file in ("trainer_state.json", "optimizer.pt", "scheduler.pt", FILE_NAME):
        (folder / file).write_bytes(b"12")
    if complete:
        mark_complete(folder, {})
    return folder


def test_resuming_takes_the_checkpoint_with_the_most_steps(tmp_path):
    for name in ("checkpoint-9", "checkpoint-10", "checkpoint-new", "other-11"):
        checkpoint(tmp_path, name)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("shorter", "optimizer.pt has 1 bytes instead of 2"), ("other bytes", "optimizer.pt is damaged"),
        ("lost", "optimizer.pt is missing"), ("no marker", "complete.json is missing"),
        ("marker", "complete.json is damaged"), ("model only", "it was saved without optimizer.pt"),
    ],
)  # fmt: skip
def test_a_spoilt_checkpoint_is_passed_over(tmp_path, caplog, spoil, reason):
    checkpoint(tmp_path, "checkpoint-2")
    folder = checkpoint(tmp_path, "checkpoint-4")
    file = folder / (MARKER if "marker" in spoil else "optimizer.pt")
    if spoil in ("lost", "no marker", "model only"):
        file.unlink()
    else:
        file.write_bytes({"shorter": b"1", "other bytes": b"13", "marker": b'{"checksum": "1", "fi'}[spoil])
    if spoil == "model only":
        mark_complete(folder, {})
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    assert f"checkpoint-4 is incomplete and passed over: {reason}" in caplog.text
    remove_incomplete(tmp_path)
    assert folder.exists() == (spoil in ("other bytes", "model only"))  # complete by the sizes of its files


def test_without_a_complete_one(tmp_path):
    checkpoint(tmp_path, "checkpoint-2", complete=False)
    assert not has_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"^resume needs a complete checkpoint in .* again with overwrite=True\.$"):
        last_checkpoint(tmp_path)
    mark_complete(checkpoint(tmp_path, "checkpoint-4", complete=False), {})
    assert has_checkpoint(tmp_path)
