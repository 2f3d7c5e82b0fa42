"""What no run wrote is never removed, whatever a job does in the same folder."""

from pathlib import Path
from typing import Any

import pytest

from st_extras.adaptation import adapt, adapt_search
from st_extras.cli import refine
from tests.helpers import write


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("job", [adapt, adapt_search])
def test_a_checkpoint_that_no_run_wrote_outlives_a_failed_adaptation(still_encoder, tmp_path, job):
    write(tmp_path / "checkpoints" / "checkpoint-500" / "model.bin", "three days of training")
    before = contents(tmp_path)
    texts: Any = ["a text", None, "b"]
    with pytest.raises(ValueError, match="None"):
        job(still_encoder, texts, tmp_path, overwrite=True, show_progress_bar=False)
    assert contents(tmp_path) == before


def test_a_checkpoint_that_no_run_wrote_outlives_a_failed_refinement(still_encoder, tmp_path, monkeypatch):
    def fail(path: str) -> None:
        raise OSError(28, "No space left")

    write(tmp_path / "checkpoints" / "checkpoint-500" / "model.bin", "three days of training")
    before = contents(tmp_path)
    monkeypatch.setattr(still_encoder, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        refine._save(still_encoder, tmp_path)
    assert contents(tmp_path) == before
