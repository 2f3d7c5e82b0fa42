"""The candidates of ``adapt``, and how they are tried: fitted on one part of the text, judged on the other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.evaluation import LabeledTexts, STSDataset
from st_extras.evaluation.change import FEWEST, LEAST_CONFIRMED, MOST, ChangeJudge, Verdict
from st_extras.evaluation.geometry import mean_cosine
from st_extras.evaluation.label_scores import label_scores
from st_extras.evaluation.signals import rank_correlation
from st_extras.modules import pipeline
from st_extras.modules.neighbor_directions import NeighborDirections, neighbor_directions
from st_extras.samples import graded_pairs
from st_extras.text.lexical import character_tfidf

FEWEST_TEXTS = 5 * FEWEST
"""Fewer different texts are left alone: a fifth of them is kept for the judge."""
FORGETS = "loses too much on general pairs"
_SAME_COSINE = 0.9999  # two different texts, on average
_RATE_TEXTS = 256  # encoded first, to find out how many fit into the time
_SMALLEST_GENERAL_SCORE = 30.0  # below it, the graded pairs say nothing about this encoder
Score = Callable[[Tensor, Tensor], Verdict]


@dataclass(frozen=True)
class Candidate:
    """A way to refine: v' = (v - mu) ((1 - t) I + t W) + kept_mean mu, W the kernel of :class:`NeighborDirections`.

    Attributes:
        name: in the table.
        recolor: how far W gives directions their variance back: 1 all of it, 0 leaves them white.
        strength: t, with any amount of text; N texts have N / (N + 1000) of it, as few say little.
        kept_mean: share of the mean embedding mu that is kept. 1 forgets least.
    """

    name: str
    recolor: float
    strength: float
    kept_mean: float

    def affine(self, found: NeighborDirections) -> tuple[Tensor, Tensor]:
        """Return the matrix (D, D) and the offset (D,) of v' = v X + b, in float64."""
        kernel = found.kernel(power=1.0, recolor=self.recolor)
        covariance = (found.axes * found.variances) @ found.axes.T
        kernel *= (covariance.trace() / (kernel.T @ covariance @ kernel).trace()).sqrt()  # of the start's variance
        share = self.strength * found.count / (found.count + 1000)
        matrix = (1 - share) * torch.eye(len(kernel), dtype=kernel.dtype) + share * kernel
        return matrix, self.kept_mean * found.mean - found.mean @ matrix


CANDIDATES = (
    Candidate("neighbours, gentle", recolor=1.0, strength=0.5, kept_mean=1.0),
    Candidate("neighbours, medium", recolor=0.5, strength=0.75, kept_mean=0.5),
    Candidate("neighbours, white", recolor=0.0, strength=1.0, kept_mean=0.0),
)


@dataclass(frozen=True)
class Row:
    """One candidate in the table of :func:`adapt`.

    Attributes:
        name: what was tried.
        gain: over the start: the judge's, or that of the development set times 100.
        low: lower end of the judge's 95 % interval; None with a development set.
        high: its upper end; None with a development set.
        general: Spearman correlation times 100 on the packaged graded pairs; None if they say nothing here.
        accepted: whether it may be chosen.
        why: what speaks against it; empty if accepted.
    """

    name: str
    gain: float
    low: float | None
    high: float | None
    general: float | None
    accepted: bool
    why: str


@dataclass
class Trial:
    """What was found out; ``reason`` is set if nothing could be tried."""

    facts: dict[str, Any]
    rows: list[Row] = dataclasses.field(default_factory=list)
    steps: dict[str, tuple[Tensor, Tensor]] = dataclasses.field(default_factory=dict)
    reason: str = ""


