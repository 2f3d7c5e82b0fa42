"""What each option of each loss may be; a refusal is one sentence that names the option and what was given."""

import inspect
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

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
from tests.losses.cases import build

_WITH_TABLE = (FrequencyAdversarialLoss, IncompleteSentenceFilteringLoss, SLTFAILoss)

KINDS = (SimCSELoss, ConSERTLoss, DCLRLoss, AdCSELoss, *_WITH_TABLE, PaSeRLoss)
_TEMPERATURES = [0, -1, 1e-300, 1e300, 1e-5, 1e5]
_WEIGHTS = [-1, 1e300]
RANGES: dict[str, list[Any]] = {
    "temperature": _TEMPERATURES,
    "cutoff_rate": [0, 1, -1],
    "threshold": [-1, 1.01],
    "masked_share": [0, 1, -0.1, 14],
    "noise_ratio": [-1, 1e9],
    "noise_std": [0, -1, 1e-300, 1e300],
    "noise_steps": [-1, 1.5, 10**30],
    "noise_step_size": _WEIGHTS,
    "noise_temperature": _TEMPERATURES,
    "num_adversaries": [-1, 1.5, 10**11],
    "momentum": [-0.1, 1.1],
    "adversary_learning_rate": _WEIGHTS,
    "adversary_momentum": [-0.1, 1],
    "adversary_weight_decay": _WEIGHTS,
    "adversary_temperature": _TEMPERATURES,
    "low_frequency_ratio": [0, 1, -1],
    "mask_ratio": [0, 1, -1],
    "reversal_strength": [0, -1, 1e300],
    "reversal_steps": [-1, 1.5],
    "base_weight": _WEIGHTS,
    "adversarial_weight": _WEIGHTS,
    "incomplete_weight": _WEIGHTS,
    "warmup_steps": [-1, 1.5],
    "num_decoder_layers": [0, 1.5, 10**6],
    "difference_scale": _WEIGHTS,
    "product_scale": _WEIGHTS,
    "generative_weight": _WEIGHTS,
    "mlm_weight": _WEIGHTS,
    "decoder_dropout": [-0.1, 1],
    "decoder_warmup_steps": [-1, 1.5],
    "max_phrase_length": [2, 4.5, 10**9],
    "mini_batch_size": [0, -1, 1.5],
}
"""What each number may not be."""
OPTIONS = [(kind, name, value) for kind in KINDS for name, value in (kind.__init__.__kwdefaults__ or {}).items()]
BOOLS = [(kind, name) for kind, name, value in OPTIONS if isinstance(value, bool)]
NUMBERS = [(kind, name) for kind, name, _ in OPTIONS if name in RANGES]
NOT_NUMBERS: list[Any] = [True, "1", [1], math.nan, math.inf, np.float32("nan"), torch.tensor(1.0), 10**400]


@pytest.fixture
def make(encoder, frequency_table):
    """``make(DCLRLoss, noise_ratio=0)``: the loss on the tiny encoder, with a frequency table if it needs one."""

    def one(kind: Any, model: Any = encoder, **options: Any) -> nn.Module:
        loss: nn.Module = build(kind, model, table=frequency_table, **options)
        return loss

    return one


def refused(option: str) -> Any:
    return pytest.raises(ValueError, match=rf"^{option} must be [^\n]*, got [^\n]*\.$")


@pytest.mark.parametrize(("kind", "option"), BOOLS)
def test_a_bool_option_takes_a_bool(make, kind, option):
    for value in ("False", "", 0, 1, None, []):
        with pytest.raises(ValueError, match=rf"^{option} must be True or False, got {re.escape(repr(value))}\.$"):
            make(kind, **{option: value})
    needs = {"warmup_steps": 1} if option == "warmup_discriminators" else {}
    for right in (np.True_, np.False_):
        plain = make(kind, **{option: right}, **needs).get_config_dict()[option]  # type: ignore[operator]
        assert type(plain) is bool
        assert plain == right


def test_every_number_has_its_range_here():
    numbers = {name for _, name, value in OPTIONS if isinstance(value, (int, float)) and not isinstance(value, bool)}
    assert numbers - RANGES.keys() == set()


@pytest.mark.parametrize(("kind", "option"), NUMBERS)
def test_a_number_is_a_number_in_its_range(make, kind, option):
    optional = kind.__init__.__kwdefaults__[option] is None
    wrong = [*NOT_NUMBERS, *RANGES[option], *([] if optional else [None])]
    for value in wrong:
        with refused(option):
            make(kind, **{option: value})


NOT_THOSE: dict[str, list[Any]] = {
    "generator": [7, "cpu", np.random.default_rng(1), torch.Generator],
    "frequency_table": [None, "counts.json", {"a": 1}],
    "base_loss": ["simcse", SimCSELoss, 1],
    "complementary_model": [5, True, [], nn.Linear(2, 2)],
    "complementary_table": ["table.safetensors", 5, {}],
    "augmentations": [5, None, "shuffle", ["dropout"], [["none"], "none"], "ab", {"dropout": 1, "shuffle": 2}],
    "adversary": ["none", 1, None],
    "model": [None, "bert-base-uncased", nn.Linear(2, 2), SentenceTransformer],
}
"""What an argument of another kind may not be."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_is_what_it_must_be(make, kind):
    for option in NOT_THOSE.keys() & inspect.signature(kind).parameters.keys():
        for value in NOT_THOSE[option]:
            with refused(option):
                make(kind, **{option: value})
