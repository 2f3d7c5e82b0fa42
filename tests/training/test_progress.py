"""The progress bar of a training: one bar, and no log message between its lines."""

import io
import logging
import re
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from st_extras.losses import SimCSELoss
from st_extras.training.run import train_encoder
from tests.fixtures import SENTENCES
from tests.training.test_run import ScriptedEvaluator


class WarningLoss(SimCSELoss):
    """Warns at every step, as losses do of a batch of one."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        logging.getLogger("st_extras.test").warning("Something is odd.")
        return super().forward(*arguments, **options)


def test_there_is_one_bar_and_a_warning_has_a_line_of_its_own(encoder, tmp_path, monkeypatch):
    root, shown = logging.getLogger(), io.StringIO()
    monkeypatch.setattr(root, "handlers", [])  # as on the command line, where no handler is set
    monkeypatch.setattr("transformers.utils.logging._tqdm_active", False)  # nor bars of weights
    with redirect_stdout(shown), redirect_stderr(shown):
        evaluator, settings = ScriptedEvaluator([0.1, 0.25, 0.75]), {"batch_size": 4, "max_steps": 4, "eval_steps": 2}
        train_encoder(encoder, WarningLoss, SENTENCES, tmp_path, evaluator=evaluator, **settings)
    lines = [line.strip() for line in re.split(r"[\r\n]", shown.getvalue()) if line.strip()]
    others = [line for line in lines if not re.match(r"Training: +\d+%\|", line)]
    assert others == ["Something is odd."] * 4
    assert any(re.search(r" 2/4 \[.*, loss=[\d.e-]+, dev score=0\.25\]", line) for line in lines)
    assert re.search(r" 4/4 \[.*, loss=[\d.e-]+, dev score=0\.75\]", lines[-1])
    assert encoder.model_card_data.widget != []  # the bar of these examples is hidden, not their choice
    assert root.handlers == []
