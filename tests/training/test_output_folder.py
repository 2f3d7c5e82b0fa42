"""The output folder: what may be used, which checkpoint is the last, and saving beside them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.training.loss_state import FILE_NAME
from st_extras.training.output_folder import check_output, save_model
from tests.helpers import differing, snapshot


def checkpoint(output: Path, name: str, *, complete: bool = True) -> Path:
    folder = output / "checkpoints" / name
    folder.mkdir(parents=True)
    if complete:
        (folder / FILE_NAME).write_bytes(b"")
    return folder


class TestCheckOutput:
    def test_a_new_or_empty_folder_is_fine_and_nothing_is_made(self, tmp_path: Path) -> None:
        assert check_output(tmp_path / "new" / "out") == (tmp_path / "new" / "out" / "checkpoints", None)
        assert check_output(str(tmp_path)) == (tmp_path / "checkpoints", None)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_in_use_needs_overwrite(self, tmp_path: Path) -> None:
        (tmp_path / "mine").write_text("mine")
        with pytest.raises(ValueError, match=r"^output must be a new or empty folder, got .*overwrite or resume\.$"):
            check_output(tmp_path)
        assert check_output(tmp_path, overwrite=True) == (tmp_path / "checkpoints", None)
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]

    @pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
    @pytest.mark.parametrize("below", ["", "model", "a/b"])
    def test_a_file_in_the_way(self, tmp_path: Path, below: str, options: dict[str, bool]) -> None:
        (tmp_path / "file").write_text("mine")
        with pytest.raises(ValueError, match=r"^output must be a folder, got '.*': '.*/file' is a file\.$"):
            check_output(tmp_path / "file" / below, **options)

    def test_resuming_takes_the_checkpoint_with_the_most_steps(self, tmp_path: Path) -> None:
        for name in ("checkpoint-9", "checkpoint-10", "checkpoint-2"):
            checkpoint(tmp_path, name)
        for name in ("checkpoint-", "checkpoint-new", "other-11"):  # not checkpoints of the trainer
            checkpoint(tmp_path, name)
        last = str(tmp_path / "checkpoints" / "checkpoint-10")
        assert check_output(tmp_path, resume=True) == (tmp_path / "checkpoints", last)

    def test_an_incomplete_checkpoint_is_passed_over(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        checkpoint(tmp_path, "checkpoint-2")
        checkpoint(tmp_path, "checkpoint-4")
        checkpoint(tmp_path, "checkpoint-6", complete=False)
        with caplog.at_level(logging.WARNING):
            _, last = check_output(tmp_path, resume=True)
        assert last == str(tmp_path / "checkpoints" / "checkpoint-4")
        assert "checkpoint-6 is incomplete: resuming from" in caplog.text

    def test_without_a_complete_one_the_newest_is_given(self, tmp_path: Path) -> None:
        for name in ("checkpoint-2", "checkpoint-4"):
            checkpoint(tmp_path, name, complete=False)
        assert check_output(tmp_path, resume=True)[1] == str(tmp_path / "checkpoints" / "checkpoint-4")

    @pytest.mark.parametrize("make", ["nothing", "output", "checkpoints"])
    def test_nothing_to_resume(self, tmp_path: Path, make: str) -> None:
        if make != "nothing":
            (tmp_path / "out" / ("checkpoints" if make == "checkpoints" else "")).mkdir(parents=True)
        with pytest.raises(ValueError, match=r"^resume needs a checkpoint in '.*/out/checkpoints', got none\.$"):
            check_output(tmp_path / "out", resume=True)


class TestSaveModel:
    def test_it_replaces_an_earlier_model_and_nothing_else(self, make_encoder, tmp_path: Path) -> None:
        save_model(make_encoder(), tmp_path)
        checkpoint(tmp_path, "checkpoint-2")
        (tmp_path / "mine").write_text("mine")
        (tmp_path / "1_Pooling" / "stale").write_text("of the earlier model")
        model = make_encoder(hidden_size=8)
        save_model(model, tmp_path)
        saved = SentenceTransformer(str(tmp_path), device="cpu")
        assert differing(snapshot(model), snapshot(saved)) == set()
        assert (tmp_path / "mine").read_text() == "mine"
        assert (tmp_path / "checkpoints" / "checkpoint-2" / FILE_NAME).is_file()
        assert not (tmp_path / "1_Pooling" / "stale").exists()
        assert not (tmp_path / ".saving").exists()

    def test_a_failed_save_leaves_the_earlier_model(
        self, make_encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = make_encoder()
        save_model(model, tmp_path)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "out" not in path.parts}

        def fail(path: str) -> None:
            (Path(path) / "1_Pooling").mkdir(parents=True)
            raise OSError("no space left")

        monkeypatch.setattr(model, "save", fail)
        with pytest.raises(OSError, match="no space left"):
            save_model(model, tmp_path)
        assert all(path.read_bytes() == content for path, content in before.items())
        monkeypatch.undo()
        save_model(model, tmp_path)  # what the failed one left is no obstacle
        assert not (tmp_path / ".saving").exists()
