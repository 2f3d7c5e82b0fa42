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
    with pytest.raises(ValueError, match=rf"^train_encoder needs the whole model in every process, .*got {kind}: "):
        train_encoder(encoder, SimCSELoss, sentences, tmp_path / "out", **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "settings", [{}, {"fsdp": False}, {"fsdp": "", "fsdp_config": {"version": 2}, "deepspeed": None}]
)
def test_usually_nothing_is_sharded(monkeypatch, settings):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")
    assert sharder(settings) is None


def attach(model: SentenceTransformer, make: Callable[..., Any], folder: Path, settings: dict[str, Any]) -> None:
    trainer = SentenceTransformerTrainer(model, args=arguments(folder), loss=make(model))
    vars(trainer.args).update(settings)  # without a GPU or DeepSpeed, the arguments cannot be made
    LossStateCallback.attach(trainer)


@pytest.mark.parametrize("kind", ["FSDP 1", "FSDP 2", "DeepSpeed"])
@pytest.mark.parametrize("make", [lambda model: SimCSELoss(model, projection=True), AdCSELoss])
def test_a_loss_with_parameters_needs_the_whole_model(encoder, tmp_path, kind, make):
    settings = next(settings for settings, _, name in ASKED if name == kind)
    with pytest.raises(ValueError, match=rf"^A loss with its own parameters \('loss\..*'.*without {kind}, "):
        attach(encoder, make, tmp_path, settings)


@pytest.mark.parametrize("kind", ["FSDP 1", "DeepSpeed"])
def test_without_parameters_fsdp_2_works(encoder, tmp_path, kind):
    attach(encoder, SimCSELoss, tmp_path, {"fsdp": True, "fsdp_config": {"version": 2}})
    settings = next(settings for settings, _, name in ASKED if name == kind)
    with pytest.raises(ValueError, match=rf"goes with DistributedDataParallel and FSDP 2, got {kind}, .*\.$"):
        attach(encoder, SimCSELoss, tmp_path, settings)


def test_cutoffs_need_the_word_embeddings(encoder, tmp_path):
    settings = {"fsdp": True}
    attach(encoder, lambda model: ConSERTLoss(model, augmentations=("shuffle", "dropout")), tmp_path, settings)
    with pytest.raises(ValueError, match=r"^augmentations must be .* with FSDP 2, got 'feature_cutoff'"):
        attach(encoder, ConSERTLoss, tmp_path, settings)
