"""The trainings of ``adapt``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.training import short_training
from st_extras.training.short_training import ShortTraining
from tests.conftest import SENTENCES
from tests.helpers import differing, snapshot


def test_it_takes_as_many_passes_as_it_says() -> None:
    training = ShortTraining("t", steps=10, learning_rate=1e-5, masked_share=0.1)
    assert training.seconds(0.001) == pytest.approx(10 * 64 * 8 * 0.001)


@pytest.mark.parametrize(("share", "guide"), [(0.2, "start"), (None, None)])
def test_a_copy_is_trained_with_the_settings(
    encoder: SentenceTransformer, tmp_path: Path, monkeypatch: Any, share: float | None, guide: str | None
) -> None:
    made: list[dict[str, Any]] = []
    loss = short_training.DCLRLoss

    def noted(model: SentenceTransformer, **options: Any) -> Any:
        made.append(options)
        return loss(model, **options)

    monkeypatch.setattr(short_training, "DCLRLoss", noted)
    before = snapshot(encoder)
    training = ShortTraining("t", 2, 1e-3, share, ("dropout", "shuffle"))
    trained = training.trained_copy(encoder, SENTENCES * 4, tmp_path / "out", 1, show_progress_bar=False)
    assert made[0]["augmentations"] == ("dropout", "shuffle")
    assert (made[0].get("complementary_model"), made[0].get("masked_share")) == (guide, share)
    assert not differing(before, snapshot(encoder))
    assert differing(before, snapshot(trained))
