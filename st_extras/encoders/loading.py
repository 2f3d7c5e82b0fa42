"""Load an encoder, cut it to its first layers, give it another pooling."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from torch import nn

from st_extras.checks import check_choice, check_count, shown

PoolingName = Literal["cls", "mean", "max", "first-last", "last-two"]


def load_encoder(
    path: str | PathLike[str],
    *,
    pooling: PoolingName | None = None,
    layers: int | None = None,
    max_seq_length: int | None = None,
    device: str | None = None,
    **options: Any,
) -> SentenceTransformer:
    """Load a SentenceTransformer or a plain transformer, from a folder or the hub.

    The result has only modules of Sentence Transformers, so that a saved one loads without this package. Weights that
    no file has, such as an unused pooler's, are the same at every call, and no global random state changes.

    Args:
        path: a folder or a hub id.
        pooling: "cls", "mean", "max", "first-last" (mean over tokens of the average of the first and the last
            layer) or "last-two". It replaces everything after the transformer, including a Normalize. None: keep the
            model's own modules.
        layers: number of transformer layers to keep, from the first. None: all.
        max_seq_length: most tokens of a text. None: the model's own.
        device: None: a GPU if there is one.
        options: further arguments of SentenceTransformer.

    Raises:
        ValueError: if no encoder can be loaded from the path, or an option does not fit it.
    """
    if pooling is not None:
        check_choice("pooling", pooling, get_args(PoolingName))
    if max_seq_length is not None:
        max_seq_length = check_count("max_seq_length", max_seq_length, at_least=3)
    if layers is not None:
        layers = check_count("layers", layers, at_least=1)
    if not isinstance(path, str | PathLike):
        raise ValueError(f"path must be a folder or a hub id, got {shown(path)}.")
    folder = Path(path)
    if folder.is_dir() and not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise ValueError(f"{str(path)!r} is not an encoder: the folder has neither modules.json nor config.json.")
    if folder.is_file():
        raise ValueError(f"{str(path)!r} is a file: give the encoder's folder or hub id.")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # weights that no file has, such as an unused pooler's
            model = SentenceTransformer(str(path), device=device, **options)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise ValueError(
            f"{str(path)!r} could not be loaded as an encoder: {type(error).__name__}: {reason.rstrip('.')}."
        ) from error
    if layers is not None:
        keep_layers(model, layers)
        averages = [module for module in model if isinstance(module, WeightedLayerPooling)]
        if pooling is None and any(module.num_hidden_layers > layers for module in averages):
            raise ValueError(
                f"pooling must be given with layers={layers}: the encoder's own averages layers by their number."
            )
    if pooling is not None:
        model = with_pooling(model, pooling)
    if max_seq_length is not None:
        longest = _most_positions(getattr(next(model.children()), "auto_model", None)) or max_seq_length
        if max_seq_length > longest:
            raise ValueError(f"max_seq_length must be <= {longest} for this encoder, got {shown(max_seq_length)}.")
        model.max_seq_length = max_seq_length
    return model


def _most_positions(body: Any) -> int | None:
    """Return how many tokens a transformer has positions for; None if it does not say."""
    longest = getattr(getattr(body, "config", None), "max_position_embeddings", None)
    for module in body.modules() if longest else ():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, nn.Embedding) and table.padding_idx is not None:  # RoBERTa counts from there
            return table.num_embeddings - table.padding_idx - 1
    return longest


def _transformer(model: SentenceTransformer) -> Transformer:
    first = next(model.children())
    if not isinstance(first, Transformer):
        raise ValueError(
            f"pooling and layers need an encoder that starts with a transformer, got {type(first).__name__}."
        )
    return first  # type: ignore[no-any-return]


def keep_layers(model: SentenceTransformer, layers: int) -> None:
    """Cut a transformer to its first layers, in place.

    Raises:
        ValueError: if it has fewer layers, or they cannot be found.
    """
    body = _transformer(model).auto_model
    config = cast(Any, body.config)
    total = int(config.num_hidden_layers)
    if check_count("layers", layers, at_least=1) > total:
        raise ValueError(f"layers must be in [1, {total}] for this encoder, got {shown(layers)}.")
    if layers == total:
        return
    stacks = [m for m in body.modules() if isinstance(m, nn.ModuleList) and len(m) == total]
    if len(stacks) != 1:
        raise ValueError(f"layers={layers} is not possible: the layers of a {type(body).__name__} could not be found.")
    del stacks[0][layers:]
    config.num_hidden_layers = layers


def with_pooling(model: SentenceTransformer, pooling: PoolingName) -> SentenceTransformer:
    """Return the transformer of ``model`` (shared, not copied) with the pooling of that name."""
    transformer = _transformer(model)
    dimension = transformer.get_embedding_dimension()
    modules: list[nn.Module] = [transformer]
    mode = pooling
    if pooling in ("first-last", "last-two"):
        config = cast(Any, transformer.auto_model.config)
        config.output_hidden_states = True
        total = int(config.num_hidden_layers)
        weights = torch.zeros(total)  # layers 1 .. total, the embedding layer left out
        weights[[0, -1] if pooling == "first-last" else slice(-2, None)] = 1.0
        averaged = WeightedLayerPooling(dimension, num_hidden_layers=total, layer_start=1)
        averaged.layer_weights = nn.Parameter(weights, requires_grad=False)
        modules.append(averaged)
        mode = "mean"
    modules.append(Pooling(dimension, pooling_mode=mode))
    return with_modules(model, modules)


def with_modules(model: SentenceTransformer, modules: Sequence[nn.Module], **options: Any) -> SentenceTransformer:
    """Return a model of ``modules`` with the device, prompts and similarity function of ``model``."""
    return SentenceTransformer(
        modules=list(modules),
        device=str(model.device),
        prompts=model.prompts,  # type: ignore[arg-type]
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        **options,
    )
