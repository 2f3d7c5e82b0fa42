"""The output folder: what may be used, which checkpoint is the last, and saving beside them."""

import errno
from pathlib import Path

import pytest
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from st_extras.files import write_checked_json
from st_extras.training.loss_state import FILE_NAME
from st_extras.training.run_folder import (
    MANIFEST,
    MARKER,
    check_output,
    claim,
    last_checkpoint,
    mark_complete,
    save_model,
)
from tests.helpers import differing, snapshot, write


def checkpoint(output: Path, name: str, *, complete: bool = True) -> Path:
    folder = output / "checkpoints" / name
    folder.mkdir(parents=True)
    for file in ("trainer_state.json", "optimizer.pt", "scheduler.pt", FILE_NAME):
        (folder / file).write_bytes(b"12")
    if complete:
        mark_complete(folder, {})
    return folder


def test_a_folder_in_use_needs_overwrite(tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ValueError, match=r"^output must be a new or empty folder, got .* set overwrite=True\.$"):
        check_output(tmp_path)
    check_output(tmp_path, overwrite=True)
    for below in ("mine", "mine/a/b"):
        with pytest.raises(ValueError, match=r"^output must be a folder, got .*/mine' is a file"):
            check_output(tmp_path / below, overwrite=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    check_output(tmp_path)  # the first of several processes may have begun to write to it


def test_resuming_takes_the_checkpoint_with_the_most_steps(tmp_path):
    for name in ("checkpoint-9", "checkpoint-10", "checkpoint-new", "other-11"):
        checkpoint(tmp_path, name)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoints" / "checkpoint-10")


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
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoints" / "checkpoint-2")
    assert f"checkpoint-4 is incomplete and passed over: {reason}" in caplog.text


def test_without_a_complete_one(tmp_path):
    with pytest.raises(ValueError, match=r"^resume needs a checkpoint in '.*/out/checkpoints', got none\.$"):
        last_checkpoint(tmp_path / "out")
    checkpoint(tmp_path, "checkpoint-2", complete=False)
    claim(tmp_path / "claimed")  # all that a kill before the first checkpoint leaves
    for folder in (tmp_path, tmp_path / "claimed"):
        with pytest.raises(ValueError, match="no complete one yet: start again with overwrite=True"):
            last_checkpoint(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "1_Pooling", "checkpoints", ".saving"])
def test_what_no_run_wrote_is_not_replaced(encoder, tmp_path, name):
    write(tmp_path / name / "thesis.txt", "mine")
    with pytest.raises(ValueError, match=f"{name}', which no earlier run wrote"):
        check_output(tmp_path, overwrite=True)
    if name == ".saving":
        with pytest.raises(ValueError, match=r"\.saving' is in the way of the model"):
            save_model(encoder, tmp_path)
    assert (tmp_path / name / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("files", ["../a", "/a"])
def test_a_list_of_files_elsewhere_is_refused(tmp_path, files):
    write_checked_json(tmp_path / MANIFEST, "st-extras list of files", {"files": [files]})
    with pytest.raises(ValueError, match=f"{MANIFEST}' must"):
        check_output(tmp_path, overwrite=True)


def test_a_model_replaces_an_earlier_one_and_nothing_else(make_encoder, tmp_path):
    earlier = make_encoder()
    earlier.append(Normalize())
    save_model(earlier, tmp_path)
    assert (tmp_path / "2_Normalize").exists()
    check_output(tmp_path, overwrite=True)
    checkpoint(tmp_path, "checkpoint-2")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "1_Pooling" / "mine").write_text("mine")
    model = make_encoder(hidden_size=8)
    save_model(model, tmp_path)
    saved = SentenceTransformer(str(tmp_path), device="cpu")
    assert differing(snapshot(model), snapshot(saved)) == set()
    assert (tmp_path / "mine").read_text() == (tmp_path / "1_Pooling" / "mine").read_text() == "mine"
    assert (tmp_path / "checkpoints" / "checkpoint-2" / FILE_NAME).is_file()
    assert not (tmp_path / "2_Normalize").exists()
    assert not (tmp_path / ".saving").exists()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), SafetensorError("I/O error")])
def test_a_full_disk_is_one_sentence(encoder, tmp_path, monkeypatch, error):
    def fail(path: str) -> None:
        (Path(path) / "1_Pooling").mkdir(parents=True)
        raise error

    save_model(encoder, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != MANIFEST}
    monkeypatch.setattr(encoder, "save", fail)
    with pytest.raises(OSError, match=r"^Writing to '.*' failed \(.*\): free space on the disk"):
        save_model(encoder, tmp_path)
    assert {path: path.read_bytes() for path in before} == before
    monkeypatch.undo()
    save_model(encoder, tmp_path)  # what the failed one left is no obstacle
    assert not (tmp_path / ".saving").exists()
