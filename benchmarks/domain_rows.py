"""The rows of the domain study: baselines, linear transforms, trainings and ``adapt``."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from benchmarks.baselines import damaged, denoising_loss, doubled, frozen
from benchmarks.names import TRANSFORMS
from benchmarks.word_baselines import TFIDF, InputEmbeddings, first_direction, sif_weights
from st_extras.adaptation import CANDIDATES, TRAININGS, LinearTransform, ShortTraining, adapt
from st_extras.losses import ConSERTLoss, DCLRLoss, SimCSELoss
from st_extras.modules import (
    AllButTheTopPostProcessor,
    CorpusStatistics,
    LocalityPreservingPostProcessor,
    RepALPostProcessor,
    WhiteningPostProcessor,
)
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.term_weights import character_tfidf
from st_extras.training import train_encoder

Texts = Sequence[str]
Affine = tuple[Tensor, Tensor]
"""Matrix (D, D') and offset (D',) of v X + b."""
Facts = dict[str, Any]


# --- linear transforms, from the embeddings of texts ---


def of_statistics(processor: Callable[[int], Any], embeddings: Tensor, texts: Texts, seed: int) -> Affine:
    """A step that needs mean and scatter alone."""
    statistics = CorpusStatistics(embeddings.size(1)).update(embeddings)
    kernel = processor(embeddings.size(1)).kernel_of(statistics)
    return kernel, -statistics.mean @ kernel


def neighbours(candidate: LinearTransform, embeddings: Tensor, texts: Texts, seed: int) -> Affine:
    """A candidate of ``adapt``, whatever its label-free score."""
    return candidate.affine(neighbor_directions(embeddings, tfidf=character_tfidf(texts), seed=seed))


def locality(embeddings: Tensor, texts: Texts, seed: int) -> Affine:
    """``LocalityPreservingPostProcessor`` at its defaults."""
    found = neighbor_directions(embeddings, tfidf=character_tfidf(texts), seed=seed)
    defaults = LocalityPreservingPostProcessor(embeddings.size(1))
    kernel = found.kernel(defaults.power, defaults.recolor)
    return kernel, -found.mean @ kernel


STEPS: dict[str, Callable[[Tensor, Texts, int], Affine]] = {
    "centred": partial(of_statistics, lambda size: AllButTheTopPostProcessor(size, components=0)),
    "all-but-the-top 1": partial(of_statistics, lambda size: AllButTheTopPostProcessor(size, components=1)),
    "all-but-the-top 3": partial(of_statistics, lambda size: AllButTheTopPostProcessor(size, components=3)),
    "all-but-the-top 10": partial(of_statistics, lambda size: AllButTheTopPostProcessor(size, components=10)),
    "whitened": partial(of_statistics, WhiteningPostProcessor),
    "whitened to 256": partial(of_statistics, lambda size: WhiteningPostProcessor(size, min(size, 256))),
    "whitened to 128": partial(of_statistics, lambda size: WhiteningPostProcessor(size, 128)),
    "whitened softly 0.1": partial(of_statistics, lambda size: WhiteningPostProcessor(size, epsilon=0.1)),
    "whitened softly 1": partial(of_statistics, lambda size: WhiteningPostProcessor(size, epsilon=1.0)),
    "locality": locality,
    **{TRANSFORMS[one.name]: partial(neighbours, one) for one in CANDIDATES},
}
FOLLOWING = "neighbours, medium"
"""The step that is also put after each training."""


# --- baselines without an encoder ---

BASELINES = {"TF-IDF of words": TFIDF["words"], "TF-IDF of characters 3-5": TFIDF["characters"]}


def tfidf_embeddings(options: dict[str, Any], train: Texts, test: Texts) -> Tensor:
    """Return TF-IDF fitted on the train texts, (N, N): rotated from the many columns of the vocabulary."""
    rows = TfidfVectorizer(**options, dtype=np.float32).fit(train).transform(test)
    gram = torch.from_numpy((rows @ rows.T).toarray()).double()  # same cosines as the rows'
    values, vectors = torch.linalg.eigh(gram)
    return vectors * values.clamp_min(0).sqrt() + 1e-9


def input_means(weighted: bool, removed: bool, model: SentenceTransformer, texts: Texts) -> Callable[[Texts], Tensor]:
    """Return a function from texts to means of their input embeddings: plain, or SIF, counted on ``texts``."""
    transformer: Any = model.transformers_model
    weights = transformer.get_input_embeddings().weight.detach().double().numpy()
    bags = InputEmbeddings(model.tokenizer, weights)
    of_tokens = np.ones(len(weights))
    if weighted:
        of_tokens = sif_weights(np.asarray(bags.bags(texts).sum(axis=0)).ravel())
    direction = first_direction(bags.pooled(texts, of_tokens)) if removed else np.zeros(weights.shape[1])

    def embed(found: Texts) -> Tensor:
        vectors = bags.pooled(found, of_tokens)
        return torch.from_numpy(vectors - np.outer(vectors @ direction, direction))

    return embed


BAGS: dict[str, Callable[[SentenceTransformer, Texts], Callable[[Texts], Tensor]]] = {
    "mean of input embeddings": partial(input_means, False, False),
    "SIF of input embeddings": partial(input_means, True, False),
    "SIF of input embeddings, first component removed": partial(input_means, True, True),
}


# --- models ---


def sentence_term(model: SentenceTransformer, texts: Texts, seed: int, facts: Facts) -> SentenceTransformer:
    """RepAL without its corpus term."""
    return RepALPostProcessor.attach(model, lambda_1=0.3, lambda_2=0, redundancy="pooled")


def adapted(
    options: dict[str, Any], model: SentenceTransformer, texts: Texts, seed: int, facts: Facts
) -> SentenceTransformer:
    """What ``adapt`` picks by its label-free score."""
    options = {"seed": seed, "minutes": 60, "show_progress_bar": False} | options
    with tempfile.TemporaryDirectory() as folder:
        found = adapt(model, list(texts), Path(folder) / "adapted", **options)
    facts |= {name: found.written()[name] for name in ("chosen", "candidates", "texts", "details")}
    return found.model


def trained(
    loss: Any, steps: int, rate: float, model: SentenceTransformer, texts: Texts, seed: int, facts: Facts
) -> SentenceTransformer:
    """The encoder after some steps of training at batch 64."""
    options = {"max_steps": steps, "learning_rate": rate, "seed": seed, "bf16": True, "show_progress_bar": False}
    facts["precision"] = "bfloat16"
    with tempfile.TemporaryDirectory() as folder:
        data = texts if isinstance(texts, Dataset) else list(texts)
        train_encoder(model, loss, data, Path(folder) / "trained", **options)
    return model


def gist(
    steps: int, rate: float, model: SentenceTransformer, texts: Texts, seed: int, facts: Facts
) -> SentenceTransformer:
    """GISTEmbed (Solatorio, 2024), on two dropout views of each text; the guide is the frozen start."""
    guide = frozen(copy.deepcopy(model))
    return trained(lambda model: losses.GISTEmbedLoss(model, guide), steps, rate, model, doubled(texts), seed, facts)


def denoised(
    steps: int, rate: float, model: SentenceTransformer, texts: Texts, seed: int, facts: Facts
) -> SentenceTransformer:
    """TSDAE: 60 % of the words deleted, the text restored by a decoder that starts from the encoder's weights."""
    loss = partial(denoising_loss, tie_encoder_decoder=False)
    return trained(loss, steps, rate, model, damaged(texts, seed), seed, facts)


