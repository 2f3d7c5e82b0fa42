"""FSDP and DeepSpeed are refused where they cannot work, before anything is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

from st_extras.losses import AdCSELoss, ConSERTLoss, SimCSELoss
from st_extras.training import LossStateCallback, train_encoder
from st_extras.training.processes import sharder
from tests.helpers import arguments

NOTHING: dict[str, str] = {}
ASKED: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"fsdp": True}, NOTHING, "FSDP 2"),
    ({"fsdp": "full_shard auto_wrap", "fsdp_config": {"version": 1}}, NOTHING, "FSDP 1"),
    ({"fsdp": True, "fsdp_config": {"fsdp_version": 1}}, NOTHING, "FSDP 1"),
    ({"deepspeed": {"zero_optimization": {"stage": 3}}}, NOTHING, "DeepSpeed"),
    ({"deepspeed": "zero3.json"}, NOTHING, "DeepSpeed"),
    ({}, {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, "FSDP 2"),
    ({}, {"ACCELERATE_USE_FSDP": "true"}, "FSDP 1"),
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


def attach(model: SentenceTransformer, make: Callable[..., Any], folder: Path, kind: str) -> None:
    trainer = SentenceTransformerTrainer(model, args=arguments(folder), loss=make(model))
    settings = next(settings for settings, _, name in ASKED if name == kind)
    vars(trainer.args).update(settings)  # without a GPU or DeepSpeed, the arguments cannot be made
    LossStateCallback.attach(trainer)


@pytest.mark.parametrize("kind", ["FSDP 1", "FSDP 2", "DeepSpeed"])
def test_what_a_loss_needs_of_the_model(encoder, tmp_path, kind):
    """One with parameters needs the whole model; cutoffs need its word embeddings; others go with FSDP 2."""
    for make in (lambda model: SimCSELoss(model, projection=True), AdCSELoss):
        with pytest.raises(ValueError, match=rf"^A loss with its own parameters \('loss\..*without {kind}, "):
            attach(encoder, make, tmp_path, kind)
    if kind == "FSDP 2":
        attach(encoder, lambda model: ConSERTLoss(model, augmentations=("shuffle", "dropout")), tmp_path, kind)
        with pytest.raises(ValueError, match=r"^augmentations must"):
            attach(encoder, ConSERTLoss, tmp_path, kind)
    else:
        with pytest.raises(ValueError, match=f"FSDP 2, got {kind}, "):
            attach(encoder, SimCSELoss, tmp_path, kind)
