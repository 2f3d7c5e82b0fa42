"""What must not train in silence: equal views, label columns, frozen encoders, another guide after a resume."""

from typing import Any

import pytest
import torch

from st_extras.losses import DCLRLoss, SimCSELoss
from tests.helpers import columns, train
from tests.losses.cases import CASES


@pytest.mark.parametrize("where", ["off inside", "unused"])
def test_equal_views_are_told_in_the_end_where_the_encoder_has_a_dropout(make_encoder, sentences, where, caplog):
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
def test_a_second_column_of_labels_is_told(encoder, sentences, caplog, options):
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


@pytest.mark.parametrize("name", CASES)
def test_every_loss_refuses_a_frozen_encoder(encoder, name):
    """Also one with parameters of its own: what it owns would be trained for an encoder that stays as it is."""
    case = CASES[name]
    for cut in ({}, {"mini_batch_size": 3}) if case.cached else ({},):
        loss, rows = case.make(encoder.train(), **cut), case.features(encoder)
        encoder.requires_grad_(False)
        with pytest.raises(ValueError, match="model is frozen"):
            loss(rows)
        with torch.no_grad():
            loss(rows)
        encoder.requires_grad_(True)


@pytest.mark.parametrize("guide", ["path", "start"])
@pytest.mark.slow
def test_another_guide_after_a_resume_is_refused(make_encoder, sentences, tmp_path, guide):
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
