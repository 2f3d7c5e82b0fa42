from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss, SimCSELoss
from st_extras.losses.parts.batch_checks import are_same_views
from tests.helpers import count_rows, differing, draw, snapshot

Maker = Callable[..., SentenceTransformer]


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


def test_evaluation_says_nothing_and_leaves_it_to_training(
    still_encoder: SentenceTransformer, sentences: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    features = [still_encoder.preprocess(sentences)]
    loss = SimCSELoss(still_encoder)
    with torch.no_grad():
        loss(features)
    still_encoder.eval()
    loss(features)
    assert not caplog.records
    still_encoder.train()
    loss(features)
    assert "same vector" in caplog.text


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


@pytest.mark.parametrize("options", [{}, {"mini_batch_size": 3}])
def test_a_frozen_encoder_is_refused(
    encoder: SentenceTransformer, sentences: list[str], options: dict[str, Any]
) -> None:
    losses = SimCSELoss(encoder, projection=True, **options), ConSERTLoss(encoder, **options), AdCSELoss(encoder)
    encoder.train().requires_grad_(False)
    for loss in losses:
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


def test_views_of_other_shapes_are_refused(encoder: SentenceTransformer) -> None:
    for loss in (SimCSELoss(encoder), ConSERTLoss(encoder), DCLRLoss(encoder), AdCSELoss(encoder)):
        for views in ([draw(4, 16), draw(3, 16)], [draw(4, 16)], [draw(4, 16)] * 3):
            with pytest.raises(ValueError, match=rf"^{type(loss).__name__} compares two views of one shape, got "):
                loss.compute_loss_from_embeddings(views)


@pytest.mark.parametrize("options", [{}, {"mini_batch_size": 2}])
def test_a_batch_of_one_without_negatives_is_said_once(
    encoder: SentenceTransformer, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    one = [encoder.train().preprocess(["a cat"])]
    for loss in (SimCSELoss(encoder, **options), ConSERTLoss(encoder, **options), DCLRLoss(encoder, noise_ratio=0)):
        caplog.clear()
        with torch.no_grad():
            loss(one)
        assert not caplog.records
        assert [float(loss(one)) for _ in range(2)] == [0, 0]
        assert [record.message.split()[0] for record in caplog.records] == [type(loss).__name__]
    caplog.clear()
    for loss in (DCLRLoss(encoder, complementary_model="self"), AdCSELoss(encoder)):
        assert loss(one) != 0  # noise and adversaries are left
    assert not caplog.records
