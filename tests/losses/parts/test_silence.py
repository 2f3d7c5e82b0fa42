"""What must not train in silence: equal views, label columns, frozen encoders, another guide after a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.losses import (
    ConSERTLoss,
    DCLRLoss,
    FrequencyAdversarialLoss,
    IncompleteSentenceFilteringLoss,
    PaSeRLoss,
    SimCSELoss,
    SLTFAILoss,
)
from st_extras.text.frequency import FrequencyTable
from tests.helpers import columns, train
from tests.losses.phrases import features as phrase_features

Maker = Callable[..., SentenceTransformer]


@pytest.mark.parametrize("where", ["off inside", "unused"])
def test_equal_views_are_told_in_the_end_where_the_encoder_has_a_dropout(
    make_encoder: Maker, sentences: list[str], where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A fresh adapter's tells no views apart before its first step; one that is never used or off does not at all."""
    model = make_encoder(dropout=0.1 if where == "off inside" else 0.0).train()
    model[0].unused = torch.nn.Dropout(0.5)
    model[0].train(where != "off inside")
    loss, features = SimCSELoss(model), [model.preprocess(sentences)]
    for _ in range(100):
        loss(features)
    assert "same vector twice" not in caplog.text
    loss(features)
    assert "same vector twice" in caplog.text


@pytest.mark.parametrize("options", [{}, {"mini_batch_size": 3}])
def test_a_second_column_of_labels_is_told(
    encoder: SentenceTransformer, sentences: list[str], caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    loss = SimCSELoss(encoder.train(), **options)
    texts, labels = encoder.preprocess(sentences), encoder.preprocess(["cat", "dog"] * 4)
    for _ in range(2):
        loss([texts, labels])
    assert len(caplog.records) == 1
    assert "2 different texts in 8 rows of column 2" in caplog.text
    caplog.clear()
    SimCSELoss(encoder, **options)([encoder.preprocess(["cat", "dog"] * 4)])
    assert "2 different texts in 8 rows of column 1" in caplog.text
    caplog.clear()
    SimCSELoss(encoder, **options)([texts, texts])
    assert not caplog.records


@pytest.mark.parametrize("kind", ["adversarial", "incomplete", "slt-fai", "slt-fai, consert", "paser"])
def test_every_loss_refuses_a_frozen_encoder(
    encoder: SentenceTransformer, sentences: list[str], frequency_table: FrequencyTable, kind: str
) -> None:
    table = {"frequency_table": frequency_table}
    loss: Any = {
        "adversarial": lambda: FrequencyAdversarialLoss(encoder, **table),
        "incomplete": lambda: IncompleteSentenceFilteringLoss(encoder, **table),
        "slt-fai": lambda: SLTFAILoss(encoder, **table),
        "slt-fai, consert": lambda: SLTFAILoss(encoder, base_loss=ConSERTLoss(encoder), **table),
        "paser": lambda: PaSeRLoss(encoder, num_decoder_layers=1),
    }[kind]()
    rows = phrase_features(encoder) if kind == "paser" else [encoder.preprocess(sentences)]
    encoder.train().requires_grad_(False)
    with pytest.raises(ValueError, match="model is frozen"):
        loss(rows)
    with torch.no_grad():
        loss(rows)


@pytest.mark.parametrize("guide", ["path", "start"])
def test_another_guide_after_a_resume_is_refused(
    make_encoder: Maker, sentences: list[str], tmp_path: Path, guide: str
) -> None:
    def training(seed: int, **options: Any) -> None:
        model = make_encoder(seed=seed if guide == "start" else 0)
        if guide == "path":
            make_encoder(seed=seed).save(str(tmp_path / "guide"))  # trained again at the same place
        made = DCLRLoss(model, complementary_model=tmp_path / "guide" if guide == "path" else "start")
        train(model, made, columns(sentences), tmp_path / "run", save_strategy="steps", save_steps=1, **options)

    training(1, max_steps=2)
    checkpoint = str(tmp_path / "run" / "checkpoint-1")
    training(1, max_steps=2, resume=checkpoint)
    with pytest.raises(ValueError, match=r"complementary_model must be .* another encoder than .* \d+ % apart"):
        training(2, max_steps=2, resume=checkpoint)
