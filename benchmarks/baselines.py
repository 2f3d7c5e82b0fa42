"""Losses of Sentence Transformers that the methods are compared with, and the rows that they are trained on."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import nn

NEGATIVES_PER_POSITIVE = 7  # of Contrastive Tension


def frozen(guide: SentenceTransformer) -> SentenceTransformer:
    """Turn off a guide's dropout and gradients."""
    return guide.eval().requires_grad_(False)


def denoising_loss(model: SentenceTransformer, **options: Any) -> nn.Module:
    """TSDAE's loss (Wang et al., 2021), with a decoder that starts from the encoder's own weights.

    Args:
        model: the encoder to train, whatever it was made from.
        options: of DenoisingAutoEncoderLoss, such as ``tie_encoder_decoder``.
    """
    config = model.transformers_model.config  # type: ignore[union-attr]
    name = config._name_or_path
    with tempfile.TemporaryDirectory() as folder:
        model.transformers_model.save_pretrained(folder)  # type: ignore[union-attr]
        model.tokenizer.save_pretrained(folder)
        config._name_or_path = folder  # where the loss reads encoder and decoder
        decoder = {} if options.get("tie_encoder_decoder", True) else {"decoder_name_or_path": folder}
        loss: nn.Module = losses.DenoisingAutoEncoderLoss(model, **decoder, **options)
    config._name_or_path = name
    return loss


def damaged(sentences: Sequence[str], seed: int, deleted: float = 0.6) -> Dataset:
    """Return TSDAE's rows: the sentence without a share of its words, at least one of them left, and the sentence."""
    draw = random.Random(seed)
    noisy = [
        " ".join(word for word in text.split() if draw.random() > deleted) or text.split()[0] for text in sentences
    ]
    return Dataset.from_dict({"damaged": noisy, "text": list(sentences)})


def doubled(sentences: Sequence[str], seed: int = 0) -> Dataset:
    """Return rows of a sentence twice, for two dropout views; nothing is drawn."""
    return Dataset.from_dict({"first": list(sentences), "second": list(sentences)})


def tension_pairs(sentences: Sequence[str], seed: int) -> Dataset:
    """Return Contrastive Tension's rows (Carlsson et al., 2021): of each 8, a sentence twice and 7 beside another one.

    The loss sees by their tokens which are which.
    """
    draw = random.Random(seed)
    paired = [
        text if draw.random() * (1 + NEGATIVES_PER_POSITIVE) < 1 else sentences[draw.randrange(len(sentences))]
        for text in sentences
    ]
    return Dataset.from_dict({"first": list(sentences), "second": paired})


ROWS: dict[str, Callable[..., Dataset]] = {
    "DenoisingAutoEncoderLoss": damaged,
    "GISTEmbedLoss": doubled,
    "ContrastiveTensionLoss": tension_pairs,
}
"""By the name of the loss; the others take one column of sentences."""
WITHOUT_NEGATIVES = ("DenoisingAutoEncoderLoss", "ContrastiveTensionLoss")
"""Losses that take no negatives from the batch, so that equal sentences may meet there."""
