"""What the post-processing modules share: models rebuilt around their modules, and passes through part of a model."""

from __future__ import annotations

import copy
import itertools
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module, Normalize, Router
from torch import Tensor, nn

from st_extras.checks import check_batch_size, check_bool, check_count, check_finite_embeddings, check_instance
from st_extras.encoders.loading import check_length, with_modules
from st_extras.encoders.structure import fix_padding_side
from st_extras.modules.model_card import card_of
from st_extras.text.corpus import iterate_sentences

_Module = TypeVar("_Module", bound=Module)
_CHUNK = 2048
ROUNDING = 1e-6
"""Relative difference up to which two embeddings are equal: the rounding of batches of other sizes."""
_LARGEST_DIMENSION = 2**16
OF_THE_HUB = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
"""Arguments of a module's ``load`` that say where its files are."""
_ENCODE_OPTIONS = ("batch_size", "show_progress_bar", "device", "chunk_size", "prompt", "prompt_name")
"""Arguments of ``encode`` for a corpus; others would give other embeddings than those that are post-processed."""


# --- models and their modules ---


def rebuild_model(model: SentenceTransformer, modules: Sequence[nn.Module]) -> SentenceTransformer:
    """Build a model of ``modules`` with the prompts and settings of ``model``; weights are shared, not copied."""
    fix_padding_side(model)
    return with_modules(model, modules, model_card_data=card_of(model))


def model_of(module: Module) -> SentenceTransformer:
    """Return the model that ``module`` belongs to, as remembered by ``remember_model``.

    Raises:
        ValueError: if the module is not part of a model.
    """
    model: SentenceTransformer | None = module.__dict__.get("_model")
    if model is None or not any(part is module for part in model):
        raise ValueError(
            f"this {type(module).__name__} is not part of a model: build it with {type(module).__name__}.attach, "
            "or pass it to SentenceTransformer(modules=[...]) (append does not register it)."
        )
    return model


def remember_model(module: Module, model: Any) -> None:
    """Keep a reference to the model without making it a child of its own module."""
    object.__setattr__(module, "_model", model)


def modules_before(module: Module) -> list[nn.Module]:
    """Return the modules that come before ``module`` in its model."""
    return list(itertools.takewhile(lambda part: part is not module, model_of(module)))


def split_before_normalize(model: SentenceTransformer) -> tuple[list[nn.Module], list[nn.Module]]:
    """Split off the trailing ``Normalize`` modules: post-processing belongs between the two lists.

    Raises:
        ValueError: if ``model`` is not a SentenceTransformer, or starts with a Router whose routes have encoders of
            their own or normalize.
    """
    modules = list(check_instance("model", model, SentenceTransformer))
    if modules and isinstance(modules[0], Router):
        routes: list[Any] = list(modules[0].sub_modules.values())
        if len({id(route[0]) for route in routes}) > 1:
            raise ValueError(
                f"model must have one encoder for all routes of its Router, got one for each of "
                f"{', '.join(modules[0].sub_modules)}: post-process the models of the routes on their own."
            )
        if any(isinstance(route[-1], Normalize) for route in routes):
            raise ValueError(
                "model must not normalize inside the routes of its Router, because post-processing comes before that: "
                "put Normalize after the Router, SentenceTransformer(modules=[router, Normalize()])."
            )
    cut = len(modules)
    while cut and isinstance(modules[cut - 1], Normalize):
        cut -= 1
    return modules[:cut], modules[cut:]


def shared_module(module: Any, cls: Any) -> Any:
    """Return ``module`` as an instance of ``cls`` that shares its weights but has settings of its own."""
    shared = cls.__new__(cls)  # no public way makes a module of loaded weights without loading them again
    shared.__dict__.update(module.__dict__)
    for name in ("_modules", "_parameters", "_buffers"):
        shared.__dict__[name] = dict(module.__dict__[name])
    return shared


# --- saving and loading a module: its settings and its buffers, as Sentence Transformers' own modules do ---