class TextEncoder:
    """Encodes with the part of the model before the refinement."""

    def __init__(self, encoder: SentenceTransformer, batch_size: int, show_progress_bar: bool) -> None:
        self.encoder = encoder
        self.options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return (N, D) embeddings in float64, on the CPU."""
        encoded: Tensor = self.encoder.encode(list(texts), convert_to_tensor=True, **self.options)
        return encoded.cpu().double()

    def affordable(self, texts: Sequence[str], seconds: float) -> int:
        """Return how many texts can be encoded in a time, found by encoding some."""
        if not texts:
            return 0
        began = time.perf_counter()
        self.encoder.encode(list(texts[:_RATE_TEXTS]), **(self.options | {"show_progress_bar": False}))
        spent = time.perf_counter() - began
        return int(seconds / max(spent, 1e-9) * min(len(texts), _RATE_TEXTS))


def try_candidates(
    encode: TextEncoder,
    texts: list[str],
    dev: STSDataset | LabeledTexts | None,
    max_general_loss: float | None,
    seed: int,
) -> Trial:
    """Encode the texts, fit each candidate on four fifths of them, at least, and compare it with the start on the rest.

    Raises:
        ValueError: if an embedding is not finite, or ``dev`` cannot be scored.
    """
    texts, embeddings = _encoded(encode, texts)
    words = sum(len(text.split()) for text in texts) / max(1, len(texts))
    trial = Trial({"texts": len(texts), "mean_words": round(words, 1)})
    if len(texts) < FEWEST_TEXTS:
        trial.reason = f"Left as it is: {FEWEST_TEXTS} different texts are needed, got {len(texts)}."
        return trial
    judged = min(MOST, len(texts) // 5)
    trial.facts |= {"judged": judged, "mean_cosine": mean_cosine(embeddings)}
    if trial.facts["mean_cosine"] > _SAME_COSINE:
        trial.reason = "Left as it is: the encoder gives all texts about the same embedding."
        return trial
    held_out, fitted = embeddings[:judged], embeddings[judged:]
    if dev is None:
        judge = ChangeJudge(texts[:judged], held_out, seed=seed)
        trial.facts["confirmed_share"] = judge.confirmed_share
        if judge.confirmed_share < LEAST_CONFIRMED:
            trial.reason = (
                f"Left as it is: only {judge.confirmed_share:.0%} of the texts have a neighbour that embeddings and "
                "words agree on, so nothing can be judged without labels."
            )
            return trial
    score = _judged(judge, held_out) if dev is None else _developed(dev, encode)
    try:
        found = neighbor_directions(fitted, words=character_tfidf(texts[judged:]), seed=seed)
    except ValueError as error:
        trial.reason = f"Left as it is: {error}"
        return trial
    general = _General(encode)
    trial.facts["general"] = general.start
    not_better = "not better than the start" + (", by the 95 % interval" if dev is None else "")
    for candidate in CANDIDATES:
        matrix, offset = trial.steps[candidate.name] = candidate.affine(found)
        verdict, value = score(matrix, offset), general.score(matrix, offset)
        why = [] if verdict.low > 0 else [not_better]
        if max_general_loss is not None and value is not None and value < (general.start or 0) - max_general_loss:
            why.append(FORGETS)
        low, high = (verdict.low, verdict.high) if dev is None else (None, None)
        trial.rows.append(Row(candidate.name, verdict.gain, low, high, value, not why, "; ".join(why)))
    return trial


def _encoded(encode: TextEncoder, texts: list[str]) -> tuple[list[str], Tensor]:
    """Return the texts that have an embedding, and the embeddings (N, D): a table of words gives 0 to unknown words.

    Too few texts are not encoded.
    """
    if len(texts) < FEWEST_TEXTS:
        return texts, torch.zeros(0, 0)
    embeddings = encode(texts)
    pipeline.check_finite(embeddings, texts)
    kept = (embeddings != 0).any(dim=1)
    return [text for text, keep in zip(texts, kept.tolist(), strict=True) if keep], embeddings[kept]


def _judged(judge: ChangeJudge, start: Tensor) -> Score:
    return lambda matrix, offset: judge.compare(start @ matrix + offset)


def _developed(dev: STSDataset | LabeledTexts, encode: TextEncoder) -> Score:
    """Return a function of a step: its gain on a development set, times 100, as a verdict without an interval."""
    if isinstance(dev, LabeledTexts):
        embeddings = encode(dev.texts)

        def value(matrix: Tensor, offset: Tensor) -> float:
            return float(label_scores(embeddings @ matrix + offset, dev.labels)["mean"])
    else:
        first, second = encode(dev.sentences1), encode(dev.sentences2)

        def value(matrix: Tensor, offset: Tensor) -> float:
            return _pair_score(first @ matrix + offset, second @ matrix + offset, dev.scores)

    size = encode.encoder.get_embedding_dimension()
    before = value(torch.eye(size or 0, dtype=torch.float64), torch.zeros(size or 0, dtype=torch.float64))

    def verdict(matrix: Tensor, offset: Tensor) -> Verdict:
        gain = 100 * (value(matrix, offset) - before)
        return Verdict(gain, gain, gain, 0.0, 0.0, 0.0)

    return verdict


class _General:
    """Scores on the packaged graded pairs of general English: what an encoder forgets."""

    def __init__(self, encode: TextEncoder) -> None:
        first, second, self.scores = graded_pairs()
        self.first, self.second = encode(first), encode(second)
        score = 100 * _pair_score(self.first, self.second, self.scores)
        self.start = score if score >= _SMALLEST_GENERAL_SCORE else None

    def score(self, matrix: Tensor, offset: Tensor) -> float | None:
        """Return the score times 100 after a step; None if the start's says nothing."""
        if self.start is None:
            return None
        return 100 * _pair_score(self.first @ matrix + offset, self.second @ matrix + offset, self.scores)


def _pair_score(first: Tensor, second: Tensor, scores: Sequence[float]) -> float:
    return rank_correlation(torch.cosine_similarity(first, second), torch.tensor(scores))
