"""Encoders of tokenized sentences: what they are, and one-pass encoding that leaves its features alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses.adaptive_layer import TransformerDecorator
from sentence_transformers.sentence_transformer.losses.matryoshka import ForwardDecorator
from sentence_transformers.sentence_transformer.modules import Router
from sentence_transformers.util import all_gather_with_grad, get_rank, get_world_size
from torch import Tensor, nn

from st_extras.rows import Features, pair_views

AUGMENTATIONS = ("dropout", "none", "shuffle", "token_cutoff", "span_cutoff", "feature_cutoff")
Augment = Callable[[nn.Module, Features, Sequence[str]], Features]


@dataclass(frozen=True)
class Encoded:
    """What one pass of an encoder gives for R rows of L tokens.

    Attributes:
        sentence: (R, D) sentence embeddings.
        tokens: (R, L, D) last-layer token embeddings.
        input_ids: (R, L).
        content_mask: (R, L) bool, see :func:`content_mask`.
    """

    sentence: Tensor
    tokens: Tensor
    input_ids: Tensor
    content_mask: Tensor


def unwrap(model: nn.Module) -> SentenceTransformer:
    """The SentenceTransformer inside DistributedDataParallel and ``torch.compile`` wrappers."""
    inner = model
    while not isinstance(inner, SentenceTransformer):
        following = getattr(inner, "module", None) or getattr(inner, "_orig_mod", None)
        if following is None:
            raise ValueError(f"model must be a SentenceTransformer or a wrapper of one, got {type(model).__name__}.")
        inner = following
    return inner


def embedding_dimension(model: nn.Module) -> int:
    """The size D of the model's sentence embeddings in training, which ``truncate_dim`` does not cut."""
    encoder = unwrap(model)
    with encoder.truncate_embeddings(None):
        dimension = encoder.get_embedding_dimension()
    if dimension is None:
        raise ValueError("model does not tell its embedding dimension: its last modules must include a Pooling.")
    return int(dimension)


def token_embedding_dimension(model: nn.Module) -> int:
    """The size of the token embeddings that the model's first module, a transformer, gives to the next."""
    check_one_encoder(model, "This loss")
    if unwrap(model).transformers_model is None:
        raise ValueError(
            f"model must give token embeddings, which {type(unwrap(model)[0]).__name__} does not: use a transformer."
        )
    return int(cast(Any, unwrap(model)[0]).get_embedding_dimension())


def check_one_encoder(model: nn.Module, what: str) -> None:
    """ValueError where a Router has an encoder of its own for each kind of text, whose tokens are not alike."""
    first = unwrap(model)[0]
    if isinstance(first, Router) and len({cast(Any, route)[0] for route in first.sub_modules.values()}) > 1:
        raise ValueError(
            f"{what} works on the tokens of one encoder, and the model's Router has one for each of "
            f"{sorted(first.sub_modules)}: use SimCSELoss, DCLRLoss or AdCSELoss, with dropout views."
        )


def check_terms(model: nn.Module, advice: str) -> None:
    """ValueError where MatryoshkaLoss, which multiplies a loss's value, would get several terms."""
    if any(isinstance(vars(module).get("forward"), ForwardDecorator) for module in (model, unwrap(model))):
        raise ValueError(f"MatryoshkaLoss takes losses of one term, and this one returns several: {advice}.")


def check_augmentations(augmentations: Sequence[str]) -> tuple[str, str]:
    """The two views' augmentations, or a ValueError that says what is allowed."""
    views = tuple(augmentations)
    unknown = [name for name in views if name not in AUGMENTATIONS]
    if unknown or len(views) != 2:
        raise ValueError(f"augmentations must be two of {AUGMENTATIONS}, one for each view, got {augmentations!r}.")
    if set(views) == {"dropout", "none"}:
        raise ValueError(
            "augmentations=('dropout', 'none') cannot be: both views go through the encoder in one pass, whose "
            "dropout is on or off as a whole. Use 'dropout' for both or 'none' for both."
        )
    return views[0], views[1]


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, every module's own mode restored afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def encode_pair(
    model: nn.Module,
    sentence_features: Sequence[Features],
    augmentations: Sequence[str],
    augment: Augment | None = None,
    dropout: bool = False,
) -> list[Tensor]:
    """[anchors, positives], each (B, D), from one pass of the encoder over 2B rows.

    Two columns that cannot share a pass take one each. ``augment`` makes the views that dropout alone does not
    make; the pass runs with the encoder's dropout where a view or ``dropout`` asks for it.
    """
    augment = augment or (lambda model, rows, names: rows)
    with nullcontext() if dropout or "dropout" in augmentations else without_dropout(model):
        rows = pair_views(sentence_features, augmentations)
        if rows is None:
            columns = zip(sentence_features, augmentations, strict=True)
            return [run(model, augment(model, column, (name,)))["sentence_embedding"] for column, name in columns]
        return list(run(model, augment(model, rows, augmentations))["sentence_embedding"].chunk(2))


