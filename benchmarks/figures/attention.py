"""Which words of a sentence an encoder attends to (SLT-FAI, figure 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sentence_transformers import SentenceTransformer

from st_extras.encoders.forward import without_dropout
from st_extras.encoders.structure import unwrap
from st_extras.plots.axes import new_axes, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@torch.no_grad()
def attention_received(model: SentenceTransformer, sentence: str, *, layer: int = -1) -> tuple[list[str], list[float]]:
    """Share of the self-attention that each word of a sentence receives, averaged over heads and attending tokens.

    A word of several pieces gets the sum of their shares. Special tokens such as [CLS] and [SEP] count as words; in a
    raw encoder they receive most of the attention.

    Args:
        model: an encoder of the transformers library with a fast tokenizer, which knows the words of its tokens.
        sentence: the text; it is truncated to the model's maximum length.
        layer: index of the layer; -1 is the last.

    Returns:
        The words as written in the sentence, and their shares, which sum to 1.
    """
    model = unwrap(model)
    encoder, tokenizer = model.transformers_model, model.tokenizer
    assert encoder is not None
    tokens: Any = tokenizer(sentence, truncation=True, max_length=model.max_seq_length, return_tensors="pt")
    implementation = encoder.config._attn_implementation
    encoder.set_attn_implementation("eager")  # the fused kernels do not return their weights
    try:
        with without_dropout(model):
            layers = encoder(**tokens.to(model.device), output_attentions=True).attentions
    finally:
        encoder.set_attn_implementation(implementation)
    received = layers[layer][0].float().mean(dim=(0, 1)).tolist()  # (heads, L, L) -> (L,)
    names: list[str] = []
    shares: list[float] = []
    previous: int | None = None
    for position, (word, share) in enumerate(zip(tokens.word_ids(), received, strict=True)):
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
    return names, shares


def plot_attention_received(words: Sequence[str], weights: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the self-attention that each word of a sentence receives as bars, the first on top (SLT-FAI, figure 7).

    Args:
        words: L words, from ``attention_received``.
        weights: (L,), shares that sum to 1.
        ax: axes to draw on; None makes a new figure.
    """
    ax = new_axes(ax)
    places = np.arange(len(words))
    ax.barh(places, np.asarray(weights), color=shades(1)[0])
    ax.set_yticks(places, labels=list(words))
    ax.invert_yaxis()
    ax.set_xlabel("share of self-attention received")
    return ax
