"""A batch of one sentence has no negatives, and a loss that learns nothing from it says so once."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss, SimCSELoss

SILENT: dict[str, tuple[Any, dict[str, Any]]] = {
    "simcse": (SimCSELoss, {}),
    "consert": (ConSERTLoss, {}),
    "consert without its positive": (ConSERTLoss, {"include_positive": False}),
    "dclr": (DCLRLoss, {"noise_ratio": 0}),
    "dclr with its positive": (DCLRLoss, {"noise_ratio": 0.1, "include_positive": True}),
    "adcse": (AdCSELoss, {"num_adversaries": 0}),
}


@pytest.mark.parametrize("name", SILENT)
def test_said_once(encoder: SentenceTransformer, caplog: pytest.LogCaptureFixture, name: str) -> None:
    kind, options = SILENT[name]
    loss = kind(encoder, **options)
    caplog.clear()  # DCLR without a guide says so when it is built
    one, two = [encoder.preprocess(["a cat"])], [encoder.preprocess(["a cat", "the dog"])]
    with caplog.at_level(logging.WARNING, logger="st_extras"):
        loss(two)
        with torch.no_grad():
            loss(one)
        assert not caplog.records
        assert [loss(one).item() for _ in range(3)] == [0.0] * 3
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{kind.__name__} got a batch of one sentence, which has no negatives: its loss is 0 and teaches nothing. "
        "Train with a larger batch size; if the text repeats a sentence, batches keep equal ones apart."
    )


@pytest.mark.parametrize(("kind", "options"), [(DCLRLoss, {}), (AdCSELoss, {"projection": False})])
def test_other_negatives_are_enough(
    encoder: SentenceTransformer, caplog: pytest.LogCaptureFixture, kind: Any, options: dict[str, Any]
) -> None:
    loss = kind(encoder, **options)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="st_extras"):
        assert loss([encoder.preprocess(["a cat"])]).item() != 0
    assert not caplog.records
