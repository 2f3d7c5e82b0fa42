"""A copy of the trained encoder whose weights follow it as a moving average."""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from st_extras.checks import check_interval
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import require_trainable, unwrap

logger = logging.getLogger(__name__)
_Module = TypeVar("_Module", bound=nn.Module)
_Pairs = list[tuple[Tensor, Tensor]]
_SHARED = ("tokenizer", "processor", "model_card_data")


class MomentumEncoder(nn.Module):
    """A copy of the encoder whose weights are a moving average of the trained one's; it shares the frozen ones.

    Sources: He et al., 2020, https://arxiv.org/abs/1911.05722; AdCSE, eq. 4.

    theta_p = m theta_p + (1 - m) theta_q. The copy has no gradients and no optimizer state, and is saved in
    ``state_dict()``. It is an exact copy of the model when made, and is made again at the first :meth:`update`, unless
    its state was restored: the model may be loaded, moved, cast or given adapters (PEFT) in between. Parameters that
    are not trained are the model's own tensors, not copies: with LoRA, the copy costs an adapter.

    The weights are averaged in the model's own precision, and below float32 most updates round to nothing: train a
    float32 model with ``bf16=True`` or ``fp16=True`` (autocast), which the copy then uses too.

    Args:
        model: the SentenceTransformer to follow (or a DistributedDataParallel / ``torch.compile`` wrapper).
        momentum: m, in [0, 1]. 1: the copy never changes after the first update; 0: it equals the model after each.
        head: a projection head to copy and follow too; nn.Identity: none.

    Raises:
        ValueError: if momentum is not in [0, 1].
    """

    initialised: Tensor

    def __init__(self, model: nn.Module, momentum: float = 0.995, *, head: nn.Module | None = None) -> None:
        super().__init__()
        self.momentum = check_interval("momentum", momentum, 0, 1)
        self._copy(model, head)
        self.register_buffer("initialised", torch.zeros((), dtype=torch.bool, device=unwrap(model).device))
        self._follows = False
        self._paired: list[tuple[Any, ...]] = []
        self._averaged: _Pairs = []
        self._copied: _Pairs = []

    def _copy(self, model: nn.Module, head: nn.Module | None) -> None:
        self.encoder = _copy_module(unwrap(model))
        self.projection_head = nn.Identity() if head is None else _copy_module(head)

    def renew(self, model: nn.Module, head: nn.Module | None = None) -> None:
        """Copy the model again, which may have got adapters (PEFT), unless the copy follows it or was restored."""
        if not self._follows and not self.initialised:
            self._copy(model, head)

    @torch.no_grad()
    def update(self, model: nn.Module, head: nn.Module | None = None) -> None:
        """Apply eq. 4 to all parameters and copy buffers; the first call makes an exact copy instead.

        Raises:
            ValueError: if the model is frozen, or has other parameters, or trains others, than at the first call.
        """
        source, head = unwrap(model), nn.Identity() if head is None else head
        if not self._follows:  # read once: on a GPU, the buffer makes the CPU wait
            require_trainable(source)
            self._warn_of_half_precision(source)
            self.renew(source, head)
            self._follows, is_first = True, not self.initialised
            self.initialised.fill_(True)
            if is_first:
                return
        tensors = [*source.parameters(), *source.buffers(), *head.parameters()]
        state = [(id(one), one.requires_grad, one.dtype, one.device) for one in tensors]
        if state != self._paired:  # the first time, or the model was moved or cast since
            self._averaged, self._copied = self._pairs(source, head)
            self._paired = state
        if self._averaged:
            own_weights, their_weights = [own for own, _ in self._averaged], [theirs for _, theirs in self._averaged]
            average = get_ema_multi_avg_fn(self.momentum)  # type: ignore[no-untyped-call]
            average(own_weights, their_weights, None)
        for own, theirs in self._copied:
            own.copy_(theirs)

    def forward(self, features: Features) -> Tensor:
        """Return (B, D) embeddings, after the head if there is one, without gradients."""
        with torch.no_grad():
            embeddings: Tensor = self.projection_head(self.encoder(dict(features))["sentence_embedding"])
            return embeddings

    def _warn_of_half_precision(self, source: nn.Module) -> None:
        trained = [p.dtype for p in source.parameters() if p.requires_grad and p.is_floating_point()]
        if any(dtype.itemsize < 4 for dtype in trained) and self.momentum > 0.9:
            logger.warning(
                "The model is in half precision, in which a moving average with momentum %s hardly moves: "
                "train a float32 model with bf16=True.",
                self.momentum,
            )

    def _pairs(self, source: nn.Module, head: nn.Module) -> tuple[_Pairs, _Pairs]:
        """Pair the copy's tensors with the model's: those to average, those to copy (buffers, quantised weights)."""
        averaged: _Pairs = []
        copied: _Pairs = []
        for mine, other in ((self.encoder, source), (self.projection_head, head)):
            own_shapes, their_shapes = ([p.shape for p in module.parameters()] for module in (mine, other))
            shared = {id(p) for p in mine.parameters()}
            if own_shapes != their_shapes or any(p.requires_grad and id(p) in shared for p in other.parameters()):
                raise ValueError(
                    "The model's parameters have changed since training began: add adapters or layers, and unfreeze "
                    "parameters, before the first training step, or make a new loss."
                )
            tensors = ((*module.parameters(), *module.buffers()) for module in (mine, other))
            for own, theirs in zip(*tensors, strict=True):
                if own is theirs:
                    continue  # frozen
                if own.dtype != theirs.dtype or own.device != theirs.device:
                    own.data = own.data.to(theirs)
                average = isinstance(own, nn.Parameter) and own.is_floating_point()
                (averaged if average else copied).append((own, theirs))
        return averaged, copied


def renew_at_state_dict(loss: nn.Module) -> None:
    """Renew ``loss.momentum_encoder`` before the loss's state is read or written: its keys are then the model's."""
    loss.register_state_dict_pre_hook(_renew)  # type: ignore[no-untyped-call]
    loss.register_load_state_dict_pre_hook(_renew)  # type: ignore[no-untyped-call]


def _renew(loss: Any, *_: Any) -> None:
    loss.momentum_encoder.renew(loss.model, loss.projection_head)


def _copy_module(module: _Module) -> _Module:
    """Return a frozen deep copy without hooks; it shares tokenizers and frozen parameters with the original."""
    memo: dict[int, Any] = {}
    for child in module.modules():
        # torch names no way to copy a module without its hooks, which would then run for the original
        hooks = [own for kind, own in vars(child).items() if "_hooks" in kind and isinstance(own, dict)]
        memo.update((id(own), OrderedDict()) for own in hooks)
        memo.update((id(child.__dict__[kind]), child.__dict__[kind]) for kind in _SHARED if kind in child.__dict__)
        forward = child.__dict__.get("forward")
        if forward is not None and not isinstance(forward, MethodType):
            memo[id(forward)] = forward  # a wrapper for one call (MatryoshkaLoss), removed below
    memo.update((id(parameter), parameter) for parameter in module.parameters() if not parameter.requires_grad)
    copied = copy.deepcopy(module, memo)
    for child in copied.modules():
        # nothing public takes the hooks of transformers off, or puts them on: without its mark, it puts them on again
        child.__dict__.pop("_output_capturing_hooks_installed", None)
        if not isinstance(child.__dict__.get("forward"), MethodType):  # autocast's wrapper is a method and stays
            child.__dict__.pop("forward", None)
    return copied.requires_grad_(False)
