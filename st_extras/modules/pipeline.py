"""What the post-processing modules share: models rebuilt around their modules, and passes through part of a model."""

from __future__ import annotations

import copy
import itertools
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Normalize, Router
from torch import Tensor, nn

from st_extras.checks import check_bool, check_count, check_instance
from st_extras.encoders.loading import with_modules
from st_extras.modules.model_card import card_of
from st_extras.text.corpus import iterate_sentences

logger = logging.getLogger(__name__)

_CHUNK = 2048
_LARGEST_BATCH = 2**20
ROUNDING = 1e-6
"""Relative difference up to which two embeddings are equal: the rounding of batches of other sizes."""
_LARGEST_DIMENSION = 2**16


# --- models and their modules ---


def rebuild_model(model: SentenceTransformer, modules: Sequence[nn.Module]) -> SentenceTransformer:
    """Build a model of ``modules`` with the prompts and settings of ``model``; weights are shared, not copied."""
    return with_modules(model, modules, model_card_data=card_of(model))


def temporary_model(module: Module, modules: Sequence[nn.Module]) -> SentenceTransformer:
    """Return the model that ``module`` belongs to, but made of ``modules``, for one pass: no weight is copied."""
    model = copy.copy(model_of(module))
    model._modules = OrderedDict((str(i), part) for i, part in enumerate(modules))
    model.truncate_dim = None
    return model


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
        check_routes(modules[0])
    cut = len(modules)
    while cut and isinstance(modules[cut - 1], Normalize):
        cut -= 1
    return modules[:cut], modules[cut:]


def check_routes(router: Router) -> None:
    """Check that post-processing behind a Router sees the embeddings of one encoder, before they are normalized.

    Raises:
        ValueError: if it does not.
    """
    routes: list[Any] = list(router.sub_modules.values())
    if len({id(route[0]) for route in routes}) > 1:
        raise ValueError(
            f"model must have one encoder for all routes of its Router, got one for each of "
            f"{', '.join(router.sub_modules)}: post-process the models of the routes on their own."
        )
    if any(isinstance(route[-1], Normalize) for route in routes):
        raise ValueError(
            "model must not normalize inside the routes of its Router, because post-processing comes before that: put "
            "Normalize behind the Router, SentenceTransformer(modules=[router, Normalize()])."
        )


def embedding_dimension(modules: Sequence[nn.Module]) -> int:
    """Return the size of the embeddings that leave ``modules``.

    Raises:
        ValueError: if no module knows it.
    """
    for module in reversed(modules):
        if isinstance(module, Module) and hasattr(module, "get_embedding_dimension"):
            return int(module.get_embedding_dimension())
    raise ValueError(f"model must end in a module that knows its embedding dimension, got {list(modules)!r}.")


# --- embeddings ---


def check_size(embedding_dimension: Any) -> int:
    """Return the size of the embeddings that a module takes, a whole number from 1 to 2^16."""
    return check_count("embedding_dimension", embedding_dimension, 1, _LARGEST_DIMENSION)


def check_encoding(batch_size: Any, show_progress_bar: Any = False) -> None:
    """Check the settings of a pass over sentences.

    Raises:
        ValueError: if the batch size is not a whole number from 1 to 2^20, or the progress bar neither True nor False.
    """
    check_count("batch_size", batch_size, 1, _LARGEST_BATCH)
    check_bool("show_progress_bar", show_progress_bar)


def stream_embeddings(
    model: SentenceTransformer, sentences: Iterable[str], *, batch_size: int, show_progress_bar: bool
) -> Iterator[Tensor]:
    """Yield the embeddings of ``sentences`` in chunks (<= 2048, D), float64 on the CPU: memory use stays flat.

    Raises:
        ValueError: if there are no sentences, an item is not a string, or an embedding is not finite (the error names
            the sentence).
    """
    check_encoding(batch_size, show_progress_bar)
    iterator, done = iterate_sentences(sentences), 0
    while chunk := list(itertools.islice(iterator, _CHUNK)):
        embeddings = model.encode(
            chunk, batch_size=int(batch_size), show_progress_bar=show_progress_bar, convert_to_tensor=True
        )
        check_finite(embeddings, chunk, done)
        done += len(chunk)
        yield embeddings.to("cpu", torch.float64)  # (N, D)
    if done == 0:
        raise ValueError("sentences must hold at least one text, got none.")


def all_embeddings(
    model: SentenceTransformer, sentences: Iterable[str], *, batch_size: int, show_progress_bar: bool
) -> Tensor:
    """Return the embeddings (N, D) of N sentences, float32 on the CPU.

    Raises:
        ValueError: as for ``stream_embeddings``.
    """
    check_encoding(batch_size, show_progress_bar)
    texts = list(iterate_sentences(sentences))
    if not texts:
        raise ValueError("sentences must hold at least one text, got none.")
    embeddings = model.encode(
        texts, batch_size=int(batch_size), show_progress_bar=show_progress_bar, convert_to_tensor=True
    )
    check_finite(embeddings, texts)
    return embeddings.float().cpu().clone()


def check_finite(embeddings: Tensor, sentences: Sequence[str], before: int = 0) -> None:
    """Check the embeddings (N, D) of N sentences, which come after ``before`` others.

    Raises:
        ValueError: if one is not finite; the error names the sentence.
    """
    finite = embeddings.isfinite().all(dim=1)
    if not finite.all():
        i = int((~finite).int().argmax())
        raise ValueError(f"the embedding of sentence {before + i} is not finite (NaN or infinity): {sentences[i]!r}.")


def mean_embedding(
    model: SentenceTransformer, sentences: Iterable[str], *, batch_size: int, show_progress_bar: bool
) -> tuple[Tensor, int]:
    """Return the mean embedding (D,) of ``sentences``, summed in float64, and their number.

    Raises:
        ValueError: as for ``stream_embeddings``.
    """
    chunks = stream_embeddings(model, sentences, batch_size=batch_size, show_progress_bar=show_progress_bar)
    total, count, first, varies = torch.zeros((), dtype=torch.float64), 0, None, False
    for chunk in chunks:
        first = chunk[:1] if first is None else first
        varies = varies or bool((chunk - first).abs().max() > ROUNDING * first.abs().max())
        total = total + chunk.sum(dim=0)
        count += len(chunk)
    if not varies:
        logger.warning("The %d sentences have one embedding: the corpus mean is the embedding of one sentence.", count)
    return total / count, count


def check_fitted(module: Any, purpose: str) -> None:
    """Check that a module has seen a corpus.

    Raises:
        ValueError: if it has not; the error says that ``purpose`` needs it.
    """
    if not module.corpus_size:
        raise ValueError(
            f"{purpose} needs the statistics of a corpus, but this {type(module).__name__} is not fitted: call "
            "fit(sentences), or pass corpus= to attach."
        )


def check_dimension(module: Module, embedding: Tensor, expected: int) -> None:
    """Check that the embeddings (B, D) that reach ``module`` have the size it was built for.

    Raises:
        ValueError: if they do not.
    """
    if embedding.shape[-1] != expected:
        raise ValueError(
            f"this {type(module).__name__} has embedding_dimension={expected}, but the embeddings that arrive have "
            f"{embedding.shape[-1]} dimensions: attach it to this model again."
        )


def as_dense(weight: Tensor, bias: Tensor) -> Dense:
    """Return x -> weight x + bias as a stock ``Dense`` module, which loads without this package."""
    size_out, size_in = weight.shape
    return Dense(size_in, size_out, activation_function=None, init_weight=weight.contiguous(), init_bias=bias)
