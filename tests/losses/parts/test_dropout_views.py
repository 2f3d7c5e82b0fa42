from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.losses import ConSERTLoss, SimCSELoss
from st_extras.losses.parts.dropout_views import are_same_views, warn_if_same_views
from tests.helpers import columns, count_rows, differing, draw, snapshot, train

Maker = Callable[..., SentenceTransformer]
SAID = "SimCSELoss got the same vector twice"


def test_no_dropout_is_said_once(
    still_encoder: SentenceTransformer, sentences: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    loss = SimCSELoss(still_encoder.train())
    for _ in range(2):
        loss([still_encoder.preprocess(sentences)]).backward()
    assert caplog.text.count(SAID) == 1
    assert "load_encoder(..., dropout=0.1) (--dropout 0.1)" in caplog.text
    assert "augmentations=('token_cutoff', 'feature_cutoff')" in caplog.text


@pytest.mark.parametrize("count", [1, 2])
def test_the_trainer_says_it_once(
    still_encoder: SentenceTransformer,
    sentences: list[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    count: int,
) -> None:
    train(still_encoder, SimCSELoss(still_encoder), columns(sentences, count), tmp_path)
    assert caplog.text.count(SAID) == 2 - count  # a second column is another sentence


def test_a_second_column_of_the_same_sentences_is_no_positive(
    still_encoder: SentenceTransformer, sentences: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    features = still_encoder.train().preprocess(sentences)
    SimCSELoss(still_encoder)([features, features])
    assert SAID in caplog.text


@pytest.mark.parametrize("options", [{}, {"augmentations": ("dropout", "token_cutoff")}])
def test_dropout_says_nothing(
    encoder: SentenceTransformer, sentences: list[str], caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    SimCSELoss(encoder.train(), **options)([encoder.preprocess(sentences)])
    ConSERTLoss(encoder, augmentations=("dropout", "dropout"))([encoder.preprocess(sentences)])
    assert "same vector" not in caplog.text


def test_views_that_are_changed_or_meant_to_be_equal_say_nothing(
    still_encoder: SentenceTransformer, sentences: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    features = [still_encoder.train().preprocess(sentences)]
    SimCSELoss(still_encoder, augmentations=("none", "none"))(features)
    SimCSELoss(still_encoder, augmentations=("dropout", "token_cutoff"))(features)
    ConSERTLoss(still_encoder)(features)
    assert "same vector" not in caplog.text
    ConSERTLoss(still_encoder, augmentations=("dropout", "dropout"))(features)
    assert "ConSERTLoss got the same vector" in caplog.text


def test_evaluation_says_nothing_and_leaves_it_to_training(
    still_encoder: SentenceTransformer, sentences: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    features = [still_encoder.preprocess(sentences)]
    loss = SimCSELoss(still_encoder)
    with torch.no_grad():
        loss(features)
    still_encoder.eval()
    loss(features)
    assert SAID not in caplog.text
    still_encoder.train()
    loss(features)
    assert SAID in caplog.text


def test_it_costs_no_pass_and_no_random_number(make_encoder: Maker, sentences: list[str]) -> None:
    states, values = [], []
    for checked in (False, True):
        model = make_encoder(dropout=0.1).train()
        loss = SimCSELoss(model)
        loss._compared_views = checked
        features = [model.preprocess(sentences)]
        torch.manual_seed(5)
        with count_rows(model) as passes:
            before = snapshot(loss)
            values.append(loss(features))
        assert passes == [16]
        assert not differing(before, snapshot(loss))
        states.append(torch.get_rng_state())
    assert torch.equal(values[0], values[1])
    assert torch.equal(states[0], states[1])


def test_a_frozen_encoder_is_refused(encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = SimCSELoss(encoder.train().requires_grad_(False), projection=True)
    with pytest.raises(ValueError, match="model is frozen"):
        loss([encoder.preprocess(sentences)])
    with torch.no_grad():
        assert loss([encoder.preprocess(sentences)]).isfinite()


def test_a_fresh_adapter_is_looked_at_again(
    still_encoder: SentenceTransformer, sentences: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """LoRA adds 0 at first, so its dropout tells no views apart before the first step."""
    peft = pytest.importorskip("peft")
    model = still_encoder
    model.transformers_model.add_adapter(peft.LoraConfig(r=2, lora_dropout=0.5, target_modules=["query"]))
    model.train()
    loss = SimCSELoss(model)
    features = [model.preprocess(sentences)]
    loss(features)
    assert not hasattr(loss, "_compared_views")
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    loss(features)
    assert loss._compared_views
    assert "same vector" not in caplog.text


def test_a_copy_of_a_loss_trains_on(still_encoder: SentenceTransformer, sentences: list[str]) -> None:
    loss = SimCSELoss(still_encoder.train())
    names = set(loss.state_dict())
    loss([still_encoder.preprocess(sentences)])
    assert set(loss.state_dict()) == names
    assert copy.deepcopy(loss)([still_encoder.preprocess(sentences)]).isfinite()


def test_same_views() -> None:
    views = draw(4, 8).float()
    assert are_same_views(views, views.clone())
    assert are_same_views(views, views * (1 + 1e-7))
    assert not are_same_views(views, views + 1e-3 * draw(4, 8, seed=1))
    one_row = views.clone()
    one_row[2] += 0.1
    assert not are_same_views(views, one_row)
    assert not are_same_views(views, views[:3])
    assert are_same_views(views.bfloat16(), (views * (1 + 1e-4)).bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert are_same_views(views, views * (1 + 1e-3))
    assert are_same_views(torch.zeros(2, 3), torch.zeros(2, 3))


def test_the_check_alone(still_encoder: SentenceTransformer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    loss = SimCSELoss(still_encoder.train())
    views = draw(4, 16).requires_grad_()
    warn_if_same_views(loss, views, views + 1)
    assert loss._compared_views
    assert not caplog.records
