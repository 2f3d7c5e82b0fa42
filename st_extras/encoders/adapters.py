"""LoRA: a model's linear layers get small trained updates, everything else of the transformer is frozen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_count
from st_extras.encoders.structure import unwrap

if TYPE_CHECKING:
    from peft import LoraConfig

LARGEST_RANK = 4096
"""A larger rank than the size of a layer would not be one of low rank."""


def lora_config(lora: Any) -> LoraConfig:
    """Return the settings of LoRA adapters as peft reads them.

    Args:
        lora: a rank, the arguments of ``peft.LoraConfig``, or one.

    Raises:
        ImportError: if peft is not installed.
        ValueError: if it is none of these, or peft refuses an argument.
    """
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise ImportError('lora needs peft: pip install "st-extras[lora]".') from error
    if isinstance(lora, LoraConfig):
        return lora
    if isinstance(lora, Mapping):
        return LoraConfig(**({"target_modules": "all-linear"} | dict(lora)))
    rank = check_count("lora", lora, 1, LARGEST_RANK)
    return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear")


def lora_settings(lora: Any) -> dict[str, Any]:
    """Return the settings of LoRA adapters that are not peft's defaults, in one order."""
    config = lora_config(lora)
    given = {name: sorted(value) if isinstance(value, set) else value for name, value in vars(config).items()}
    usual = vars(type(config)())
    return {name: value for name, value in sorted(given.items()) if value != usual.get(name)}


@contextmanager
def lora_adapters(
    model: SentenceTransformer, lora: int | Mapping[str, Any] | LoraConfig | None
) -> Iterator[Callable[[], None]]:
    """Give a model's transformer LoRA adapters, unless ``lora`` is None, and yield a function that merges them.

    Every linear layer W of the transformer becomes W + (alpha / r) B A with trained A (r x in) and B (out x r), kept in
    float32 where W is in half precision; B starts at zero, so the model is at first what it was. The rest of the
    transformer is frozen; modules after it (a Dense) stay trainable. Modules keep their names and identity but for the
    linear layers, so that a loss may be made before or after. Merged, the transformer is a plain one again. If they
    were not merged, because the body failed or was interrupted, they are removed at the end, with what they learned;
    either way, all of it is as trainable as before.

    Works with transformers that peft knows how to adapt: linear layers of torch and GPT-2's. Needs peft
    (``pip install "st-extras[lora]"``).

    Paper: Edward J. Hu et al.: "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022,
    https://arxiv.org/abs/2106.09685

    Args:
        model: the SentenceTransformer; its first module is a transformer.
        lora: the rank r, or the arguments of ``peft.LoraConfig``, or one. A rank stands for all linear layers,
            alpha = 2 r and a dropout of 0.05; a dict without ``target_modules`` also means all linear layers.

    Raises:
        ImportError: if peft is not installed.
        ValueError: if ``lora`` is none of these, or the model has adapters already or no linear layer that matches.
    """
    if lora is None:
        yield lambda: None
        return
    config = copy.deepcopy(lora_config(lora))  # peft writes the names of the layers into it
    from peft import LoraModel
    from peft.tuners.tuners_utils import BaseTunerLayer

    body: Any = unwrap(model).transformers_model
    if body is None:
        raise ValueError(f"lora needs an encoder that starts with a transformer, got {type(model[0]).__name__}.")
    if any(isinstance(module, BaseTunerLayer) for module in body.modules()):
        raise ValueError("lora needs a model without adapters, got one that has some: merge or remove them first.")
    trainable = {name for name, parameter in body.named_parameters() if parameter.requires_grad}
    there: list[Any] = [LoraModel(body, config, "default")]
    del body.peft_config  # transformers would take the adapters for its own, which it saves without the rest
    for parameter in body.parameters():
        if parameter.requires_grad and parameter.dtype.itemsize < 4:  # the adapters of weights in half precision
            parameter.data = parameter.data.float()

    def leave(*, merge: bool = True) -> None:
        there[0].merge_and_unload() if merge else there[0].unload()
        for name, parameter in body.named_parameters():
            parameter.requires_grad_(name in trainable)
        there.clear()

    try:
        yield leave
    finally:
        if there:
            leave(merge=False)


def trained_state(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's state without its frozen parameters: what training can have changed."""
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


def check_adapters(model: SentenceTransformer) -> None:
    """Refuse to train or to refine an encoder that was cut in memory and then given adapters.

    Sentence Transformers saves such adapters alone, and loads them onto the whole encoder.

    Raises:
        ValueError: if it was.
    """
    body: Any = unwrap(model).transformers_model
    if getattr(body, "cut_in_memory", False) and hasattr(body, "peft_config"):
        raise ValueError(
            "model must be a whole encoder or a saved one to be used with add_adapter, got one that was cut to its "
            f"first {body.config.num_hidden_layers} layers in memory: train with lora=16, which merges the adapters, "
            "or save the cut encoder and load it before add_adapter."
        )
