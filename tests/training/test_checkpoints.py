"""Which checkpoint is complete, which one is the last, and what may stand beside the output."""

import json
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from st_extras.files import FILES, list_files
from st_extras.training.checkpoints import (
    RECORD,
    check_same_training,
    check_training_output,
    keep_checkpoints,
    last_checkpoint,
    read_record,
)
from st_extras.training.loss_state import FILE_NAME
from tests.helpers import write

NEEDED = ("trainer_state.json", "optimizer.pt", "scheduler.pt")


def checkpoint(folder: Path, name: str, *, without: str = "", best: str | None = None) -> Path:
    path, step = folder / name, name.rpartition("-")[2]
    path.mkdir()
    state = {"global_step": int(step) if step.isdecimal() else 0, "best_model_checkpoint": best and str(folder / best)}
    write(path / "trainer_state.json", json.dumps(state))
    for file in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin"):
        torch.save({"a": torch.arange(50)}, path / file)
    save_file({"a": torch.arange(50)}, path / FILE_NAME)
    if without:
        (path / without).unlink()
    list_files(path)
    return path


def halved(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(bytes([7, 0, 0, 0, 0, 0, 0, 0]))] ^= 1  # of the tensor
    file.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "emptied": lambda file: file.write_bytes(b""),
    "other": lambda file: file.write_bytes(b"[garbage"),
    "halved": halved,
}
FILES_READ = ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", FILE_NAME, "pytorch_model.bin"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES_READ)
def test_a_checkpoint_that_cannot_be_read_is_left_out(tmp_path, caplog, name, damage):
    for step in (14, 16):
        checkpoint(tmp_path, f"checkpoint-{step}")
    DAMAGES[damage](tmp_path / "checkpoint-16" / name)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-14"
    with suppress(KeyboardInterrupt), keep_checkpoints(tmp_path, {}, resume=True):
        assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-14"]
        raise KeyboardInterrupt
    assert f"checkpoint-16 is left out and removed: {name} cannot be read: " in caplog.text
    assert "continues it from step 14." in caplog.text


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state.pth"])
def test_a_changed_byte_is_noticed(tmp_path, name):
    flipped(checkpoint(tmp_path, "checkpoint-2") / name)
    assert last_checkpoint(tmp_path) is None


@pytest.mark.parametrize("state", ["{}", "[]", "3", '{"global_step": 15}'])
def test_the_state_of_another_step_is_none(tmp_path, state):
    write(checkpoint(tmp_path, "checkpoint-16") / "trainer_state.json", state)
    assert last_checkpoint(tmp_path) is None


def test_the_best_weights_belong_to_a_checkpoint(tmp_path, caplog):
    for step, best in ((2, None), (4, "checkpoint-4"), (6, "checkpoint-4")):
        checkpoint(tmp_path, f"checkpoint-{step}", best=best)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-6"
    halved(tmp_path / "checkpoint-4" / "pytorch_model.bin")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    with suppress(KeyboardInterrupt), keep_checkpoints(tmp_path, {}, resume=True):
        assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
        raise KeyboardInterrupt
    assert "checkpoint-4, which has the best weights: pytorch_model.bin cannot be read" in caplog.text


def test_resuming_takes_the_checkpoint_with_the_most_steps(tmp_path):
    for name in ("checkpoint-9", "checkpoint-10", "checkpoint-new", "other-11"):
        checkpoint(tmp_path, name)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


@pytest.mark.parametrize("lost", [*NEEDED, FILE_NAME, FILES])
def test_a_checkpoint_that_lacks_a_file_is_passed_over(tmp_path, lost):
    assert last_checkpoint(tmp_path) is None
    checkpoint(tmp_path, "checkpoint-2")
    (checkpoint(tmp_path, "checkpoint-4") / lost).unlink()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"


@pytest.mark.parametrize("without", NEEDED)
def test_a_checkpoint_of_the_model_alone_cannot_be_resumed(tmp_path, without):
    checkpoint(tmp_path, "checkpoint-2", without=without)
    assert last_checkpoint(tmp_path) is None


