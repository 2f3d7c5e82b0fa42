"""Less padding: run the rows of a batch through the transformer in groups of similar length."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_count, check_instance


def use_length_buckets(model: SentenceTransformer, buckets: int = 4) -> None:
    """Run each batch of ``model``'s transformer as groups of rows of similar length, each padded to its own longest.

    Outputs at content positions equal those of one padded batch (padding gives zeros); only the dropout masks differ.
    Use it where unpadded attention (``unpad_inputs``) is not available, such as on CPU, and sentences differ in
    length. An encoder that returns all its layers (for pooling over several) runs as before.

    Args:
        model: the model, changed in place until it is saved and loaded again; copies of it (a momentum encoder) are
            changed too.
        buckets: groups per batch, of equally many rows.

    Raises:
        ValueError: if ``buckets`` is below 1, or the model's first module is not a transformer.
    """
    buckets = check_count("buckets", buckets, at_least=1)
    check_instance("model", model, SentenceTransformer)
    transformer = model.transformers_model
    if transformer is None:
        raise ValueError(f"model must start with a transformer, got {type(model[0]).__name__}.")
    if not hasattr(transformer, "length_buckets"):
        transformer.__class__ = _in_buckets(type(transformer))
    transformer.length_buckets = buckets  # type: ignore[assignment]


def _in_buckets(cls: Any) -> Any:
    """Return a subclass that runs in buckets. It has the same name, so that its configuration is saved as before."""

    def reduced(self: Any, protocol: Any) -> tuple[Any, ...]:
        _, _, *state = cls.__reduce_ex__(self, protocol)
        return _new, (cls,), *state  # a class made here cannot be imported where the copy is

    members = {"__module__": cls.__module__, "forward": _bucketed(cls.forward), "__reduce_ex__": reduced}
    return type(cls.__name__, (cls,), members)


def _new(cls: Any) -> Any:
    bucketed = _in_buckets(cls)
    return bucketed.__new__(bucketed)


def _bucketed(forward: Callable[..., Any]) -> Callable[..., Any]:
    names = list(inspect.signature(forward).parameters)[1:]

    @wraps(forward)  # keeps the signature, by which callers choose what to pass
    def in_buckets(self: Any, *positional: Any, **named: Any) -> Any:
        inputs = dict(zip(names, positional, strict=False)) | named
        attention_mask = inputs.pop("attention_mask", None)
        all_layers = inputs.get("output_hidden_states") or self.config.output_hidden_states
        if attention_mask is None or attention_mask.ndim != 2 or all_layers:
            return forward(self, attention_mask=attention_mask, **inputs)
        rows, width = attention_mask.shape
        columns = torch.arange(1, width + 1, device=attention_mask.device)
        lengths = (attention_mask.bool() * columns).amax(dim=1).clamp(min=1)  # padding may stand on either side
        order = lengths.argsort(stable=True)
        hidden = []
        for chosen in order.chunk(self.length_buckets):
            longest = int(lengths[chosen[-1]])
            part = {
                key: value[chosen, :longest] if _is_per_token(value, rows, width) else value
                for key, value in inputs.items()
            }
            output = forward(self, attention_mask=attention_mask[chosen, :longest], **part)
            hidden.append(nn.functional.pad(output.last_hidden_state, (0, 0, 0, width - longest)))
        return type(output)(last_hidden_state=torch.cat(hidden)[order.argsort()])  # (B, L, D)

    return in_buckets


def _is_per_token(value: Any, rows: int, width: int) -> bool:
    return isinstance(value, Tensor) and value.shape[:2] == (rows, width)
