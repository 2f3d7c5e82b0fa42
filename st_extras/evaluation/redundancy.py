"""What RepAL changes in a model: importance of single words, overlap with trivial words, the largest eigenvalue.

Source: the analyses of RepAL's appendix C (Shen et al., 2023), equations 4 and 5, table 5 and its missing figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.modules.repal import RepALPostProcessor
from st_extras.modules.tuning import LAMBDA_1_GRID, LAMBDA_2_GRID, check_pairs, spearman_surface
from st_extras.text.keywords import build_extractor, keyword_spans
from st_extras.text.spans import find_words, replace_spans
from st_extras.text.words import word_spans

TRIVIAL_WORDS = ("the", "a", "to", "in", "some", "with", "and")
"""The words of the paper's table 5."""


def distinct_words(text: str) -> list[str]:
    """The words of ``text``, lower case, each once, in their order."""
    return list(dict.fromkeys(text[start:end].lower() for start, end in word_spans(text)))


def without_word(text: str, word: str) -> str:
    """x/w: ``text`` with every occurrence of ``word`` deleted."""
    return replace_spans(text, find_words(text, [word]), "")


def word_importance(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    words: Sequence[Sequence[str]],
    *,
    delete_from: str = "first",
    batch_size: int = 32,
) -> list[list[float]]:
    """Importance of words for the similarity of a pair (equation 4): sim(x, y) - sim(x/w, y), sim the cosine.

    Args:
        model: plain, or with RepAL attached (then every embedding is a refined one).
        pairs: N pairs (x, y).
        words: for each pair, the words w of x to delete (all their occurrences).
        delete_from: "first": w goes from x alone (equation 4); "both": from y too (the paper's footnote 2).
        batch_size: of the encode; each distinct text is encoded once.

    Returns:
        For each pair, the importance of each of its words, in units of the cosine (-2 to 2).

    Raises:
        ValueError: for another ``delete_from``, or ``words`` that does not match ``pairs``.
    """
    if delete_from not in ("first", "both"):
        raise ValueError(f'delete_from must be "first" or "both"; got {delete_from!r}')
    if len(words) != len(pairs):
        raise ValueError(f"words must have one list for each pair; got {len(words)} for {len(pairs)} pairs")
    needed: dict[str, int] = {}

    def index(text: str) -> int:
        return needed.setdefault(text, len(needed))

    comparisons = [
        [(index(x), index(y))]
        + [(index(without_word(x, w)), index(without_word(y, w) if delete_from == "both" else y)) for w in own]
        for (x, y), own in zip(pairs, words, strict=True)
    ]
    if not needed:
        return []
    embeddings = model.encode(list(needed), batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False)
    unit = torch.nn.functional.normalize(embeddings.double(), dim=1)  # (texts, D)
    importance = []
    for rows in comparisons:
        first, second = torch.tensor(rows, device=unit.device).unbind(1)
        cosines = (unit[first] * unit[second]).sum(dim=1)
        importance.append((cosines[0] - cosines[1:]).tolist())
    return importance


def trivial_word_importance(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    words: Sequence[str] = TRIVIAL_WORDS,
    *,
    delete_from: str = "first",
    batch_size: int = 32,
) -> dict[str, float]:
    """Mean importance of each word over the pairs whose first sentence has it, times 100 (table 5).

    Run it on the plain model and on the one with RepAL: the paper's table is those two columns and their difference.
    A word that no first sentence has is left out.

    Args: as for ``word_importance``.
    """
    wanted = {word.lower() for word in words}
    present = [[word for word in distinct_words(x) if word in wanted] for x, _ in pairs]
    found = word_importance(model, pairs, present, delete_from=delete_from, batch_size=batch_size)
    values: dict[str, list[float]] = {}
    for own, importance in zip(present, found, strict=True):
        for word, value in zip(own, importance, strict=True):
            values.setdefault(word, []).append(value)
    return {
        word: 100 * sum(values[word.lower()]) / len(values[word.lower()]) for word in words if word.lower() in values
    }


