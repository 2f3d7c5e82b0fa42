"""What each option of each loss may be; a refusal is one sentence that names the option and what was given."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
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
    epochs_to_steps,
)
from st_extras.text.frequency import FrequencyTable
from tests.helpers import generator
from tests.losses.cases import build

Make = Callable[..., nn.Module]
_WITH_TABLE = (FrequencyAdversarialLoss, IncompleteSentenceFilteringLoss, SLTFAILoss)

_PAIRS = ["gather_across_devices"]
BOOLS: dict[Any, list[str]] = {
    SimCSELoss: [*_PAIRS, "projection"],
    DCLRLoss: [*_PAIRS, "projection", "include_positive"],
    ConSERTLoss: [*_PAIRS, "include_positive", "dropout"],
    AdCSELoss: [*_PAIRS, "tied", "in_batch_negatives", "symmetric", "projection", "shared_head", "key_dropout"],
    PaSeRLoss: ["decoder_pre_norm"],
    FrequencyAdversarialLoss: ["balanced"],
    IncompleteSentenceFilteringLoss: ["always_mask_one"],
    SLTFAILoss: ["always_mask_one", "balanced", "warmup_discriminators"],
}

_TEMPERATURES = [0, -1, 1e-300, 1e300, 1e-5, 1e5]
_WEIGHTS = [-1, 1e300]
_SLT_FAI: dict[str, list[Any]] = {
    "low_frequency_ratio": [0, 1, -1],
    "mask_ratio": [0, 1, -1],
    "reversal_strength": [0, -1, 1e300],
    "reversal_steps": [-1, 1.5],
}
NUMBERS: dict[Any, dict[str, list[Any]]] = {
    SimCSELoss: {"temperature": _TEMPERATURES, "cutoff_rate": [0, 1, -1]},
    ConSERTLoss: {"temperature": _TEMPERATURES, "cutoff_rate": [0, 1, -1]},
    DCLRLoss: {
        "temperature": _TEMPERATURES,
        "cutoff_rate": [0, 1],
        "threshold": [-1, 1.01],
        "masked_share": [0, 1, -0.1, 14],
        "noise_ratio": [-1, 1e9],
        "noise_std": [0, -1, 1e-300, 1e300],
        "noise_steps": [-1, 1.5, 10**30],
        "noise_step_size": [-1, 1e300],
        "noise_temperature": _TEMPERATURES,
    },
    AdCSELoss: {
        "temperature": _TEMPERATURES,
        "num_adversaries": [-1, 1.5, 10**11],
        "momentum": [-0.1, 1.1],
        "adversary_learning_rate": [-1, 1e300],
        "adversary_momentum": [-0.1, 1],
        "adversary_weight_decay": [-1, 1e300],
        "adversary_temperature": _TEMPERATURES,
    },
    FrequencyAdversarialLoss: {key: _SLT_FAI[key] for key in _SLT_FAI if key != "mask_ratio"},
    IncompleteSentenceFilteringLoss: {key: _SLT_FAI[key] for key in ("low_frequency_ratio", "mask_ratio")},
    SLTFAILoss: {
        **_SLT_FAI,
        "base_weight": _WEIGHTS,
        "adversarial_weight": _WEIGHTS,
        "incomplete_weight": _WEIGHTS,
        "warmup_steps": [-1, 1.5],
    },
    PaSeRLoss: {
        "num_decoder_layers": [0, 1.5, 10**6],
        "difference_scale": _WEIGHTS,
        "product_scale": _WEIGHTS,
        "generative_weight": _WEIGHTS,
        "mlm_weight": _WEIGHTS,
        "decoder_dropout": [-0.1, 1],
        "decoder_warmup_steps": [-1, 1.5],
        "max_phrase_length": [2, 4.5, 10**9],
    },
}
_MAY_BE_NONE = {"threshold", "masked_share", "noise_temperature", "mlm_weight", "max_phrase_length"} | {
    "adversary_temperature"
}
GENERATORS = (DCLRLoss, ConSERTLoss, AdCSELoss, IncompleteSentenceFilteringLoss, SLTFAILoss, PaSeRLoss)
NOT_NUMBERS: list[Any] = [True, "1", [1], math.nan, math.inf, np.float32("nan"), torch.tensor(1.0), 10**400]


@pytest.fixture
def make(encoder: SentenceTransformer, frequency_table: FrequencyTable) -> Make:
    """``make(DCLRLoss, noise_ratio=0)``: the loss on the tiny encoder, with a frequency table if it needs one."""

    def one(kind: Any, model: Any = encoder, **options: Any) -> nn.Module:
        loss: nn.Module = build(kind, model, table=frequency_table, **options)
        return loss

    return one


def refused(option: str) -> Any:
    return pytest.raises(ValueError, match=rf"^{option} must be [^\n]*, got [^\n]*\.$")


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind in BOOLS for option in BOOLS[kind]])
def test_a_bool_option_takes_a_bool(make: Make, kind: Any, option: str) -> None:
    for value in ("False", "", 0, 1, None, []):
        with pytest.raises(ValueError, match=rf"^{option} must be True or False, got {re.escape(repr(value))}\.$"):
            make(kind, **{option: value})
    needs = {"warmup_steps": 1} if option == "warmup_discriminators" else {}
    for right in (np.True_, np.False_):
        plain = make(kind, **{option: right}, **needs).get_config_dict()[option]  # type: ignore[operator]
        assert type(plain) is bool
        assert plain == right


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind in NUMBERS for option in NUMBERS[kind]])
def test_a_number_is_a_number_in_its_range(make: Make, kind: Any, option: str) -> None:
    wrong = [*NOT_NUMBERS, *NUMBERS[kind][option], *([] if option in _MAY_BE_NONE else [None])]
    for value in wrong:
        with refused(option):
            make(kind, **{option: value})


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind in NUMBERS for option in NUMBERS[kind]])
def test_numbers_of_numpy_are_numbers(make: Make, kind: Any, option: str) -> None:
    default = kind.__init__.__kwdefaults__[option]
    others = {"max_phrase_length": 8, "mlm_weight": 1, "noise_temperature": 0.5, "threshold": 0.5, "masked_share": 0.5}
    others["adversary_temperature"] = 0.5
    value = others.get(option, default)
    scalar = np.int64(value) if isinstance(value, int) else np.float32(value)
    needs = {"complementary_model": "self"} if option == "masked_share" else {}
    config: Any = make(kind, **{option: scalar}, **needs).get_config_dict  # type: ignore[union-attr]
    if option in config():  # the model card is written as JSON and YAML
        assert type(config()[option]) in (int, float)
        assert config()[option] == pytest.approx(value)


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generator_is_torchs(make: Make, kind: Any) -> None:
    for value in (7, "cpu", np.random.default_rng(1), torch.Generator):
        with refused("generator"):
            make(kind, generator=value)
    make(kind, generator=generator(1))


def test_options_of_a_term_that_is_off_are_checked_too(make: Make) -> None:
    for weight, options in (
        ("adversarial_weight", {"reversal_strength": "1", "reversal_steps": "1", "adversary": 1, "balanced": 1}),
        ("incomplete_weight", {"mask_ratio": 2, "always_mask_one": "no", "generator": 7}),
    ):
        for option, value in options.items():
            with refused(option):
                make(SLTFAILoss, **{weight: 0, option: value})
    for option, value in {"momentum": "no", "key_dropout": "no"}.items():
        with refused(option):
            make(AdCSELoss, tied=True, **{option: value})
    with refused("generator"):
        make(PaSeRLoss, mlm_weight=0, generator=7)


@pytest.mark.parametrize("kind", NUMBERS)
def test_the_model_is_a_sentence_transformer(make: Make, kind: Any) -> None:
    for value in (None, "bert-base-uncased", nn.Linear(2, 2), SentenceTransformer):
        with refused("model"):
            make(kind, model=value)


@pytest.mark.parametrize("kind", _WITH_TABLE)
def test_the_frequency_table_is_a_frequency_table(make: Make, kind: Any) -> None:
    for value in (None, "counts.json", {"a": 1}):
        with refused("frequency_table"):
            make(kind, frequency_table=value)


@pytest.mark.parametrize("kind", [SLTFAILoss, PaSeRLoss])
def test_the_base_loss_is_a_loss(make: Make, kind: Any) -> None:
    for value in ("simcse", SimCSELoss, 1):
        with refused("base_loss"):
            make(kind, base_loss=value)


def test_the_guide_is_an_encoder_and_the_table_a_table(make: Make) -> None:
    for value in (5, True, [], nn.Linear(2, 2)):
        with refused("complementary_model"):
            make(DCLRLoss, complementary_model=value)
    for table in ("table.safetensors", 5, {}):
        with refused("complementary_table"):
            make(DCLRLoss, complementary_table=table)
    with pytest.raises(ValueError, match="no/such/guide"):
        make(DCLRLoss, complementary_model="no/such/guide")


@pytest.mark.parametrize("kind", [SimCSELoss, ConSERTLoss, DCLRLoss])
def test_augmentations_are_two_names(make: Make, kind: Any) -> None:
    for value in (5, None, "shuffle", ["dropout"], [["none"], "none"], "ab", {"dropout": 1, "shuffle": 2}):
        with pytest.raises(ValueError, match=r"^augmentations must be two of [^\n]*, got [^\n]*\.$"):
            make(kind, augmentations=value)


@pytest.mark.parametrize(
    ("argument", "values"),
    {
        "epochs": [*NOT_NUMBERS, None, -1, 1e300],
        "num_sentences": [*NOT_NUMBERS, None, 0, 1.5],
        "batch_size": [*NOT_NUMBERS, None, 0, -1, 1.5],
        "num_processes": [*NOT_NUMBERS, None, 0, 1.5],
    }.items(),
)
def test_epochs_to_steps(argument: str, values: list[Any]) -> None:
    right = {"epochs": 0.5, "num_sentences": 100, "batch_size": 8, "num_processes": 1}
    assert epochs_to_steps(**right) == 6  # type: ignore[arg-type]
    for value in values:
        with refused(argument):
            epochs_to_steps(**(right | {argument: value}))


def test_reconstruct(make: Make) -> None:
    loss: Any = make(PaSeRLoss, num_decoder_layers=1)
    for option in ("batch_size", "max_length"):
        for value in (0, -1, 1.5, "2", True, None):
            with refused(option):
                loss.reconstruct(["a cat"], ["a [MASK]"], **{option: value})
    for wrong in ("a cat", None, [5], 5):
        with pytest.raises(ValueError, match=r"^sentences"):
            loss.reconstruct(wrong, ["a [MASK]"])
        with pytest.raises(ValueError, match=r"^masked"):
            loss.reconstruct(["a cat"], wrong)
