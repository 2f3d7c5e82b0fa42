"""What must not train without a warning: equal views, frozen encoders."""

import logging

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from st_extras.losses import AdCSELoss, DCLRLoss, SimCSELoss, SLTFAILoss
from st_extras.losses.parts import batch_checks
from tests.fixtures import SENTENCES
from tests.losses.cases import CASES, PLAIN


@pytest.fixture(autouse=True)
def _warnings(caplog):
    caplog.set_level(logging.WARNING, logger="st_extras.losses")


def test_views_that_differ_or_are_meant_to_be_equal_cause_no_warning(make_encoder, still_encoder, caplog):
    features = [still_encoder.preprocess(SENTENCES)]
    for dropout, views in ((0.1, ("dropout", "dropout")), (0.0, ("none", "none")), (0.0, ("dropout", "token_cutoff"))):
        SimCSELoss(make_encoder(dropout=dropout).train(), augmentations=views)(features)
    with torch.no_grad():
        SimCSELoss(still_encoder.train())(features)
    SimCSELoss(still_encoder.eval())(features)
    assert not caplog.records


@pytest.mark.parametrize("where", ["off inside", "unused", "acts later"])
def test_equal_views_cause_a_warning_later_if_the_encoder_has_dropout(make_encoder, where, caplog, monkeypatch):
    """A new adapter's acts after its first step; one that is never used or off does not act at all."""
    monkeypatch.setattr(batch_checks, "_PATIENCE", 3)
    model = make_encoder(dropout=0.1 if where == "off inside" else 0.0).train()
    model[0].unused = torch.nn.Dropout(0.5)
    model[0].train(where != "off inside")
    loss, features = SimCSELoss(model), [model.preprocess(SENTENCES)]
    for _ in range(3):
        loss(features)
    assert "same vector" not in caplog.text
    if where == "acts later":
        model.transformers_model.embeddings.dropout.p = 0.5
    loss(features)
    assert ("same vector" in caplog.text) == (where != "acts later")


@pytest.mark.parametrize(
    ("kind", "options", "refused"),
    [
        (SimCSELoss, {}, True),
        (DCLRLoss, {"mini_batch_size": 3}, False),
        (DCLRLoss, {"noise_ratio": 0, "mini_batch_size": 3}, True),
        (DCLRLoss, {"noise_ratio": 0, "complementary_model": "self"}, False),
        (AdCSELoss, {}, False),
        (AdCSELoss, {"tied": True, "num_adversaries": 0}, True),
    ],
)
def test_equal_views_cause_one_warning_and_are_refused_if_nothing_else_trains_the_encoder(
    still_encoder, caplog, kind, options, refused
):
    for columns in (2, 1):
        caplog.clear()
        loss = kind(still_encoder.train(), **options)
        for _ in range(2):
            loss([still_encoder.preprocess(SENTENCES[i:] + SENTENCES[:i]) for i in range(columns)])
        assert caplog.text.count("got the same vector twice") == 2 - columns
        assert loss.checks.only_equal_views == (refused and columns == 1)


def test_slt_fai_over_a_loss_of_sentence_transformers_warns_of_equal_views(still_encoder, frequency_table, caplog):
    base = MultipleNegativesRankingLoss(still_encoder)
    loss = SLTFAILoss(still_encoder.train(), frequency_table=frequency_table, base_loss=base)
    for _ in range(2):
        loss([still_encoder.preprocess(SENTENCES)])
    assert caplog.text.count("MultipleNegativesRankingLoss must get two different views") == 1


@pytest.mark.parametrize("name", PLAIN)
def test_every_loss_refuses_a_frozen_encoder(encoder, name):
    """Also one with its own parameters: they would be trained for an encoder that does not change."""
    case = CASES[name]
    for cut in ({}, {"mini_batch_size": 3}) if case.cached else ({},):
        loss, rows = case.make(encoder.train(), **cut), case.features(encoder)
        encoder.requires_grad_(False)
        with pytest.raises(ValueError, match="model is frozen"):
            loss(rows)
        with torch.no_grad():
            loss(rows)
        encoder.requires_grad_(True)
