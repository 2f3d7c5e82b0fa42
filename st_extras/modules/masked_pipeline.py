"""Pipelines that make masked copies: built from a model's modules, and turned back into those. Weights are shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, Router
from torch import nn

from st_extras.modules.encoder_class import shared_module
from st_extras.modules.masked_copies import JoinedParts
from st_extras.modules.masked_pooling import MaskedCopyPooling
from st_extras.modules.partial_mask import PartialMaskTransformer
from st_extras.text.keywords import Extractor


def masking_modules(
    modules: Sequence[nn.Module], extractor: Extractor, redundancy: str, on_missing_mask: str
) -> list[nn.Module]:
    """Return ``modules`` with an encoder that makes masked copies in place of theirs, in the routes of a Router too.

    Raises:
        ValueError: if the modules do not start with a ``Transformer``, or a setting does not fit them.
    """
    first = first_encoder(modules)
    if not isinstance(first, Transformer):
        kind = "nothing" if first is None else type(first).__name__
        raise ValueError(
            f"model must start with Sentence Transformers' Transformer module, got {kind}: use WhiteningPostProcessor "
            "or AllButTheTopPostProcessor, which work on any embeddings."
        )
    masking = PartialMaskTransformer.share(first, extractor, redundancy, on_missing_mask)

    def replacement(module: nn.Module) -> nn.Module:
        if module is first:
            return masking
        return _copy_pooling(module) if redundancy == "pooled" and isinstance(module, Pooling) else module

    return replace_modules(modules, replacement)


def joined_modules(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Return ``modules`` with masked copies always on, ending in both embeddings side by side.

    Raises:
        ValueError: if the modules do not start with a ``PartialMaskTransformer``.
    """
    first, joined = first_encoder(modules), JoinedParts()
    if not isinstance(first, PartialMaskTransformer):
        raise ValueError("the model has no PartialMaskTransformer: build it with RepALPostProcessor.attach.")
    always = shared_module(first, type(first))
    always.make_copies_for(joined)
    return [*replace_modules(modules, lambda module: always if module is first else module), joined]


def plain_modules(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Return ``modules`` as they were before ``masking_modules``."""

    def plain(module: Any) -> Any:
        if isinstance(module, PartialMaskTransformer):
            return module.plain_encoder()
        if isinstance(module, MaskedCopyPooling):
            return Pooling(module.embedding_dimension, module.pooling_mode, module.include_prompt)
        return module

    return replace_modules(modules, plain)


def first_encoder(modules: Sequence[Any]) -> Any:
    """Return what reads the texts: the first module, or that of a Router's first route; None without modules."""
    first: Any = next(iter(modules), None)
    if isinstance(first, Router):
        routes: Any = list(first.sub_modules.values())
        return routes[0][0]
    return first


def replace_modules(modules: Sequence[nn.Module], replacement: Callable[[nn.Module], nn.Module]) -> list[nn.Module]:
    """Return the replacement of each module, once for a module that stands in several routes of a Router."""
    done: dict[int, nn.Module] = {}

    def replaced(module: nn.Module) -> nn.Module:
        if id(module) not in done:
            done[id(module)] = (
                _replace_in_routes(module, replaced) if isinstance(module, Router) else replacement(module)
            )
        return done[id(module)]

    return [replaced(module) for module in modules]


def _replace_in_routes(router: Any, replaced: Callable[[nn.Module], nn.Module]) -> Any:
    twin = shared_module(router, type(router))
    routes = {name: nn.Sequential(*map(replaced, route)) for name, route in router.sub_modules.items()}
    twin.sub_modules = nn.ModuleDict(routes)
    return twin


def _copy_pooling(pooling: Any) -> Any:
    """Return a ``MaskedCopyPooling`` of the same settings; a subclass of ``Pooling`` stays if it works with masks.

    Raises:
        ValueError: if a subclass takes one token for all.
    """
    if type(pooling) is Pooling:
        return MaskedCopyPooling(pooling.embedding_dimension, pooling.pooling_mode, pooling.include_prompt)
    modes = (pooling.pooling_mode,) if isinstance(pooling.pooling_mode, str) else pooling.pooling_mode
    if "cls" in modes or "lasttoken" in modes:
        raise ValueError(
            f'redundancy must be "encoder" for a {type(pooling).__name__} that takes the first or last token, '
            'got "pooled".'
        )
    return pooling
