"""Every option of every loss acts: it changes the first steps of a training, where a value lost on the way would not.

Zero too, wherever it is allowed and not the default: ``value or default`` would lose it. What an option may not be is
refused by its name; tests/test_checks.py has every kind of value.
"""

import functools
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import EmbeddingTable
from st_extras.losses import ConSERTLoss, PaSeRLoss, SLTFAILoss
from tests.fixtures import SENTENCES
from tests.helpers import generator, some_fast
from tests.losses.cases import KINDS, Case, build, settings_of, step

_STRONG = {"adversary_learning_rate": 0.5}
_SELF = {"complementary_model": "self"}


def _table(model: SentenceTransformer) -> EmbeddingTable:
    rows = model.preprocess(SENTENCES)["input_ids"].tolist()
    keys = [[token for token in row if token] for row in rows]  # 0 is padding
    return EmbeddingTable(keys, torch.ones(len(keys), 2))


ACTS: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "temperature": [(0.3, {})],
    "augmentations": [(("token_cutoff", "shuffle"), {})],
    "generator": [(lambda _: generator(9), {"augmentations": ("token_cutoff", "shuffle")})],
    "complementary_model": [("self", {"threshold": -0.9})],
    "complementary_table": [(_table, {"threshold": -0.9})],
    "threshold": [(-0.9, _SELF), (0, _SELF)],
    "masked_share": [(0.3, _SELF)],
    "noise_ratio": [(0.5, {}), (0, {})],
    "noise_steps": [(1, {}), (0, {})],
    "noise_norm": [("unit", {})],
    "num_adversaries": [(32, {}), (0, {})],
    "momentum": [(0.5, {}), (0, {})],
    "adversary_start": [("features", {})],
    "adversary_learning_rate": [(0.5, {}), (0, _STRONG)],
    "low_frequency_ratio": [(0.9, {})],
    "adversary": [("confusion", {})],
    "mask_ratio": [(0.8, {})],
    "base_loss": [(lambda model: ConSERTLoss(model, generator=generator(3)), {})],
    **{key: [(0.5, {}), (0, {})] for key in ("base_weight", "adversarial_weight", "incomplete_weight")},
    "warmup_steps": [(1, {})],
    "warmup_discriminators": [(True, {"warmup_steps": 2})],
    "num_decoder_layers": [(2, {})],
    **{key: [(0.5, {}), (0, {})] for key in ("generative_weight", "mlm_weight")},
    "decoder_output": [("own", {})],
    "decoder_warmup_steps": [(2, {})],
}
"""Of each option other values than the default, or than what the settings say, and the settings in which they act.

A switch is turned.
"""
ELSEWHERE = {"gather_across_devices", "frequency_table", "on_missing_mask", "mini_batch_size", "mini_batch_num_tokens"}
"""In several processes, without a mask token, or on memory and time alone: shown in tests of their own."""
UNNAMED = {"complementary_model"}
"""Not in the card under its name, see test_dclr.py."""


@pytest.fixture(scope="module")
def first_steps(make_encoder):
    """Losses and sizes of the encoder's gradients in three steps of SGD, of each set of options once."""

    @functools.cache
    def run(kind: Any, options: tuple[tuple[str, Any], ...], again: bool = False) -> tuple[float, ...]:
        model = make_encoder(layers=1)
        settings = {"num_decoder_layers": 1} if kind is PaSeRLoss else {}
        case = Case(kind, settings | dict(options))
        loss = case.make(model.train(), seed=1).train()
        columns, seen = case.features(model), []
        torch.manual_seed(2)
        for _ in range(3):
            seen.append(step(loss, columns, rate=0.1).item())
            seen += [p.grad.norm().item() for p in model.parameters() if p.grad is not None]
        return tuple(seen)

    return run


@pytest.mark.parametrize("kind", some_fast(KINDS, set(KINDS) - {SLTFAILoss, PaSeRLoss}))
def test_an_option_acts_and_is_in_the_card(encoder, first_steps, kind):
    assert first_steps(kind, ()) == first_steps(kind, (), again=True)
    for option, default in settings_of(kind).items():
        if option in ELSEWHERE or option == "model":
            continue
        for value, settings in (
            [(not default, {})] if isinstance(default, bool) and option not in ACTS else ACTS[option]
        ):
            settings = {name: value for name, value in settings.items() if name in settings_of(kind)}
            changed = settings | {option: value}
            assert first_steps(kind, tuple(changed.items())) != first_steps(kind, tuple(settings.items())), changed
            if isinstance(value, int | float | str) and option not in UNNAMED:
                assert Case(kind, changed).make(encoder).get_config_dict()[option] == value


# ---- refusals

BEYOND: dict[str, list[Any]] = {
    **{key: [0] for key in ("temperature", "mini_batch_size")},
    **{key: [0, 1] for key in ("masked_share", "low_frequency_ratio", "mask_ratio")},
    "threshold": [-1],
    "warmup_steps": [1.5],
    "augmentations": ["shuffle", ["dropout"], ["dropout", "shift"]],
}
"""The ends of a range that are not in it; every option refuses an object of no kind."""


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_refuses_other_values_by_its_name(encoder, frequency_table, kind):
    for option in settings_of(kind):
        for value in (object(), *BEYOND.get(option, [])):
            with pytest.raises(ValueError, match=rf"^{option} must be [^\n]*, got [^\n]*\.$"):
                build(kind, **{"model": encoder, option: value}, table=frequency_table)
