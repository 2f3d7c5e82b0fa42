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
from tests.helpers import differing, snapshot


def checkpoint(output: Path, name: str, *, complete: bool = True) -> Path:
    folder = output / "checkpoints" / name
    folder.mkdir(parents=True)
    for file in ("trainer_state.json", "optimizer.pt", "scheduler.pt", FILE_NAME):
        (folder / file).write_bytes(b"12")
    if complete:
        mark_complete(folder, {})
    return folder


class TestCheckOutput:
    def test_a_folder_in_use_needs_overwrite(self, tmp_path):
        (tmp_path / "mine").write_text("mine")
        with pytest.raises(ValueError, match=r"^output must be a new or empty folder, got .* set overwrite=True\.$"):
            check_output(tmp_path)
        check_output(tmp_path, overwrite=True)
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]

    @pytest.mark.parametrize("below", ["", "a/b"])
    def test_a_file_in_the_way(self, tmp_path, below):
        (tmp_path / "file").write_text("mine")
        for options in ({}, {"overwrite": True}, {"resume": True}):
            with pytest.raises(ValueError, match=r"^output must be a folder, got '.*': '.*/file' is a file\.$"):
                check_output(tmp_path / "file" / below, **options)

    def test_resuming_takes_the_checkpoint_with_the_most_steps(self, tmp_path):
        for name in ("checkpoint-9", "checkpoint-10", "checkpoint-2"):
            checkpoint(tmp_path, name)
        for name in ("checkpoint-", "checkpoint-new", "other-11"):  # not checkpoints of the trainer
            checkpoint(tmp_path, name)
        last = str(tmp_path / "checkpoints" / "checkpoint-10")
        assert last_checkpoint(tmp_path) == last

    @pytest.mark.parametrize("spoil", ["shorter", "other bytes", "lost", "no marker", "marker", "list", "model only"])
    def test_a_spoilt_checkpoint_is_passed_over(self, tmp_path, caplog, spoil):
        checkpoint(tmp_path, "checkpoint-2")
        folder = checkpoint(tmp_path, "checkpoint-4")
        if spoil == "shorter":
            (folder / "optimizer.pt").write_bytes(b"1")
        elif spoil == "other bytes":
            (folder / "optimizer.pt").write_bytes(b"13")
        elif spoil in ("lost", "no marker"):
            (folder / ("scheduler.pt" if spoil == "lost" else MARKER)).unlink()
        elif spoil == "model only":
            (folder / "optimizer.pt").unlink()
            mark_complete(folder, {})
        else:
            (folder / MARKER).write_text({"marker": '{"checksum": "1", "fi'}.get(spoil, "[]"))
        assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoints" / "checkpoint-2")
        reasons = {"shorter": "optimizer.pt has 1 bytes instead of 2", "other bytes": "optimizer.pt is damaged"}
        assert f"checkpoint-4 is incomplete and passed over: {reasons.get(spoil, '')}" in caplog.text

    def test_without_a_complete_one(self, tmp_path):
        for folder in ("", "out/checkpoints"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            with pytest.raises(ValueError, match=r"^resume needs a checkpoint in '.*/out/checkpoints', got none\.$"):
                last_checkpoint(tmp_path / "out")
        for name in ("checkpoint-2", "checkpoint-4"):
            checkpoint(tmp_path, name, complete=False)
        claim(tmp_path / "claimed")  # all that a kill before the first checkpoint leaves
        for folder in (tmp_path, tmp_path / "claimed"):
            with pytest.raises(ValueError, match="no complete one yet: start again with overwrite=True"):
                last_checkpoint(folder)

    @pytest.mark.parametrize(
        "name", ["config.json", "README.md", "model.safetensors", "1_Pooling", "checkpoints", ".saving"]
    )
    def test_what_no_run_wrote_is_not_replaced(self, tmp_path, name):
        (tmp_path / name).write_text("mine") if "." in name[1:] else (tmp_path / name).mkdir()
        with pytest.raises(ValueError, match=f"{name}', which no earlier run wrote: choose another folder, or move"):
            check_output(tmp_path, overwrite=True)

    def test_what_a_run_wrote_is_replaced(self, encoder, tmp_path):
        save_model(encoder, tmp_path)
        check_output(tmp_path, overwrite=True)
        (tmp_path / "2_Dense").mkdir()
        with pytest.raises(ValueError, match="'2_Dense', which no earlier run wrote"):
            check_output(tmp_path, overwrite=True)

    @pytest.mark.parametrize("files", [None, ["../a"], ["/a"]])
    def test_a_damaged_list_of_files_is_refused(self, tmp_path, files):
        if files is None:
            (tmp_path / MANIFEST).write_text("{")
        else:
            write_checked_json(tmp_path / MANIFEST, "st-extras list of files", {"files": files})
        with pytest.raises(ValueError, match=f"{MANIFEST}' must"):
            check_output(tmp_path, overwrite=True)


class TestSaveModel:
    def test_it_replaces_an_earlier_model_and_nothing_else(self, make_encoder, tmp_path):
        save_model(make_encoder(), tmp_path)
        checkpoint(tmp_path, "checkpoint-2")
        (tmp_path / "mine").write_text("mine")
        (tmp_path / "1_Pooling" / "mine").write_text("mine")
        model = make_encoder(hidden_size=8)
        save_model(model, tmp_path)
        saved = SentenceTransformer(str(tmp_path), device="cpu")
        assert differing(snapshot(model), snapshot(saved)) == set()
        assert (tmp_path / "mine").read_text() == "mine"
        assert (tmp_path / "checkpoints" / "checkpoint-2" / FILE_NAME).is_file()
        assert (tmp_path / "1_Pooling" / "mine").read_text() == "mine"
        assert not (tmp_path / ".saving").exists()

    def test_what_the_earlier_model_alone_had_is_removed(self, make_encoder, tmp_path):
        model = make_encoder()
        model.append(Normalize())
        save_model(model, tmp_path)
        assert (tmp_path / "2_Normalize").is_dir() or (tmp_path / "2_Normalize").exists()
        save_model(make_encoder(), tmp_path)
        assert not (tmp_path / "2_Normalize").exists()
        assert MANIFEST in {path.name for path in tmp_path.iterdir()}

    def test_the_staging_folder_of_others_is_spared(self, encoder, tmp_path):
        (tmp_path / ".saving").mkdir()
        (tmp_path / ".saving" / "thesis.txt").write_text("mine")
        with pytest.raises(ValueError, match=r"\.saving' is in the way of the model, and no earlier run wrote it"):
            save_model(encoder, tmp_path)
        assert (tmp_path / ".saving" / "thesis.txt").read_text() == "mine"

    @pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), SafetensorError("I/O error")])
    def test_a_full_disk_is_one_sentence(self, encoder, tmp_path, monkeypatch, error):
        def fail(path: str) -> None:
            (Path(path) / "1_Pooling").mkdir(parents=True)
            raise error

        save_model(encoder, tmp_path)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != MANIFEST}
        monkeypatch.setattr(encoder, "save", fail)
        with pytest.raises(OSError, match=r"^Writing to '.*' failed \(.*\): free space on the disk, then resume.*\.$"):
            save_model(encoder, tmp_path)
        assert {path: path.read_bytes() for path in before} == before
        monkeypatch.undo()
        save_model(encoder, tmp_path)  # what the failed one left is no obstacle
        assert not (tmp_path / ".saving").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_of_several_processes_alone_looks_into_the_folder(tmp_path, monkeypatch, rank):
    """The first may have begun to write to it before the others look."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", str(rank))
    (tmp_path / "config.json").write_text("{}")
    if rank:
        check_output(tmp_path)
    else:
        with pytest.raises(ValueError, match="output must be a new or empty folder"):
            check_output(tmp_path)
