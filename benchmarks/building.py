"""Build what the settings of a method name: encoder, rows, frequency table and loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import nn

import st_extras.losses
from benchmarks.baselines import ROWS, WITHOUT_NEGATIVES, denoising_loss, frozen
from benchmarks.controls import DistillationLoss, RedrawnAdversariesLoss
from st_extras.encoders import EmbeddingTable, load_encoder
from st_extras.modules import WhiteningPostProcessor
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import EDA, ChunkPhrases, PhraseMasking
from st_extras.text.frequency import FrequencyTable

OWN: dict[str, type[nn.Module]] = {
    "DistillationLoss": DistillationLoss,
    "RedrawnAdversariesLoss": RedrawnAdversariesLoss,
}
"""Losses of the benchmarks, which a paper or a study only uses for comparison."""


def starting_encoder(settings: dict[str, Any]) -> SentenceTransformer:
    """Load the encoder of ``[encoder]``: a folder, or the packaged MiniLM."""
    options = dict(settings)
    return load_encoder(options.pop("path", None) or packaged_minilm(), **options)


def finished_encoders(
    study: dict[str, Any], work: Path
) -> Iterator[tuple[str, int, Callable[[], SentenceTransformer]]]:
    """Yield method and seed of the base model and of the encoders that a study left, each with what loads it.

    Args:
        study: the study, as ``load_study`` returns it.
        work: folder for the weights of all studies; a METHOD-SEED of the study counts if it holds a whole model.
    """
    yield "start", 0, partial(starting_encoder, study["encoder"])
    for folder in sorted(path.parent for path in (work / study["name"]).glob("*/modules.json")):
        method, _, seed = folder.name.rpartition("-")
        yield method, int(seed), partial(load_encoder, folder)


def loss_class(name: str) -> Any:
    """Return a class of ``st_extras.losses``; of the benchmarks if a paper only compares; of Sentence Transformers."""
    if name in OWN:
        return OWN[name]
    return getattr(st_extras.losses if hasattr(st_extras.losses, name) else losses, name)


def lexicon_tags(tokens: list[str]) -> list[tuple[str, str]]:
    """Tag tokens with the lexicon that TextBlob's package contains (``pip install textblob``), which needs no data."""
    from textblob.en import parser

    return [(word, tag) for word, tag, *_ in parser.find_tags(list(tokens))]


def phrase_rows(model: SentenceTransformer, masking: dict[str, Any], sentences: list[str]) -> Any:
    """Make PaSeR's data set.

    Args:
        model: the encoder, for its mask token.
        masking: options of PhraseMasking; ``augmentation`` holds the ratios of EDA, ``phrases`` the kinds of chunks
            to take instead of RAKE's phrases.
        sentences: the training text.
    """
    options = dict(masking)
    if "augmentation" in options:
        options["augmentation"] = EDA(**options["augmentation"])
    if "phrases" in options:
        options["extractor"] = ChunkPhrases(kinds=options.pop("phrases"), tagger=lexicon_tags)
    return PhraseMasking(mask_token=model.tokenizer.mask_token, **options).dataset(sentences)


def training_rows(model: SentenceTransformer, method: dict[str, Any], sentences: list[str], seed: int) -> Any:
    """Make the rows that the loss of a method is trained on.

    Args:
        model: the encoder, for its mask token.
        method: its settings; ``rows`` holds options of the function in ``benchmarks.baselines.ROWS``.
        sentences: the training text.
        seed: of what is drawn.
    """
    if "masking" in method:
        return phrase_rows(model, method["masking"], sentences)
    if method["loss"] in ROWS:
        return ROWS[method["loss"]](sentences, seed, **method.get("rows", {}))
    return sentences


def has_negatives(method: dict[str, Any]) -> bool:
    """Say whether the rows of a batch are negatives of each other, so that equal sentences must not meet there."""
    return ("masking" not in method or "base" in method) and method["loss"] not in WITHOUT_NEGATIVES


def frequency_table(model: SentenceTransformer, settings: dict[str, Any], data: Path) -> FrequencyTable:
    """Read the counts that ``frequencies`` names: a file in the data folder, or one that a pre-training wrote."""
    file = data / settings["frequencies"]
    return FrequencyTable.from_file(file if file.exists() else Path(settings["frequencies"]), model.tokenizer)


def complementary_encoder(
    name: str, model: SentenceTransformer, sentences: list[str], weights: dict[str, Path]
) -> SentenceTransformer:
    """Return the frozen encoder that ``complementary`` names.

    Args:
        name: a method of the study (its weights), "minilm" (the packaged all-MiniLM-L6-v2), "whitened" (``model``,
            untrained so far, softly whitened on ``sentences``), or a folder.
        model: the encoder to train.
        sentences: the training text.
        weights: folder of each method's weights.
    """
    if name == "whitened":
        return WhiteningPostProcessor.attach(copy.deepcopy(model), epsilon=0.1, corpus=sentences)
    if name in weights:
        return load_encoder(weights[name])
    return load_encoder(packaged_minilm() if name == "minilm" else name)


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
        options["frequency_table"] = frequency_table(model, method, data)
    if "base" in method:
        options["base_loss"] = make_loss(model, method["base"], sentences, weights, data)
    if "complementary" in method:
        guide = complementary_encoder(method["complementary"], model, sentences, weights)
        if method["loss"] == "GISTEmbedLoss":
            options["guide"] = frozen(guide)
        else:
            options["complementary_table"] = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    make = denoising_loss if method["loss"] == "DenoisingAutoEncoderLoss" else loss_class(method["loss"])
    loss: nn.Module = make(model, **options)
    return loss
