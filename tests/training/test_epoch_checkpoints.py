"""Checkpoints at the end of each epoch (``save_strategy="epoch"``) of a training whose loss turns NaN."""

import pytest

from st_extras.training import DivergenceError, divergence, train_encoder
from tests.training.test_divergence import NaNAt


@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("behind", [0, 1])
def test_no_checkpoint_after_a_loss_that_is_not_finite(encoder, sentences, tmp_path, monkeypatch, step, behind):
    """Two steps an epoch, and nothing logged before the end: also where losses are read late, as on a GPU."""
    monkeypatch.setattr(divergence, "steps_behind", lambda device: behind)
    settings = {"batch_size": 4, "epochs": 3, "save_strategy": "epoch", "logging_strategy": "no"}
    with pytest.raises(DivergenceError, match=rf"^Training diverged at step {step}: the loss is not finite"):
        train_encoder(encoder, lambda m: NaNAt(m, step), sentences, tmp_path, show_progress_bar=False, **settings)
    saved = sorted(path.parent.name for path in tmp_path.glob("checkpoints/*/complete.json"))
    assert saved == [f"checkpoint-{n}" for n in (2, 4) if n < step]
