"""What each option of each loss may be: a refusal names the option; tests/test_checks.py has every kind of value."""

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from st_extras.losses import SimCSELoss
from tests.losses.cases import KINDS, build

OUT_OF_RANGE: dict[str, list[Any]] = {
    **{key: [0, 1e-05, 100000.0] for key in ("temperature", "noise_temperature", "adversary_temperature")},
    **{key: [0, 1] for key in ("cutoff_rate", "masked_share", "low_frequency_ratio", "mask_ratio")},
    **{key: [-1, 1e300] for key in ("noise_step_size", "adversary_learning_rate", "adversary_weight_decay")},
    **{key: [-1, 1e300] for key in ("base_weight", "adversarial_weight", "incomplete_weight")},
    **{key: [-1, 1e300] for key in ("difference_scale", "product_scale", "generative_weight", "mlm_weight")},
    **{key: [-1, 1.5] for key in ("warmup_steps", "reversal_steps", "decoder_warmup_steps")},
    **{key: [-0.1, 1] for key in ("adversary_momentum", "decoder_dropout")},
    "threshold": [-1, 1.01],
    "noise_ratio": [-1, 1e9],
    "noise_std": [0, 1e300],
    "noise_steps": [-1, 1.5, 10**30],
    "num_adversaries": [-1, 1.5, 10**11],
    "momentum": [-0.1, 1.1],
    "reversal_strength": [0, 1e300],
    "num_decoder_layers": [0, 1.5, 10**6],
    "max_phrase_length": [2, 4.5, 10**9],
    "mini_batch_size": [0, 1.5],
}
"""Beyond both ends of each number's range."""
NOT_THOSE: dict[str, list[Any]] = {
    "generator": [7, np.random.default_rng(1)],
    "frequency_table": [None, {"a": 1}],
    "base_loss": ["simcse", SimCSELoss],
    "complementary_model": [5, nn.Linear(2, 2)],
    "complementary_table": ["table.safetensors"],
    "augmentations": [5, None, "shuffle", ["dropout"], [["none"], "none"], {"dropout": 1, "shuffle": 2}],
    "model": [None, "bert-base-uncased", nn.Linear(2, 2), SentenceTransformer],
    **{key: ["none", None] for key in ("adversary", "noise_norm", "adversary_start")},
    **{key: ["free", 1] for key in ("decoder_output", "decoder_start", "on_missing_mask")},
}
"""What an argument that is no number may not be."""


def wrong_values(option: str, default: Any) -> list[Any]:
    if isinstance(default, bool):
        return ["False", 1, None]
    if option in OUT_OF_RANGE:
        kinds = [True, "1", math.nan, torch.tensor(1.0)]
        return kinds + OUT_OF_RANGE[option] + ([] if default is None else [None])
    return NOT_THOSE.get(option, [])


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_refuses_other_values_by_its_name(encoder, frequency_table, kind):
    for option, parameter in inspect.signature(kind).parameters.items():
        wrong = wrong_values(option, parameter.default)
        assert wrong or option == "mini_batch_num_tokens", option  # parts/test_gradient_cache.py
        for value in wrong:
            with pytest.raises(ValueError, match=rf"^{option} must be [^\n]*, got [^\n]*\.$"):
                build(kind, **{"model": encoder, option: value}, table=frequency_table)


@pytest.mark.parametrize("kind", KINDS)
def test_bools_of_numpy_are_taken(encoder, kind):
    for option, default in (kind.__init__.__kwdefaults__ or {}).items():
        needs = {"warmup_steps": 1} if option == "warmup_discriminators" else {}
        for value in (np.True_, np.False_) if isinstance(default, bool) else ():
            plain = build(kind, encoder, **{option: value}, **needs).get_config_dict()[option]
            assert type(plain) is bool
            assert plain == value
