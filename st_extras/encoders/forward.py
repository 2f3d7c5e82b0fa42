"""Forward passes of an encoder that leave the features they are given untouched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses.adaptive_layer import TransformerDecorator
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from st_extras.encoders.rows import Features, content_mask
from st_extras.encoders.structure import keep_modes, require_trainable, unwrap


@dataclass(frozen=True)
class Encoded:
    """The output of one encoder pass over R rows of L tokens.

    Attributes:
        sentence: (R, D) sentence embeddings.
        tokens: (R, L, D) last-layer token embeddings.
        input_ids: (R, L).
        content_mask: (R, L) bool, see :func:`~st_extras.encoders.rows.content_mask`.
    """

    sentence: Tensor
    tokens: Tensor
    input_ids: Tensor
    content_mask: Tensor

    def __getitem__(self, rows: slice) -> Encoded:
        """Return a range of the rows."""
        return Encoded(*(value[rows] for value in vars(self).values()))

    def split(self, count: int) -> list[Encoded]:
        """Split into ``count`` equal blocks of rows."""
        blocks = zip(*(value.chunk(count) for value in vars(self).values()), strict=True)
        return [Encoded(*block) for block in blocks]


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode, and restore every module's own mode afterwards.

    Layers with gradient checkpointing keep it. transformers has it in training mode only, so these layers stay in that
    mode, and their checkpoint runs the forward without dropout, now and in the backward pass.
    """
    layers: list[Any] = [
        module
        for module in model.modules()
        if module.training
        and torch.is_grad_enabled()
        and isinstance(module, GradientCheckpointingLayer)
        and module.gradient_checkpointing
    ]
    # what a layer's checkpoint runs can be changed here alone: gradient_checkpointing_enable takes no function
    checkpoints = [layer._gradient_checkpointing_func for layer in layers]  # noqa: SLF001
    with keep_modes(model):
        model.eval()
        for layer, checkpoint in zip(layers, checkpoints, strict=True):
            layer.training = True  # the layer's own forward sees evaluation mode
            layer._gradient_checkpointing_func = partial(_checkpoint_without_dropout, layer, checkpoint)  # noqa: SLF001
        try:
            yield
        finally:
            for layer, checkpoint in zip(layers, checkpoints, strict=True):
                layer._gradient_checkpointing_func = checkpoint  # noqa: SLF001


def _checkpoint_without_dropout(layer: nn.Module, checkpoint: Any, forward: Any, *inputs: Any) -> Any:
    def run(*given: Any) -> Any:
        with keep_modes(layer):
            layer.eval()
            return forward(*given)

    return checkpoint(run, *inputs)


def check_trained_encoder(model: nn.Module) -> SentenceTransformer:
    """Return the SentenceTransformer inside a model, if a loss can train it now.

    Raises:
        ValueError: if it is frozen and gradients are enabled, or if AdaptiveLayerLoss runs the loss: it looks for the
            layers' outputs in the features that it was given, and our passes are over rows made of them.
    """
    encoder = unwrap(model)
    if torch.is_grad_enabled():
        require_trainable(encoder)
    if isinstance(vars(encoder[0]).get("forward"), TransformerDecorator):
        raise ValueError("AdaptiveLayerLoss cannot run this loss: train with the loss alone.")
    return encoder


def forward_pass(model: nn.Module, features: Features) -> Features:
    """Run the encoder once; if the features have ``inputs_embeds``, they replace the ``input_ids``."""
    replaced = "input_ids" if "inputs_embeds" in features else None
    output: Features = model({key: value for key, value in features.items() if key != replaced})
    return output


def encode_tokens(model: nn.Module, features: Features) -> Encoded:
    """Run the encoder once and return its token embeddings beside its sentence embeddings.

    Raises:
        ValueError: if the encoder gives no token embeddings (StaticEmbedding), or flattened ones, or if it cannot be
            trained, see :func:`check_trained_encoder`.
    """
    encoder = check_trained_encoder(model)
    output = forward_pass(model, features)
    tokens = output.get("token_embeddings")
    if tokens is None or tokens.ndim != 3 or "attention_mask" not in features:
        raise ValueError(
            "This loss needs (B, L, D) token embeddings, which this encoder does not give: use a transformer "
            "(StaticEmbedding has none), with unpad_inputs=False."
        )
    return Encoded(output["sentence_embedding"], tokens, features["input_ids"], content_mask(encoder, features))
