"""Which checkpoint is complete, which one is the last, and what may stand beside the output."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from st_extras.files import FILES, list_files
from st_extras.training.checkpoints import RECORD, check_training_output, keep_checkpoints, last_checkpoint, read_record
from st_extras.training.loss_state import FILE_NAME
from tests.helpers import write

NEEDED = ("trainer_state.json", "optimizer.pt", "scheduler.pt")


def checkpoint(folder: Path, name: str, *, without: str = "") -> Path:
    for file in {*NEEDED, FILE_NAME} - {without}:
        write(folder / name / file, "12")
    list_files(folder / name)
    return folder / name


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
    folder, ours = tmp_path / "out.checkpoints", ("eval/pairs_results.csv", "runs/a/events.out.tfevents.1")
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