def bfloat16(enabled: bool) -> torch.autocast:
    """Encode in the precision of the trainings: 2.8 times as fast; 0.02 of the scores, but k-means may settle apart."""
    return torch.autocast("cpu", torch.bfloat16, enabled=enabled)


def short(training: ShortTraining, model: SentenceTransformer, texts: Texts, seed: int, facts: Facts) -> Any:
    """A training that ``adapt`` may try, in its own precision."""
    with tempfile.TemporaryDirectory() as folder:
        return training.trained_copy(model, texts, Path(folder) / "trained", seed, show_progress_bar=False)


def _start(share: float, **options: Any) -> Any:
    return partial(DCLRLoss, complementary_model="start", masked_share=share, **options)


ADAPTED = {"2 points": 2.0, "0.5 points": 0.5, "any loss": 200.0}
"""Points that ``adapt`` may lose on general English. The records "adapt" and "adapt, general use given up" are of an
earlier rule: a fortieth of what the encoder lacks to 100, or any loss, and whitening where it has less than 70."""
MODELS: dict[str, Callable[[SentenceTransformer, Texts, int, Facts], SentenceTransformer]] = {
    **{f"adapt, {loss}": partial(adapted, {"max_general_loss": points}) for loss, points in ADAPTED.items()},
    "RepAL sentence term 0.3": sentence_term,
}
TRAINED: dict[str, Callable[[SentenceTransformer, Texts, int, Facts], SentenceTransformer]] = {
    **{f"{one.name}, {one.learning_rate:g}, {one.steps} steps": partial(short, one) for one in TRAININGS},
    "SimCSE 2e-5, 25 steps": partial(trained, SimCSELoss, 25, 2e-5),
    "ConSERT 2e-5, 25 steps": partial(trained, ConSERTLoss, 25, 2e-5),
    "DCLR, no guide, 2e-5, 25 steps": partial(trained, DCLRLoss, 25, 2e-5),
    "GISTEmbed 2e-5, 25 steps": partial(gist, 25, 2e-5),
    **{
        f"DCLR start {share:g}, 2e-5, 25 steps": partial(trained, _start(share), 25, 2e-5)
        for share in (0.02, 0.05, 0.14, 0.3)
    },
    **{f"DCLR start 0.14, {rate:g}, 25 steps": partial(trained, _start(0.14), 25, rate) for rate in (2e-6, 5e-6, 3e-5)},
    "DCLR start 0.14 on ConSERT's views, 2e-5, 25 steps": partial(
        trained, _start(0.14, augmentations=("feature_cutoff", "shuffle")), 25, 2e-5
    ),
    "TSDAE 3e-5, 100 steps": partial(denoised, 100, 3e-5),
}
SEEDLESS = {"start", "RepAL sentence term 0.3", "mean of input embeddings"}
"""Rows that no seed changes: neither training nor which texts they are fitted on."""
