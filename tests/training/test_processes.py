"""FSDP and DeepSpeed are refused where they cannot work, before anything is written."""

from contextlib import nullcontext
from typing import Any

import pytest
from sentence_transformers import SentenceTransformerTrainer

from st_extras.losses import AdCSELoss, ConSERTLoss, SimCSELoss
from st_extras.training import LossStateCallback, train_encoder
from st_extras.training.processes import sharder
from tests.helpers import arguments

NOTHING: dict[str, str] = {}
ASKED: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"fsdp": True}, NOTHING, "FSDP 2"),
    ({"fsdp": "full_shard auto_wrap", "fsdp_config": {"version": 1}}, NOTHING, "FSDP 1"),
    ({"fsdp": True, "fsdp_config": {"fsdp_version": 1}}, NOTHING, "FSDP 1"),
    ({"deepspeed": "zero3.json"}, NOTHING, "DeepSpeed"),
    ({}, {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, "FSDP 2"),
    ({}, {"ACCELERATE_USE_FSDP": "true"}, "FSDP 1"),
    ({}, {"ACCELERATE_USE_FSDP": "1"}, "FSDP 1"),
    ({}, {"ACCELERATE_USE_DEEPSPEED": "YES"}, "DeepSpeed"),
    ({}, {"ACCELERATE_USE_DEEPSPEED": "true"}, "DeepSpeed"),
]


@pytest.mark.parametrize(("settings", "environment", "kind"), ASKED)
def test_train_encoder_refuses_it(encoder, sentences, tmp_path, monkeypatch, settings, environment, kind):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert sharder(settings) == kind
    with pytest.raises(ValueError, match=rf"^train_encoder needs the whole model .*got {kind}: "):
        train_encoder(encoder, SimCSELoss, sentences, tmp_path / "out", **settings)
    assert list(tmp_path.iterdir()) == []


def test_usually_nothing_is_sharded(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")
    for settings in ({}, {"fsdp": False}, {"fsdp": "", "fsdp_config": {"version": 2}, "deepspeed": None}):
        assert sharder(settings) is None


@pytest.mark.parametrize(
    ("settings", "loss", "message"),
    [
        ({"fsdp": True}, AdCSELoss, r"^A loss with its own parameters \('loss\."),
        ({"fsdp": True}, ConSERTLoss, r"^augmentations must"),  # cutoffs need the word embeddings
        ({"fsdp": True}, SimCSELoss, None),
        ({"fsdp": True, "fsdp_config": {"version": 1}}, SimCSELoss, "FSDP 2, got FSDP 1"),
        ({"deepspeed": "zero3.json"}, SimCSELoss, "FSDP 2, got DeepSpeed"),
    ],
)
def test_what_a_loss_needs_of_the_model(encoder, tmp_path, settings, loss, message):
    trainer = SentenceTransformerTrainer(encoder, args=arguments(tmp_path), loss=loss(encoder))
    vars(trainer.args).update(settings)  # without a GPU or DeepSpeed, the arguments cannot be made
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        LossStateCallback.attach(trainer)