def run(model: nn.Module, features: Features) -> Features:
    """One pass of the encoder; where ``inputs_embeds`` are given, they stand for the ``input_ids``.

    Raises:
        ValueError: AdaptiveLayerLoss is around, which hands its layers on in the columns' own features.
    """
    if isinstance(vars(unwrap(model)[0]).get("forward"), TransformerDecorator):
        raise ValueError("AdaptiveLayerLoss cannot wrap this loss, which encodes copies of the columns' features.")
    without = "input_ids" if "inputs_embeds" in features else None
    output: Features = model({key: value for key, value in features.items() if key != without})
    return output


def content_ids(model: nn.Module) -> list[int]:
    """Ids of the special tokens that never count as content ([UNK] and [MASK] do count)."""
    tokenizer = unwrap(model).tokenizer
    return sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id, tokenizer.mask_token_id})


def content_mask(model: nn.Module, features: Features) -> Tensor:
    """(R, L) bool: neither padding nor a special token nor part of a prompt; [UNK] and [MASK] are content."""
    special = torch.tensor(content_ids(model), device=features["input_ids"].device)
    present = features["attention_mask"].bool()
    if length := prompt_length(model, features):
        present = present & (present.cumsum(dim=1) > length)
    return cast(Tensor, present & ~torch.isin(features["input_ids"], special))


def prompt_length(model: nn.Module, features: Features) -> int:
    """Tokens of the prompt before each text, the opening token included; 0 without a prompt.

    Sentence Transformers measures the prompt alone, where byte-level and SentencePiece tokenizers make a token of the
    blank at its end; before a text that blank belongs to the first word, which is no part of the prompt.
    """
    found = features.get("prompt_length", 0)
    length = int(found.flatten()[0]) if isinstance(found, Tensor) else int(found or 0)
    if length:
        present = features["attention_mask"].bool()
        last = features["input_ids"][present & (present.cumsum(dim=1) == length)]
        tokens = unwrap(model).tokenizer.convert_ids_to_tokens(last.tolist())
        length -= any(token[:1] in ("\u0120", "\u2581") and len(token) > 1 for token in tokens)  # as in "\u0120dog"
    return length


def encode(model: nn.Module, features: Features) -> Encoded:
    """One pass of the encoder over the features, with its token embeddings.

    Raises:
        ValueError: the encoder gives no token embeddings (StaticEmbedding), or flattened ones.
    """
    output = run(model, features)
    tokens = output.get("token_embeddings")
    if tokens is None or tokens.ndim != 3 or "attention_mask" not in features:
        raise ValueError(
            "This loss needs (B, L, D) token embeddings, which this encoder does not give: use a transformer "
            "(StaticEmbedding has none), with unpad_inputs=False."
        )
    return Encoded(output["sentence_embedding"], tokens, features["input_ids"], content_mask(model, features))


def gather_rows(x: Tensor, across_devices: bool) -> tuple[Tensor, int]:
    """Rows of all processes (with gradients) and the index of this process's first row among them."""
    if not across_devices or get_world_size() == 1:
        return x, 0
    gathered: Tensor = all_gather_with_grad(x.contiguous())
    return gathered, get_rank() * x.size(0)


def require_synchronised(owned: nn.Module) -> None:
    """Refuse to train a loss's own parameters in several processes that would let them drift apart."""
    if get_world_size() > 1 and torch.is_grad_enabled() and not getattr(owned, "synchronised_across_processes", False):
        raise ValueError(
            "This loss owns parameters, which the trainer does not keep equal across processes: call "
            "st_extras.training.LossStateCallback.attach(trainer) before training."
        )


def projection_head(dimension: int) -> nn.Sequential:
    """Linear(D, D) + tanh: the head that SimCSE, DCLR and AdCSE train with and drop at evaluation."""
    return nn.Sequential(nn.Linear(dimension, dimension), nn.Tanh())


def apply_head(head: nn.Module | None, embeddings: Sequence[Tensor]) -> list[Tensor]:
    """The embeddings through a projection head, in its own dtype, or as they are where there is none."""
    if head is None:
        return list(embeddings)
    require_synchronised(head)
    expected = cast(nn.Linear, cast(nn.Sequential, head)[0]).in_features
    if embeddings[0].size(-1) != expected:
        raise ValueError(
            f"projection=True was built for embeddings of {expected} dimensions and got {embeddings[0].size(-1)}: "
            "use projection=False with a loss that truncates embeddings (MatryoshkaLoss)."
        )
    dtype = next(head.parameters()).dtype
    return [head(x.to(dtype)) for x in embeddings]
