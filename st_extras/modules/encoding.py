"""How a corpus is encoded to fit on: the options of ``encode``, one pool for all chunks, and which encoder it was."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import nn

from st_extras.checks import shown
from st_extras.encoders.distributed import device_pool
from st_extras.encoders.loading import check_length
from st_extras.encoders.source import Source

_FIXED = {"batch_size", "show_progress_bar", "output_value", "precision", "normalize_embeddings", "truncate_dim"}


def check_options(encode_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options for ``encode`` as a dictionary; None is none.

    Raises:
        ValueError: if one of them would change what embeddings are.
    """
    options = dict(encode_options or {})
    wrong = sorted(_FIXED & options.keys())
    if wrong:
        raise ValueError(
            f"encode_options must hold such as device, pool, chunk_size, prompt or prompt_name, got {wrong[0]!r}: "
            "statistics are those of whole, plain embeddings."
        )
    return options


def prompt_text(model: SentenceTransformer, encode_options: Mapping[str, Any] | None) -> str:
    """Return the text that ``encode`` puts before each sentence with these options.

    Raises:
        ValueError: if an option is not allowed, or the model has no prompt of that name.
    """
    options = check_options(encode_options)
    if options.get("prompt") is not None:
        return options["prompt"]  # type: ignore[no-any-return]
    name = options.get("prompt_name")
    if name is not None and name not in model.prompts:
        known = ", ".join(map(repr, model.prompts)) or "none"
        raise ValueError(f"prompt_name in encode_options must be one of the model's ({known}), got {shown(name)}.")
    name = name if name is not None else model.default_prompt_name
    return "" if name is None else str(model.prompts.get(name) or "")


@contextmanager
def part_of_model(
    model: SentenceTransformer, modules: Sequence[nn.Module], encode_options: Mapping[str, Any] | None = None
) -> Iterator[SentenceTransformer]:
    """Yield ``model`` made of ``modules`` only, to encode a corpus with; no weight is copied.

    Several devices get one pool of processes, one a device, for all calls of ``encode``; it is stopped at the end.

    Raises:
        ValueError: if an option is not allowed, the model would fail at a long text, or the processes of a given pool
            hold another model than this part.
    """
    check_length(model)
    options = check_options(encode_options)
    if options.pop("prompt_name", None) is not None:
        options["prompt"] = prompt_text(model, encode_options)
    part = copy.copy(model)
    part._modules = OrderedDict((str(i), module) for i, module in enumerate(modules))
    part.truncate_dim = None
    if options.get("pool") is not None:
        _check_pool(part, options["pool"])
    with device_pool(part, options) as pooled:
        bound = copy.copy(part)  # the processes got the part without the options, which hold their pool
        bound.encode = functools.partial(part.encode, **pooled)  # type: ignore[method-assign, assignment]
        yield bound


def _check_pool(part: SentenceTransformer, pool: Any) -> None:
    """Check that the processes of ``pool``, which have models of their own, encode as ``part`` does."""
    pooled = copy.copy(part)
    pooled.encode = functools.partial(part.encode, pool=pool)  # type: ignore[method-assign, assignment]
    difference = Source.of(part, "").difference(Source.of(pooled, ""))
    if difference is not None:
        raise ValueError(
            "pool in encode_options must be started from the model without Normalize and post-processing, got "
            f'{difference}: give device=["cuda:0", ...] instead, which starts one.'
        )
