"""STS scores for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from st_extras.cli.scoring import percent, sts_scorer
from st_extras.encoders.loading import load_encoder
from st_extras.evaluation import SEVEN_STS, sts_evaluator


def test_percent_names_the_sets() -> None:
    scores = percent({"sts12_spearman_cosine": 0.25, "average": 0.5})
    assert scores == {"sts12": 25.0, "average": 50.0}


def test_the_scorer_gives_what_the_evaluator_gives(inputs: Path) -> None:
    model = load_encoder(inputs / "encoder", device="cpu")
    assert sts_scorer(str(inputs))(model) == pytest.approx(percent(sts_evaluator(SEVEN_STS, inputs)(model)))


def test_without_a_source_nothing_is_scored() -> None:
    assert sts_scorer(None)(object()) == {}
