"""Forward passes of an encoder that leave the features they are given untouched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sentence_transformers.sentence_transformer.losses.adaptive_layer import TransformerDecorator
from torch import Tensor, nn

from st_extras.encoders.rows import Features
from st_extras.encoders.structure import content_mask, unwrap


@dataclass(frozen=True)
class Encoded:
    """The output of one encoder pass over R rows of L tokens.

    Attributes:
        sentence: (R, D) sentence embeddings.
        tokens: (R, L, D) last-layer token embeddings.
        input_ids: (R, L).
        content_mask: (R, L) bool, see :func:`~st_extras.encoders.structure.content_mask`.
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
    """Put the model in evaluation mode, and restore every module's own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def forward_pass(model: nn.Module, features: Features) -> Features:
    """Run the encoder once; if the features have ``inputs_embeds``, they replace the ``input_ids``.

    Raises:
        ValueError: if AdaptiveLayerLoss wraps the loss: it passes its layers on in the columns' own features.
    """
    if isinstance(vars(unwrap(model)[0]).get("forward"), TransformerDecorator):
        raise ValueError("AdaptiveLayerLoss cannot wrap this loss, which encodes copies of the columns' features.")
    replaced = "input_ids" if "inputs_embeds" in features else None
    output: Features = model({key: value for key, value in features.items() if key != replaced})
    return output


def encode_tokens(model: nn.Module, features: Features) -> Encoded:
    """Run the encoder once and return its token embeddings beside its sentence embeddings.

    Raises:
        ValueError: if the encoder gives no token embeddings (StaticEmbedding), or flattened ones.
    """
    output = forward_pass(model, features)
    tokens = output.get("token_embeddings")
    if tokens is None or tokens.ndim != 3 or "attention_mask" not in features:
        raise ValueError(
            "This loss needs (B, L, D) token embeddings, which this encoder does not give: use a transformer "
            "(StaticEmbedding has none), with unpad_inputs=False."
        )
    return Encoded(output["sentence_embedding"], tokens, features["input_ids"], content_mask(model, features))
