"""The progress bar of a training: one bar, and no log message between its lines."""

import io
import logging
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.losses import SimCSELoss
from st_extras.training.run import train_encoder
from tests.fixtures import SENTENCES
from tests.training.test_run import ScriptedEvaluator


class WarningLoss(SimCSELoss):
    """Warns at every step, as losses do of a batch of one."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        logging.getLogger("st_extras.test").warning("Something is odd.")
        return super().forward(*arguments, **options)


def written(model: SentenceTransformer, output: Path, loss: Any = SimCSELoss, **options: Any) -> tuple[str, list[str]]:
    """What a training of four steps writes to stdout, and the lines it writes to stderr, as a terminal shows them."""
    out, err = io.StringIO(), io.StringIO()
    settings = {"batch_size": 4, "max_steps": 4, "eval_steps": 2} | options
    with redirect_stdout(out), redirect_stderr(err):
        train_encoder(model, loss, SENTENCES, output, **settings)
    return out.getvalue(), [line for line in re.split(r"[\r\n]", err.getvalue()) if line.strip()]


@pytest.fixture(autouse=True)
def _as_on_the_command_line(monkeypatch):
    monkeypatch.setattr("transformers.utils.logging._tqdm_active", False)  # no bars while weights are loaded and saved


def test_there_is_one_bar_with_the_latest_loss_and_score(encoder, make_encoder, tmp_path):
    out, lines = written(encoder, tmp_path / "out", evaluator=ScriptedEvaluator([0.1, 0.25, 0.75]))
    assert out == ""
    assert [line for line in lines if not re.match(r"Training: +\d+%\|", line)] == []
    assert re.search(r" 4/4 \[.*, loss=[\d.e-]+, dev score=0\.75\]", lines[-1])
    assert any(re.search(r" 2/4 \[.*, loss=[\d.e-]+, dev score=0\.25\]", line) for line in lines)
    assert encoder.model_card_data.widget != []  # the bar of these examples is hidden, not their choice
    shutil.rmtree(tmp_path / "out" / "checkpoints" / "checkpoint-4")
    again = ScriptedEvaluator([0.1, 0.75])
    _, lines = written(make_encoder(), tmp_path / "out", evaluator=again, resume=True)
    assert re.match(r"Training: +50%\|.* 2/4 ", lines[0]), "it starts where the training stopped"


def test_a_warning_has_a_line_of_its_own(encoder, tmp_path, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # as on the command line, where no handler is set
    _, lines = written(encoder, tmp_path / "out", WarningLoss)
    assert [line.strip() for line in lines if "odd" in line] == ["Something is odd."] * 4
    assert root.handlers == []
