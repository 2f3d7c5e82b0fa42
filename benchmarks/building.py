"""Build what the settings of a method name: encoder, rows, frequency table and loss.

Beside the losses of ``st_extras``, a method may have one of Sentence Transformers, on rows of its own (``ROWS``), or
``RedrawnAdversariesLoss``, a control.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import nn

import st_extras.losses
from benchmarks.texts import read_counts
from st_extras.encoders import EmbeddingTable, load_encoder
from st_extras.losses import epochs_to_steps
from st_extras.losses.pair_loss import PairLoss
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import EDA, PhraseMasking
from st_extras.text.frequency import FrequencyTable

NEGATIVES_PER_POSITIVE = 7  # of Contrastive Tension


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
COUNTED = "training text"
"""In place of a file of token counts: those of the training text."""


def starting_encoder(settings: dict[str, Any]) -> SentenceTransformer:
    """Load the encoder of ``[encoder]``: a folder, or the packaged MiniLM."""
    options = dict(settings)
    return load_encoder(options.pop("path", None) or packaged_minilm(), **options)


def loss_class(name: str) -> Any:
    """Return a class of ``st_extras.losses``, or of Sentence Transformers."""
    return getattr(st_extras.losses if hasattr(st_extras.losses, name) else losses, name)


def training_rows(model: SentenceTransformer, method: dict[str, Any], sentences: list[str], seed: int) -> Any:
    """Make the rows that the loss of a method is trained on.

    Args:
        model: the encoder, for its mask token.
        method: its settings; ``rows`` holds options of the function in ``ROWS``.
        sentences: the training text.
        seed: of what is drawn.
    """
    if "masking" in method:
        masking = dict(method["masking"])
        ratio = masking.pop("synonym_ratio", 0)
        augmentation = EDA(synonym_ratio=ratio, seed=seed) if ratio else None
        return PhraseMasking(mask_token=model.tokenizer.mask_token, augmentation=augmentation, **masking).dataset(
            sentences
        )
    if method["loss"] in ROWS:
        return ROWS[method["loss"]](sentences, seed, **method.get("rows", {}))
    return sentences


def has_negatives(method: dict[str, Any]) -> bool:
    """Say whether the rows of a batch are negatives of each other, so that equal sentences must not meet there."""
    return ("masking" not in method or "base" in method) and method["loss"] not in WITHOUT_NEGATIVES


def processes() -> int:
    """Return the number of processes that train together, which torchrun starts."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def share_of_a_process(method: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the settings of each of ``count`` processes, so that a step is that of one process with the whole batch.

    The batch is divided, and a loss that compares sentences takes those of all processes.

    Raises:
        ValueError: if the batch cannot be divided.
    """
    if count == 1 or "loss" not in method:
        return method
    if method["batch_size"] % count:
        raise ValueError(f"--nproc-per-node must divide the batch of {method['batch_size']}, got {count} processes.")

    def gathering(part: dict[str, Any]) -> dict[str, Any]:
        if not is_pair_loss(part["loss"]):
            return part
        return part | {"options": {**part.get("options", {}), "gather_across_devices": True}}

    base = {"base": gathering(method["base"])} if "base" in method else {}
    return gathering(method) | base | {"batch_size": method["batch_size"] // count}


def is_pair_loss(name: str) -> bool:
    """Return whether a loss compares the sentences of a batch, and so takes ``mini_batch_size`` and gathers."""
    return issubclass(loss_class(name), PairLoss)


def frequency_table(
    model: SentenceTransformer, settings: dict[str, Any], sentences: Sequence[str], data: Path
) -> FrequencyTable:
    """Return the counts that ``frequencies`` names: COUNTED, a file of the data folder, or one of a pre-training."""
    if settings["frequencies"] == COUNTED:
        return FrequencyTable.count(sentences, model.tokenizer)
    file = data / settings["frequencies"]
    read = FrequencyTable.load if ".json" in file.name else read_counts
    return read(file if file.exists() else Path(settings["frequencies"]), model.tokenizer)


def make_loss(
    model: SentenceTransformer, method: dict[str, Any], sentences: list[str], weights: dict[str, Path], data: Path
) -> nn.Module:
    """Make the loss of a method, with the frequency table, base loss, complementary table or guide that it needs.

    Args:
        model: the encoder to train.
        method: its settings, those of the study's training included.
        sentences: the training text.
        weights: folder of each method's weights.
        data: folder with the corpora and the frequency tables.
    """
    options = dict(method.get("options", {}))
    if "SLTFAILoss" in method["loss"]:
        options["frequency_table"] = frequency_table(model, method, sentences, data)
    if "warmup_epochs" in method:
        steps = epochs_to_steps(method["warmup_epochs"], len(sentences), method["batch_size"], processes())
        options["warmup_steps"] = steps
    if "guide" in method:
        options["complementary_model"] = load_encoder(**method["guide"])
    if "base" in method:
        options["base_loss"] = make_loss(model, method["base"], sentences, weights, data)
    if "complementary" in method:
        guide = load_encoder(weights[method["complementary"]])
        if method["loss"] == "GISTEmbedLoss":
            options["guide"] = guide.eval().requires_grad_(False)
        else:
            options["complementary_table"] = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    make = denoising_loss if method["loss"] == "DenoisingAutoEncoderLoss" else loss_class(method["loss"])
    loss: nn.Module = make(model, **options)
    return loss
