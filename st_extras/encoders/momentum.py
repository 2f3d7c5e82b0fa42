"""A copy of the trained encoder that follows it as a moving average."""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from collections.abc import Mapping
from types import MethodType
from typing import Any, TypeVar, cast

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.encoders import apply_head, unwrap
from st_extras.rows import Features

logger = logging.getLogger(__name__)
_Module = TypeVar("_Module", bound=nn.Module)
_Pairs = list[tuple[Tensor, Tensor]]
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_SHARED = ("tokenizer", "processor", "model_card_data")


def require_trainable(model: nn.Module) -> None:
    """A ValueError where no parameter of the model can be trained."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            "model is frozen: none of its parameters has requires_grad=True, so there is nothing to train."
        )


class MomentumEncoder(nn.Module):
    """An untied encoder whose weights are a moving average of the trained one's (He et al., 2020; AdCSE eq. 4).

    theta_p = m theta_p + (1 - m) theta_q. The copy has no gradients and no optimizer state, and it is in
    ``state_dict()``. It is an exact copy of the model when made, and again at the first :meth:`update` unless its
    state was restored: weights that were loaded, moved, cast or wrapped (PEFT) in between count.

    The weights are averaged in the model's own precision. Below float32 most steps round to nothing: train a
    float32 model with ``bf16=True`` or ``fp16=True`` (autocast), which the copy then uses too.

    Args:
        model: the SentenceTransformer to follow (or a DistributedDataParallel / ``torch.compile`` wrapper).
        momentum: m, in [0, 1]. 1: the copy stays as it was; 0: it is the model of the step before.
        head: a projection head to copy and follow too.
        dropout: whether the copy's dropout is on while it is in training mode.
    """

    initialised: Tensor

    def __init__(
        self, model: nn.Module, momentum: float = 0.995, *, head: nn.Module | None = None, dropout: bool = True
    ) -> None:
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be in [0, 1], got {momentum!r}.")
        self.momentum = momentum
        self.dropout = dropout
        self.encoder = _copy_module(unwrap(model), {})
        self.projection_head = None if head is None else _copy_module(head, {})
        self.register_buffer("initialised", torch.zeros((), dtype=torch.bool, device=unwrap(model).device))
        self._adopted = False

    def match(self, model: nn.Module, head: nn.Module | None = None) -> None:
        """Take over the model's structure where it was changed (PEFT) since the copy was made.

        What both have keeps the copy's values, what is new is copied. For use before a state is read or written.
        """
        if not self._adopted and _layout(self.encoder) != _layout(unwrap(model)):
            self._adopt(unwrap(model), head)

    @torch.no_grad()
    def update(self, model: nn.Module, head: nn.Module | None = None) -> None:
        """Eq. 4 for all parameters, buffers copied; the first call makes the copy exact instead.

        Raises:
            ValueError: the model is frozen, or has other parameters than at the first call.
        """
        source = unwrap(model)
        starts = False
        if not self._adopted:
            require_trainable(source)
            self._adopt(source, head)
            self._adopted, starts = True, not bool(self.initialised)
            self.initialised.fill_(True)
        averaged, copied = self._pairs(source, head)
        if starts:
            averaged, copied = [], averaged + copied
        if averaged:
            own_weights, their_weights = [own for own, _ in averaged], [theirs for _, theirs in averaged]
            torch._foreach_lerp_(own_weights, their_weights, 1 - self.momentum)
        for own, theirs in copied:
            own.copy_(theirs)

    def forward(self, features: Features) -> Tensor:
        """(B, D) embeddings, after the head where there is one, without gradients."""
        with torch.no_grad():
            return apply_head(self.projection_head, [self.encoder(dict(features))["sentence_embedding"]])[0]

    def train(self, mode: bool = True) -> MomentumEncoder:
        """Training mode, in which dropout is on only if asked for."""
        super().train(mode)
        if not self.dropout:
            self.encoder.eval()
        return self

    def _adopt(self, source: SentenceTransformer, head: nn.Module | None) -> None:
        """Rebuild the modules as the model's now are, on the tensors that the copy already has."""
        self.encoder = _copy_module(source, dict(self.encoder.named_parameters()))
        if head is not None:
            self.projection_head = _copy_module(head, dict(cast(nn.Module, self.projection_head).named_parameters()))
        if any(p.is_floating_point() and p.dtype.itemsize < 4 for p in source.parameters()) and self.momentum > 0.9:
            logger.warning(
                "The model's parameters are in half precision, where a moving average with momentum %s hardly moves: "
                "train a float32 model with bf16=True.",
                self.momentum,
            )

    def _pairs(self, source: nn.Module, head: nn.Module | None) -> tuple[_Pairs, _Pairs]:
        """(own, theirs) to average, and to copy (buffers, quantised weights); own follows device and dtype."""
        modules: list[tuple[nn.Module, nn.Module]] = [(self.encoder, source)]
        if head is not None:
            modules.append((cast(nn.Module, self.projection_head), head))
        averaged: _Pairs = []
        copied: _Pairs = []
        for mine, other in modules:
            if [p.shape for p in mine.parameters()] != [p.shape for p in other.parameters()]:
                raise ValueError(
                    "model has other parameters than when training began: add adapters or layers before the first "
                    "training step, or make a new loss."
                )
            tensors = ((*module.parameters(), *module.buffers()) for module in (mine, other))
            for own, theirs in zip(*tensors, strict=True):
                if own.dtype != theirs.dtype or own.device != theirs.device:
                    own.data = own.data.to(theirs)
                average = isinstance(own, nn.Parameter) and own.is_floating_point()
                (averaged if average else copied).append((own, theirs.detach()))
        return averaged, copied


def _layout(module: nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, parameter.shape) for name, parameter in module.named_parameters()]


def _copy_module(module: _Module, reuse: Mapping[str, nn.Parameter]) -> _Module:
    """A frozen deep copy without hooks; tokenizers are shared, and tensors shared inside stay shared.

    Args:
        module: the original.
        reuse: parameters to build the copy on, values kept, where name and shape are the original's.
    """
    memo: dict[int, Any] = {}
    for name, child in module.named_modules():
        if name.split(".")[-1] == "model" and isinstance(child, SentenceTransformer):
            raise ValueError(
                f"model holds a SentenceTransformer named {name!r}, which the trainer would replace by the trained "
                "model in the momentum copy: give that attribute another name."
            )
        memo.update((id(child.__dict__[kind]), OrderedDict()) for kind in _HOOKS if kind in child.__dict__)
        memo.update((id(child.__dict__[kind]), child.__dict__[kind]) for kind in _SHARED if kind in child.__dict__)
        forward = child.__dict__.get("forward")
        if forward is not None and not isinstance(forward, MethodType):
            memo[id(forward)] = forward  # a wrapper for one call (MatryoshkaLoss), dropped below
    for name, original in module.named_parameters():
        own = reuse.get(name)
        if own is not None and own.shape == original.shape:
            own.data = own.data.to(original)
            memo[id(original)] = own
    copied = copy.deepcopy(module, memo)
    for child in copied.modules():
        child.__dict__.pop("_output_capturing_hooks_installed", None)  # transformers puts its hooks on again
        if not isinstance(child.__dict__.get("forward"), MethodType):  # autocast's wrapper is a method, and stays
            child.__dict__.pop("forward", None)
        if "gradient_checkpointing" in child.__dict__:
            child.gradient_checkpointing = False  # type: ignore[assignment]
    return copied.requires_grad_(False)