def test_every_difference_to_the_interrupted_training_is_named(tmp_path):
    """What was changed, left out or put in; of another loss, not its settings."""
    before = {"seed": 1, "bf16": False, "weight_decay": 0.1, "loss": "A", "loss.scale": 2.0, "evaluator.name": "dev"}
    write(tmp_path / RECORD, json.dumps(before))
    check_same_training(tmp_path, dict(reversed(before.items())))
    record = {"seed": 2, "bf16": False, "epochs": 3, "loss": "B", "loss.margin": 1.0, "evaluator.name": "test"}
    named = (
        "epochs is 3 and was None; evaluator.name is 'test' and was 'dev'; loss is 'B' and was 'A'; "
        "seed is 2 and was 1; weight_decay is None and was 0.1; use the"
    )
    with pytest.raises(ValueError, match=rf"^resume needs the settings of the interrupted training, got .*: {named}"):
        check_same_training(tmp_path, record)
    with pytest.raises(ValueError, match=r"got others: loss\.scale is 3\.0 and was 2\.0; use the"):
        check_same_training(tmp_path, before | {"loss.scale": 3.0})


def test_an_interrupted_training_is_neither_lost_nor_taken_for_another(tmp_path):
    out, folder = tmp_path / "out", tmp_path / "out.checkpoints"
    with pytest.raises(ValueError, match=r"^resume needs an interrupted training in .*, got none"):
        check_training_output(out, resume=True, overwrite=False)
    write(folder / f".{RECORD}.1-2.partial", "")  # by a kill while the record was written
    assert check_training_output(out, resume=False, overwrite=False) == folder
    write(folder / RECORD, "{}")
    with pytest.raises(ValueError, match=r"^output must have no interrupted training .* resume=True .* overwrite"):
        check_training_output(out, resume=False, overwrite=False)
    for options in ({"resume": True, "overwrite": False}, {"resume": False, "overwrite": True}):
        assert check_training_output(out, **options) == folder
    with pytest.raises(ValueError, match=r"^resume must be True or False"):
        check_training_output(out, resume="yes", overwrite=False)


def test_of_several_processes_the_first_alone_looks(tmp_path, monkeypatch):
    write(tmp_path / "out" / "notes.txt", "mine")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(ValueError, match=r"^output must be") if rank == "0" else nullcontext():
            assert (
                check_training_output(tmp_path / "out", resume=False, overwrite=False) == tmp_path / "out.checkpoints"
            )


@pytest.mark.parametrize("name", ["checkpoint-2/model.safetensors", "eval/a.csv", RECORD, "notes.txt", "."])
def test_a_folder_of_others_is_refused(tmp_path, name):
    path = tmp_path / "out.checkpoints" / name
    write(path, "mine")
    for resume in (True, False):
        with pytest.raises(ValueError, match=r"^(output must have no folder of others|resume needs an interrupted)"):
            check_training_output(tmp_path / "out", resume=resume, overwrite=True)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("fails", [True, False])
def test_what_others_put_there_stays_and_is_named(tmp_path, caplog, fails):
    folder, runs = tmp_path / "out.checkpoints", ("runs", "runs/a", "runs/a/b", "runs/c")
    ours = [f"{run}/events.out.tfevents.1" for run in runs]
    ours += ["eval/pairs_results.csv", "eval/other_results.csv", "checkpoint-20/half"]
    others = ["eval/mine.txt", "checkpoint-new/a", "runs/b", "notes.txt"]
    try:
        with keep_checkpoints(folder, {}, resume=False):
            for name in (*ours, *others, "checkpoint-1/half"):
                write(folder / name, "mine")
            assert not fails, "it fails"
    except AssertionError:
        pass
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert found == sorted(others)
    assert "stays, with what no training wrote: checkpoint-new, checkpoint-new/a, eval," in caplog.text


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_two_trainings_do_not_share_a_folder(tmp_path):
    folder = tmp_path / "out.checkpoints"
    with keep_checkpoints(folder, {"seed": 1}, resume=False):
        with pytest.raises(ValueError, match=r"^output must have one writer"):
            keep_checkpoints(folder, {"seed": 2}, resume=False).__enter__()
        assert read_record(folder) == {"seed": 1}
    assert list(tmp_path.iterdir()) == []
