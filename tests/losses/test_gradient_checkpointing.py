"""Gradient checkpointing: each layer runs again in the backward pass, and the gradients stay what they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss, SimCSELoss, SLTFAILoss
from tests.helpers import generator

LOSSES: dict[str, Any] = {
    "simcse": lambda model, frequency_table: SimCSELoss(model),
    "consert": lambda model, frequency_table: ConSERTLoss(model, generator=generator(1)),
    "consert with dropout": lambda model, frequency_table: ConSERTLoss(model, dropout=True, generator=generator(1)),
    "recipe": lambda model, frequency_table: DCLRLoss(
        model, augmentations=("feature_cutoff", "shuffle"), generator=generator(1)
    ),
    "adcse": lambda model, frequency_table: AdCSELoss(model, generator=generator(1)),
    "slt-fai over consert": lambda model, frequency_table: SLTFAILoss(
        model,
        frequency_table=frequency_table,
        base_loss=ConSERTLoss(model, generator=generator(2)),
        generator=generator(1),
    ),
}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_gradient_checkpointing(make_encoder, sentences, frequency_table, name, reentrant):
    gradients, calls = [], []
    for checkpointed in (False, True):
        model = make_encoder(dropout=0.5).train()
        body = model.transformers_model
        if checkpointed:
            body.gradient_checkpointing_enable({"use_reentrant": reentrant})
            body.enable_input_require_grads()
        torch.manual_seed(0)
        loss = LOSSES[name](model, frequency_table)
        passes: list[bool] = []
        body.encoder.layer[0].attention.register_forward_hook(lambda *_, p=passes: p.append(torch.is_grad_enabled()))
        torch.manual_seed(1)
        value: Tensor | dict[str, Tensor] = loss([model.preprocess(sentences)])
        in_forward = len(passes)
        (sum(value.values()) if isinstance(value, dict) else value).backward()
        calls.append((in_forward, len(passes) - in_forward))
        gradients.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
        assert all(module.training for module in model.modules())
    plain, checkpointed_calls = calls
    assert plain[1] == 0
    assert checkpointed_calls == (plain[0], plain[0])
    assert gradients[0].keys() == gradients[1].keys()
    for key, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][key], gradient)
