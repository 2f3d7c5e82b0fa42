"""Every option of every loss changes the first three steps of a training: a value lost on the way would not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import EmbeddingTable
from st_extras.losses import (
    AdCSELoss,
    ConSERTLoss,
    DCLRLoss,
    FrequencyAdversarialLoss,
    IncompleteSentenceFilteringLoss,
    PaSeRLoss,
    SimCSELoss,
    SLTFAILoss,
)
from st_extras.text.frequency import FrequencyTable
from tests.conftest import SENTENCES
from tests.helpers import generator
from tests.losses.phrases import features as phrase_features

Maker = Callable[..., SentenceTransformer]
_CUT = {"augmentations": ("token_cutoff", "shuffle")}
_ASCENT = {"noise_steps": 2, "noise_step_size": 0.5}
_STRONG = {"adversary_learning_rate": 0.5}

CASES: dict[Any, dict[str, tuple[Any, dict[str, Any]]]] = {
    SimCSELoss: {
        "temperature": (0.1, {}),
        "augmentations": (("token_cutoff", "shuffle"), {}),
        "cutoff_rate": (0.6, _CUT),
        "projection": (True, {}),
    },
    ConSERTLoss: {
        "temperature": (0.2, {}),
        "augmentations": (("token_cutoff", "shuffle"), {}),
        "cutoff_rate": (0.6, {}),
        "include_positive": (False, {}),
        "dropout": (True, {}),
        "generator": (generator(9), {}),
    },
    DCLRLoss: {
        "complementary_model": ("self", {"threshold": -0.9}),
        "complementary_table": (None, {"threshold": -0.9}),
        "threshold": (-0.9, {"complementary_model": "self"}),
        "masked_share": (0.3, {"complementary_model": "self"}),
        "noise_ratio": (0.5, {}),
        "noise_std": (0.1, _ASCENT),
        "noise_steps": (1, _ASCENT),
        "noise_step_size": (0.1, _ASCENT),
        "noise_norm": ("unit", _ASCENT),
        "temperature": (0.1, {"noise_temperature": 0.05}),
        "noise_temperature": (1.0, _ASCENT),
        "include_positive": (True, {}),
        "augmentations": (("token_cutoff", "shuffle"), {}),
        "cutoff_rate": (0.6, _CUT),
        "projection": (True, {}),
        "generator": (generator(9), {}),
    },
    AdCSELoss: {
        "num_adversaries": (32, {}),
        "temperature": (0.1, {}),
        "momentum": (0.5, {}),
        "tied": (True, {}),
        "adversary_start": ("features", {}),
        "adversary_learning_rate": (0.5, {}),
        "adversary_momentum": (0.1, _STRONG),
        "adversary_weight_decay": (0.5, _STRONG),
        "adversary_temperature": (1.0, _STRONG),
        "in_batch_negatives": (False, {}),
        "symmetric": (True, {}),
        "projection": (False, {}),
        "shared_head": (True, {}),
        "key_dropout": (False, {}),
        "generator": (generator(9), {}),
    },
    FrequencyAdversarialLoss: {
        "low_frequency_ratio": (0.2, {}),
        "reversal_strength": (0.5, {}),
        "reversal_steps": (9, {}),
        "adversary": ("confusion", {}),
        "balanced": (True, {}),
    },
    IncompleteSentenceFilteringLoss: {
        "low_frequency_ratio": (0.9, {}),
        "mask_ratio": (0.8, {}),
        "always_mask_one": (True, {}),
        "generator": (generator(9), {}),
    },
    SLTFAILoss: {
        "base_loss": (None, {}),
        "base_weight": (0.5, {}),
        "adversarial_weight": (0.5, {}),
        "incomplete_weight": (0.5, {}),
        "warmup_steps": (1, {}),
        "warmup_discriminators": (True, {"warmup_steps": 2}),
        "low_frequency_ratio": (0.9, {}),
        "mask_ratio": (0.8, {}),
        "always_mask_one": (True, {}),
        "reversal_strength": (0.5, {}),
        "reversal_steps": (9, {}),
        "adversary": ("confusion", {}),
        "balanced": (True, {}),
        "generator": (generator(9), {}),
    },
    PaSeRLoss: {
        "num_decoder_layers": (2, {}),
        "difference_scale": (5.0, {}),
        "product_scale": (5.0, {}),
        "generative_weight": (0.5, {}),
        "mlm_weight": (0.5, {}),
        "base_loss": (None, {"mlm_weight": 1.0}),
        "decoder_dropout": (0.5, {}),
        "decoder_output": ("own", {}),
        "decoder_start": ("normal", {}),
        "decoder_pre_norm": (True, {}),
        "decoder_warmup_steps": (2, {}),
        "max_phrase_length": (9, {}),
        "generator": (generator(9), {}),
    },
}
"""The option, another value than the default, and the settings in which it acts; None: made in the test."""


def first_steps(kind: Any, make_encoder: Maker, table: FrequencyTable, options: dict[str, Any]) -> list[float]:
    """Losses and sizes of the encoder's gradients in three steps of SGD."""
    model = make_encoder(hidden_size=16)
    if "complementary_table" in options:
        rows = model.preprocess(SENTENCES)["input_ids"].tolist()
        keys = [[token for token in row if token] for row in rows]  # 0 is padding
        options = options | {"complementary_table": EmbeddingTable(keys, torch.ones(len(keys), 2))}
    if "base_loss" in options:
        options = options | {"base_loss": ConSERTLoss(model, generator=generator(3))}
    if "frequency_table" in inspect.signature(kind).parameters:
        options = options | {"frequency_table": table}
    if "generator" in options:
        options = options | {"generator": generator(9)}
    torch.manual_seed(1)
    loss = kind(model, **options).train()
    columns = phrase_features(model) if kind is PaSeRLoss else [model.preprocess(SENTENCES)]
    seen = []
    torch.manual_seed(2)
    for _ in range(3):
        loss.zero_grad()
        value = loss(columns)
        value = torch.stack(list(value.values())).sum() if isinstance(value, dict) else value
        value.backward()
        seen += [value.item(), *(p.grad.norm().item() for p in model.parameters() if p.grad is not None)]
        with torch.no_grad():
            for parameter in loss.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
    return seen


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind in CASES for option in CASES[kind]])
def test_an_option_acts(make_encoder: Maker, frequency_table: FrequencyTable, kind: Any, option: str) -> None:
    value, settings = CASES[kind][option]
    without = first_steps(kind, make_encoder, frequency_table, settings)
    assert first_steps(kind, make_encoder, frequency_table, settings) == without
    assert first_steps(kind, make_encoder, frequency_table, settings | {option: value}) != without


@pytest.mark.parametrize("kind", CASES)
def test_no_option_is_left_out(kind: Any) -> None:
    """What several processes share is shown by tests/training/test_distributed.py and test_adcse.py.

    ``on_missing_mask`` acts where there is no mask token: shown in the tests of each loss. ``mini_batch_size`` and
    ``mini_batch_num_tokens`` change memory and time alone: tests/losses/parts/test_gradient_cache.py.
    """
    options = {name for name, value in inspect.signature(kind).parameters.items() if value.kind == value.KEYWORD_ONLY}
    assert options - {
        "gather_across_devices",
        "frequency_table",
        "on_missing_mask",
        "mini_batch_size",
        "mini_batch_num_tokens",
    } == (set(CASES[kind]))
