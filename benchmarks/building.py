"""Build what the settings of a method name: encoder, rows, frequency table and loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import nn

import st_extras.losses
from benchmarks.distillation import DistillationLoss
from st_extras.encoders import EmbeddingTable, load_encoder
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import EDA, PhraseMasking
from st_extras.text.frequency import FrequencyTable


def starting_encoder(settings: dict[str, Any]) -> SentenceTransformer:
    """Load the encoder of ``[encoder]``: a folder, or the packaged MiniLM."""
    options = dict(settings)
    return load_encoder(options.pop("path", None) or packaged_minilm(), **options)


def loss_class(name: str) -> Any:
    """Return a class of ``st_extras.losses``, or of the benchmarks if a paper only uses it for comparison."""
    return DistillationLoss if name == "DistillationLoss" else getattr(st_extras.losses, name)


def phrase_rows(model: SentenceTransformer, masking: dict[str, Any], sentences: list[str]) -> Any:
    """Make PaSeR's data set.

    Args:
        model: the encoder, for its mask token.
        masking: options of PhraseMasking; ``augmentation`` holds the ratios of EDA.
        sentences: the training text.
    """
    options = dict(masking)
    if "augmentation" in options:
        options["augmentation"] = EDA(**options["augmentation"])
    return PhraseMasking(mask_token=model.tokenizer.mask_token, **options).dataset(sentences)


def frequency_table(model: SentenceTransformer, settings: dict[str, Any], data: Path) -> FrequencyTable:
    """Read the counts that ``frequencies`` names: a file in the data folder, or one that a pre-training wrote."""
    file = data / settings["frequencies"]
    return FrequencyTable.from_file(file if file.exists() else Path(settings["frequencies"]), model.tokenizer)


def complementary_weights(name: str, weights: dict[str, Path]) -> Path:
    """Return the folder of a method of the study, of the whole packaged all-MiniLM-L6-v2 ("minilm"), or ``name``."""
    if name in weights:
        return weights[name]
    return packaged_minilm() if name == "minilm" else Path(name)


def make_loss(
    model: SentenceTransformer, method: dict[str, Any], sentences: list[str], weights: dict[str, Path], data: Path
) -> nn.Module:
    """Make the loss of a method, with the frequency table, base loss or complementary table that it needs.

    Args:
        model: the encoder to train.
        method: its settings, those of the study's training included.
        sentences: the training text.
        weights: folder of each method's weights.
        data: folder with the corpora and the frequency tables.
    """
    options = dict(method.get("options", {}))
    if method["loss"] == "SLTFAILoss":
        options["frequency_table"] = frequency_table(model, method, data)
        options["base_loss"] = make_loss(model, method["base"], sentences, weights, data)
    if "complementary" in method:
        guide = load_encoder(complementary_weights(method["complementary"], weights))
        options["complementary_table"] = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    loss: nn.Module = loss_class(method["loss"])(model, **options)
    return loss
