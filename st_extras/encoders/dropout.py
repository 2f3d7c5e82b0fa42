"""The dropout of a transformer, set after it was loaded: in its configuration and in the modules that apply it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import PretrainedConfig

from st_extras.checks import check_interval
from st_extras.encoders.structure import unwrap

_DROPOUT = re.compile(r"(.*_)?(dropout|pdrop)(_prob|_rate)?")
_ELSEWHERE = {"classifier", "classif", "qa", "summary", "pooler", "activation", "token", "lora"}
"""First words of dropouts that no token embedding passes, or that BERT lacks (after the activation function)."""
_REMEDY = "use views by cutoff, augmentations=('token_cutoff', 'token_cutoff'), or LoRA, which has a dropout of its own"


def set_dropout(model: SentenceTransformer, rate: float) -> None:
    """Set the dropout of a model's transformer, in place: embeddings, hidden layers and attention, as BERT has them.

    Which settings these are is read from the configuration: names that contain ``dropout`` or ``pdrop``, but for those
    of classifiers, poolers, activations and whole layers (``layerdrop``). The configuration that is saved has the new
    rate; ``encode`` is not affected. No weight is changed or copied and no random state moves.

    Works with every transformer of ``transformers`` that has such a setting, also one that was built without dropout.

    Args:
        model: the SentenceTransformer; its first module is a transformer.
        rate: probability of dropping a value, in [0, 1). 0 turns dropout off.

    Raises:
        ValueError: if the rate is out of range, the model does not start with a transformer, or this architecture has
            no dropout that can be set.
    """
    check_interval("dropout", rate, 0, 1, high_included=False)
    body = cast(Any, unwrap(model).transformers_model)
    if body is None or not isinstance(getattr(body, "config", None), PretrainedConfig):
        raise ValueError(
            f"dropout needs an encoder that starts with a transformer, got {type(model[0]).__name__}: give each "
            "sentence a positive in a second column instead."
        )
    settings = list(_settings(body.config))
    if rate > 0 and not settings:
        raise ValueError(
            f"dropout must be 0 or None for a {type(body).__name__}, which has no setting for it, got {rate}: "
            f"{_REMEDY}."
        )
    try:
        for owner, name, _ in settings:
            setattr(owner, name, rate)
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            twin = type(body)(copy.deepcopy(body.config))
    except Exception as error:  # whatever an architecture raises: MPT declares its rate a whole number
        raise ValueError(
            f"dropout must be 0 or None for a {type(body).__name__}, which does not take another rate after loading, "
            f"got {rate}: {_REMEDY}."
        ) from error
    _copy_dropouts(twin, body)


def dropout_rates(model: SentenceTransformer) -> dict[str, float]:
    """Return the rates that :func:`set_dropout` would set, by their names in the configuration."""
    config = getattr(unwrap(model).transformers_model, "config", None)
    return {name: value for _, name, value in _settings(config)} if isinstance(config, PretrainedConfig) else {}


def _settings(config: PretrainedConfig) -> Iterator[tuple[PretrainedConfig, str, float]]:
    """Yield the dropouts of a configuration and of those inside it: the owner, the name, the rate."""
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            yield from _settings(value)
        elif _is_rate(value) and _DROPOUT.fullmatch(name) and name.split("_")[0] not in _ELSEWHERE:
            yield config, name, value


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _copy_dropouts(twin: nn.Module, body: nn.Module) -> None:
    """Copy the dropouts of a transformer that was built anew from the configuration, on the meta device.

    Setting ``p`` of the modules is not enough: some architectures build none if the rate is 0, others keep the rate as
    a number for a function, and the names of both differ.
    """
    own = dict(body.named_modules())
    for path, built in twin.named_modules():
        mine = own.get(path)
        if mine is None:
            continue
        if type(mine) is not type(built) and {type(mine), type(built)} == {nn.Identity, nn.Dropout}:
            parent, _, name = path.rpartition(".")
            setattr(own[parent], name, built.train(mine.training))
            continue
        for name, value in vars(built).items():
            if (name == "p" or "drop" in name) and _is_rate(value) and _is_rate(vars(mine).get(name)):
                setattr(mine, name, value)
