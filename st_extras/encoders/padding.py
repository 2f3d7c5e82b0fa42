"""Padding that moves no text: a text's embedding must be the same alone and in a batch with longer texts."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn

from st_extras.encoders.structure import unwrap

logger = logging.getLogger(__name__)


def fix_padding_side(model: nn.Module) -> None:
    """Let a model's tokenizers, of every route, pad on the right, in place.

    Padding on the left moves a text in the batch. An encoder with absolute positions that counts them by place (BERT,
    GPT-2) then makes another embedding of it, depending on the longest text of the batch. On the right, padding moves
    nothing, and attention masks hide it; encoders with relative or rotary positions make the same embedding either way.

    Whatever takes an encoder calls it: loading, losses, modules, guides, searches; not evaluators, which change no
    encoder.
    """
    for module in unwrap(model).modules():
        tokenizer: Any = getattr(module, "tokenizer", None)
        if getattr(tokenizer, "padding_side", "right") != "right":
            tokenizer.padding_side = "right"
            logger.info("The tokenizer pads on the right now, where padding moves no text.")
