"""The progress bar of a training: one bar, and no log message between its lines."""

import io
import logging
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

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


def written(model: SentenceTransformer, output: Path, loss: Any = SimCSELoss, **options: Any) -> list[str]:
    """The lines that a training of four steps writes, as a terminal shows them."""
    shown = io.StringIO()
    # no bars while weights are loaded and saved, as on the command line
    with redirect_stdout(shown), redirect_stderr(shown), patch("transformers.utils.logging._tqdm_active", False):
        train_encoder(model, loss, SENTENCES, output, batch_size=4, max_steps=4, eval_steps=2, **options)
    return [line for line in re.split(r"[\r\n]", shown.getvalue()) if line.strip()]


def test_there_is_one_bar_with_the_latest_loss_and_score(encoder, tmp_path):
    lines = written(encoder, tmp_path, evaluator=ScriptedEvaluator([0.1, 0.25, 0.75]))
    assert [line for line in lines if not re.match(r"Training: +\d+%\|", line)] == []
    assert re.search(r" 4/4 \[.*, loss=[\d.e-]+, score=0\.75\]", lines[-1])
    assert any(re.search(r" 2/4 \[.*, loss=[\d.e-]+, score=0\.25\]", line) for line in lines)
    assert encoder.model_card_data.widget != []  # the bar of these examples is hidden, not their choice


def test_a_warning_has_a_line_of_its_own(encoder, tmp_path, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # as on the command line, where no handler is set
    lines = written(encoder, tmp_path, WarningLoss)
    assert [line.strip() for line in lines if "odd" in line] == ["Something is odd."] * 4
    assert root.handlers == []
