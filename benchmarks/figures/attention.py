"""Which words of a sentence an encoder attends to (SLT-FAI, figure 7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from sentence_transformers import SentenceTransformer

from st_extras.encoders.forward import without_dropout
from st_extras.encoders.structure import unwrap
from st_extras.plots.axes import check_array, new_axes, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@torch.no_grad()
def attention_received(
    model: SentenceTransformer, sentence: str, *, layer: int = -1, special_tokens: bool = True
) -> tuple[list[str], list[float]]:
    """Share of the self-attention that each word of a sentence receives, averaged over heads and attending tokens.

    A word of several pieces gets the sum of their shares. Special tokens such as [CLS] and [SEP] count as words; in a
    raw encoder they receive most of the attention.

    Args:
        model: an encoder of the transformers library with a fast tokenizer, which knows the words of its tokens.
        sentence: the text; it is truncated to the model's maximum length.
        layer: index of the layer; -1 is the last.
        special_tokens: whether to include special tokens; if not, the other shares are scaled to sum to 1.

    Returns:
        The words as written in the sentence, and their shares, which sum to 1.

    Raises:
        ValueError: if the sentence has no word, the model is not such an encoder, or its attention is not finite.
    """
    model = unwrap(model)
    encoder, tokenizer = model.transformers_model, model.tokenizer
    if encoder is None or not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"model must be a transformers encoder with a fast tokenizer, got {type(model[0]).__name__}.")
    tokens = tokenizer(sentence, truncation=True, max_length=model.max_seq_length, return_tensors="pt")
    words = tokens.word_ids()
    if all(word is None for word in words):
        raise ValueError(f"sentence must hold at least one word, got {sentence!r}.")
    implementation = encoder.config._attn_implementation
    encoder.set_attn_implementation("eager")  # the fused kernels do not return their weights
    try:
        with without_dropout(model):
            layers = encoder(**tokens.to(model.device), output_attentions=True).attentions
    finally:
        encoder.set_attn_implementation(implementation)
    received = layers[layer][0].float().mean(dim=(0, 1)).tolist()  # (heads, L, L) -> (L,)
    if not all(map(math.isfinite, received)):
        raise ValueError("the attention must be finite, got NaN or infinite values: did the training diverge?")

    names: list[str] = []
    shares: list[float] = []
    previous: int | None = None
    for position, (word, share) in enumerate(zip(words, received, strict=True)):
        if word is None and not special_tokens:
            continue
        if word is not None and word == previous:
            shares[-1] += share
            continue
        if word is None:
            names.append(tokenizer.convert_ids_to_tokens(int(tokens["input_ids"][0, position])))
        else:
            span = tokens.word_to_chars(word)
            names.append(sentence[span.start : span.end])
        shares.append(share)
        previous = word
    total = sum(shares)
    return names, [share / total for share in shares]


def plot_attention_received(words: Sequence[str], weights: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the self-attention that each word of a sentence receives as bars, the first on top (SLT-FAI, figure 7).

    Args:
        words: L words, from ``attention_received``.
        weights: (L,), shares that sum to 1.
        ax: axes to draw on; None makes a new figure.
    """
    shares = check_array("weights", weights, len(words))
    ax = new_axes(ax)
    places = np.arange(len(words))
    ax.barh(places, shares, color=shades(1)[0])
    ax.set_yticks(places, labels=list(words))
    ax.invert_yaxis()
    ax.set_xlabel("share of self-attention received")
    return ax
