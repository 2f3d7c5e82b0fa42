"""LoRA in ``train_encoder``: on a decoder in half precision, resumed, with its best weights, and merged at the end."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from st_extras.encoders import load_encoder
from st_extras.encoders.prompt_template import PROMPT_EOL
from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss, PaSeRLoss, SimCSELoss, SLTFAILoss
from st_extras.text import PhraseMasking
from st_extras.training.checkpoints import RECORD
from st_extras.training.trainer import TRAINED
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot
from tests.losses.cases import Case
from tests.training.test_run import InterruptAfter, ScriptedEvaluator, short_training

pytestmark = pytest.mark.slow

pytest.importorskip("peft")
CUT = ("token_cutoff", "feature_cutoff")


LOSSES: dict[str, Case] = {
    "simcse": Case(SimCSELoss),
    "consert": Case(ConSERTLoss, {"augmentations": CUT}),
    "dclr, guided by itself": Case(DCLRLoss, {"complementary_model": "self", "augmentations": CUT}),
    "dclr, guided by the base model": Case(DCLRLoss, {"complementary_model": "start", "masked_share": 0.3}),
    "adcse": Case(AdCSELoss),
    "slt-fai": Case(SLTFAILoss, {"on_missing_mask": "delete"}),
    "paser": Case(PaSeRLoss, {"on_missing_mask": "delete", "mlm_weight": 0}),
}
PHRASES = PhraseMasking(mask_token=None, on_missing_mask="delete").dataset(SENTENCES)
FORMS = [(loss, "bfloat16", True) for loss in LOSSES if "base model" not in loss]
FORMS += [("simcse", "float32", False)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_decoder(tmp_path_factory.mktemp("lora") / "llama")


def load(folder: Path, **options: Any) -> SentenceTransformer:
    settings = {"pooling": "lasttoken", "prompt_template": PROMPT_EOL, "dropout": 0.1, "device": "cpu"}
    return load_encoder(folder, **(settings | options))


@pytest.mark.parametrize(("loss", "dtype", "bf16"), FORMS)
def test_every_loss_trains_a_decoder(folder, tmp_path, caplog, loss, dtype, bf16):
    model = load(folder, dtype=dtype)
    before, data = model.encode(SENTENCES), PHRASES if loss == "paser" else SENTENCES
    options = {"max_steps": 3, "lora": 4, "bf16": bf16, "gradient_checkpointing": True}
    run = short_training(model, tmp_path / "out", LOSSES[loss].make, data, **options)
    after = model.encode(SENTENCES)
    assert np.isfinite(after).all()
    assert np.abs(after - before).max() > 0.05
    assert np.isfinite(run.trainer.state.log_history[-1]["train_loss"])
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}
    saved = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(saved.encode(SENTENCES), after, atol=0.02 if bf16 else 0)  # autocast stays on the model
    assert "weights to train are in" not in caplog.text


@pytest.mark.parametrize(("loss", "made_before"), [("dclr, guided by the base model", False), ("adcse", True)])
def test_resumed_it_ends_with_the_same_weights(folder, tmp_path, loss, made_before):
    def train(output: Path, **options: Any) -> SentenceTransformer:
        model = load(folder)
        made = LOSSES[loss].make(model) if made_before else LOSSES[loss].make
        short_training(model, output, made, max_steps=4, lora=4, **options)
        return model

    whole = train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", callbacks=[InterruptAfter(2)])
    shutil.copytree(tmp_path / "parts.checkpoints", tmp_path / "other.checkpoints")
    parts = train(tmp_path / "parts", resume=True)
    checkpoint = tmp_path / "other.checkpoints" / "checkpoint-2"
    assert differing(snapshot(whole), snapshot(parts)) == set()
    assert differing(snapshot(load(folder)), snapshot(parts)) != set()
    names = load_file(checkpoint / TRAINED).keys()
    assert names
    assert all(".lora_" in name for name in names), "a checkpoint holds only what is trained"
    assert not (checkpoint / "model.safetensors").exists()
    recorded = json.loads((checkpoint.parent / RECORD).read_text())
    assert recorded["lora"] == {"lora_dropout": 0.05, "r": 4, "target_modules": "all-linear"}  # alpha is peft's 8
    other = load(folder, dropout=0.3, prompt_template="{} is", dtype="bfloat16")
    with pytest.raises(ValueError, match=r"got others: checkpoints is .*; encoder is .*; lora is "):
        short_training(other, tmp_path / "other", LOSSES[loss].make, max_steps=4, lora=8, resume=True)


def test_the_best_weights_are_merged(folder, tmp_path):
    model, short = load(folder), load(folder)
    options: dict[str, Any] = {"lora": 4, "lr_scheduler_type": "constant"}
    evaluator = ScriptedEvaluator([0.1, 0.9, 0.2])
    run = short_training(model, tmp_path / "out", SimCSELoss, max_steps=4, evaluator=evaluator, **options)
    assert run.best_step == 2
    short_training(short, tmp_path / "short", SimCSELoss, max_steps=2, **options)
    for name, value in snapshot(short).items():
        torch.testing.assert_close(snapshot(model)[name], value)


def test_a_frozen_encoder_is_trained_by_its_adapters_and_half_precision_causes_a_warning(folder, tmp_path, caplog):
    decoder = load(folder, dtype="bfloat16").requires_grad_(False)
    before = decoder.encode(SENTENCES)
    short_training(decoder, tmp_path / "out", AdCSELoss, max_steps=3, lora=4)
    assert np.abs(decoder.encode(SENTENCES) - before).max() > 0.05
    assert not any(parameter.requires_grad for parameter in decoder.parameters())
    assert "weights to train are in bfloat16" not in caplog.text
    short_training(decoder.requires_grad_(True), tmp_path / "whole", SimCSELoss, max_steps=1)
    assert "weights to train are in bfloat16" in caplog.text