def redundancy_overlap_ratio(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    *,
    keywords: Any = "jieba",
    top: int = 5,
    delete_from: str = "first",
    batch_size: int = 32,
) -> float:
    """Share of trivial words among the most important ones (equation 5): mean of |S(x) and T(x)| / |T(x)|, 0 to 1.

    S(x) are the words of x that no keyword covers, T(x) the ``top`` words of highest importance (ties by position; all
    words of a shorter sentence). Pairs whose first sentence has no word are left out.

    Args:
        model: plain, or with RepAL attached.
        pairs: pairs (x, y); the paper draws 300 from STS-B.
        keywords: as for ``RepALPostProcessor.attach``.
        top: size of T.
        delete_from: as for ``word_importance``.
        batch_size: of the encode.

    Raises:
        ValueError: when ``top`` is below 1, or no first sentence has a word.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1; got {top!r}")
    extractor = build_extractor(keywords)
    pairs = [pair for pair in pairs if distinct_words(pair[0])]
    if not pairs:
        raise ValueError("pairs must have words in their first sentences; got none")
    words = [distinct_words(x) for x, _ in pairs]
    found = word_importance(model, pairs, words, delete_from=delete_from, batch_size=batch_size)
    total = 0.0
    for (x, _), own, importance in zip(pairs, words, found, strict=True):
        masked = keyword_spans(x, extractor)
        trivial = {
            x[start:end].lower()
            for start, end in word_spans(x)
            if not any(start < stop and begin < end for begin, stop in masked)
        }
        order = sorted(range(len(own)), key=lambda i: -importance[i])[:top]
        total += sum(own[i] in trivial for i in order) / len(order)
    return total / len(pairs)


def largest_eigenvalue(embeddings: Tensor) -> float:
    """Largest eigenvalue of the uncentred second moment (1/N) sum v v^T of ``embeddings`` (N, D).

    Uncentred on purpose: subtracting a constant vector would not move the covariance.
    """
    if embeddings.ndim != 2 or len(embeddings) == 0:
        raise ValueError(f"embeddings must be (N, D) with N >= 1; got shape {tuple(embeddings.shape)}")
    values = embeddings.double()
    return float(torch.linalg.eigvalsh(values.T @ values / len(values))[-1])


@dataclass(frozen=True)
class EigenvaluePoint:
    """One point of the curve: ``largest_eigenvalue`` and Spearman correlation (-1 to 1) at ``lambda_2``."""

    lambda_2: float
    largest_eigenvalue: float
    spearman: float


def eigenvalue_curve(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    lambda_2_grid: Sequence[float],
    *,
    batch_size: int = 32,
) -> list[EigenvaluePoint]:
    """The figure that appendix C.2 describes: largest eigenvalue and performance against lambda_2.

    Args:
        model: with a fitted ``RepALPostProcessor``; its ``lambda_1`` is kept.
        pairs: labelled pairs; the eigenvalue is that of the refined embeddings of all their sentences.
        scores: gold scores.
        lambda_2_grid: the weights to draw.
        batch_size: of the one encode.
    """
    v, redundant, mean, processor = _fitted_parts(model, pairs, batch_size)
    grid = [float(value) for value in lambda_2_grid]
    spearman = _surface(v, redundant, mean, scores, [processor.lambda_1], grid)[0]
    refined = v - processor.lambda_1 * redundant
    return [
        EigenvaluePoint(value, largest_eigenvalue(refined - value * mean), float(rho))
        for value, rho in zip(grid, spearman, strict=True)
    ]


def lambda_surface(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    *,
    lambda_1_grid: Sequence[float] = LAMBDA_1_GRID,
    lambda_2_grid: Sequence[float] = LAMBDA_2_GRID,
    batch_size: int = 32,
) -> NDArray[np.float64]:
    """What ``RepALPostProcessor.tune`` searches: Spearman correlation at every pair of weights, for the heat map.

    Args:
        model: with a fitted ``RepALPostProcessor``, whose own weights do not matter and are kept.
        pairs: labelled pairs.
        scores: gold scores, not all equal.
        lambda_1_grid: L1 weights of the sentence term.
        lambda_2_grid: L2 weights of the corpus term.
        batch_size: of the one encode.

    Returns:
        (L1, L2), -1 to 1.
    """
    scores = check_pairs(pairs, scores)
    v, redundant, mean, _ = _fitted_parts(model, pairs, batch_size)
    return _surface(v, redundant, mean, scores, lambda_1_grid, lambda_2_grid)


def _fitted_parts(
    model: SentenceTransformer, pairs: Sequence[tuple[str, str]], batch_size: int
) -> tuple[Tensor, Tensor, Tensor, RepALPostProcessor]:
    """f(x) and f(x*) of all first and then all second sentences (2N, D), the corpus mean (D,), and the processor."""
    processor = next((module for module in model if isinstance(module, RepALPostProcessor)), None)
    if processor is None or not processor.corpus_size:
        raise ValueError("model must have a fitted RepALPostProcessor: RepALPostProcessor.attach(..., corpus=...)")
    texts = [x for x, _ in pairs] + [y for _, y in pairs]
    v, redundant = processor.parts(texts, batch_size=batch_size)
    return v.double(), redundant.double(), processor.corpus_mean.double().cpu(), processor


def _surface(
    v: Tensor,
    redundant: Tensor,
    mean: Tensor,
    scores: Sequence[float],
    lambda_1_grid: Sequence[float],
    lambda_2_grid: Sequence[float],
) -> NDArray[np.float64]:
    (v_1, v_2), (r_1, r_2) = v.numpy().reshape(2, -1, v.size(1)), redundant.numpy().reshape(2, -1, v.size(1))
    return spearman_surface((v_1, r_1), (v_2, r_2), mean.numpy(), scores, lambda_1_grid, lambda_2_grid)