def save_module(module: Module, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
    """Save a module's settings and buffers (an implementation of ``Module.save``)."""
    module.save_config(output_path)
    module.save_torch_weights(output_path, safe_serialization=safe_serialization)


def load_module(cls: type[_Module], model_name_or_path: str, **kwargs: Any) -> _Module:
    """Load a module's settings and buffers from a folder or the Hub (an implementation of ``Module.load``)."""
    hub = {name: kwargs[name] for name in OF_THE_HUB if name in kwargs}
    module = cls(**cls.load_config(model_name_or_path, **hub))
    loaded: _Module = cls.load_torch_weights(model_name_or_path, model=module, **hub)
    return loaded


# --- passes through part of a model ---


def check_encode_options(model: SentenceTransformer, encode_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``encode`` for a corpus, 32 texts per forward pass and no bar by default.

    Raises:
        ValueError: if one is neither among these nor an argument that a module of the model takes, the batch size is
            not a whole number from 1 to 2^20, or the progress bar neither True nor False.
    """
    allowed = [*_ENCODE_OPTIONS, *itertools.chain.from_iterable((model.module_kwargs or {}).values())]
    if unknown := [name for name in encode_options if name not in allowed]:
        raise ValueError(
            f"further arguments must be those of encode ({', '.join(allowed)}), got {unknown[0]!r}: leave it out."
        )
    batch_size = check_batch_size(encode_options.get("batch_size", 32))
    shows_bar = check_bool("show_progress_bar", encode_options.get("show_progress_bar", False))
    return {**encode_options, "batch_size": batch_size, "show_progress_bar": shows_bar}


def part_of_model(model: SentenceTransformer, modules: Sequence[nn.Module]) -> SentenceTransformer:
    """Return ``model`` made of ``modules`` only, to encode a corpus with; no weight is copied.

    Raises:
        ValueError: if the model would fail at a long text.
    """
    check_length(model)
    fix_padding_side(model)
    part = copy.copy(model)
    # SentenceTransformer(modules=...) would call on_model_ready, by which modules learn the model that they belong to
    part._modules = OrderedDict((str(i), module) for i, module in enumerate(modules))  # noqa: SLF001
    part.truncate_dim = None
    return part


@contextmanager
def _process_pool(model: SentenceTransformer, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the options of ``encode``, with a pool of processes in place of several devices; it ends with the block."""
    devices, pool = options.get("device"), None
    if isinstance(devices, list | tuple):
        pool = model.start_multi_process_pool([str(device) for device in devices])
        options = {name: value for name, value in options.items() if name != "device"} | {"pool": pool}
    try:
        yield options
    finally:
        if pool is not None:
            model.stop_multi_process_pool(pool)


# --- embeddings ---


def check_size(embedding_dimension: Any) -> int:
    """Return the size of the embeddings that a module takes, a whole number from 1 to 2^16."""
    return check_count("embedding_dimension", embedding_dimension, 1, _LARGEST_DIMENSION)


def stream_embeddings(
    model: SentenceTransformer, sentences: Any, encode_options: Mapping[str, Any], *, at_once: bool = False
) -> Iterator[Tensor]:
    """Yield the embeddings of ``sentences`` in chunks (<= 2048, D), float64 on the CPU: memory use stays flat.

    Args:
        model: the encoder.
        sentences: any iterable, or a data set with one text column.
        encode_options: see :func:`check_encode_options`. Several devices get one pool of processes for all chunks.
        at_once: yield one chunk with all of them.

    Raises:
        ValueError: if there are no sentences, an item is not a string, an embedding is not finite (the error names the
            sentence), or an option is not allowed.
    """
    options, any_done = check_encode_options(model, encode_options), False
    iterator = iterate_sentences(sentences)
    with _process_pool(model, options) as options:
        while chunk := list(itertools.islice(iterator, None if at_once else _CHUNK)):
            embeddings = model.encode(chunk, convert_to_tensor=True, **options)
            check_finite_embeddings(embeddings, chunk)
            any_done = True
            yield embeddings.to("cpu", torch.float64)  # (N, D)
    if not any_done:
        raise ValueError("sentences must hold at least one text, got none.")


def check_fitted(module: Any, purpose: str) -> None:
    """Check that a module has seen a corpus.

    Raises:
        ValueError: if it has not; the error names the ``purpose``.
    """
    if not module.corpus_size:
        raise ValueError(
            f"{purpose} needs the statistics of a corpus, but this {type(module).__name__} is not fitted: call "
            "fit(sentences), or pass corpus= to attach."
        )
