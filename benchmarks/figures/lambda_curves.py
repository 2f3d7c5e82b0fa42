"""RepAL over a grid of its two weights: the largest eigenvalue and the Spearman correlation, and their pictures.

Source: appendix C.2 of RepAL (Shen et al., 2023), whose figure is missing from the published text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.modules.lambda_search import (
    LAMBDA_1_GRID,
    LAMBDA_2_GRID,
    check_pairs,
    pair_sides,
    spearman_surface,
)
from st_extras.modules.repal import RepALPostProcessor
from st_extras.plots.axes import COLOURS, new_axes, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
BATCH = 64


def largest_eigenvalues(embeddings: Tensor, mean: Tensor, grid: Sequence[float]) -> Array:
    """Return the largest eigenvalue of the uncentred second moment of v - lambda_2 mean for each lambda_2 of a grid.

    Uncentred on purpose: subtracting a constant vector does not change the covariance. With the moment A of v and their
    own mean s, that of v - lambda_2 m is A - lambda_2 (s m' + m s') + lambda_2^2 m m', so that the N embeddings are
    multiplied once.

    Args:
        embeddings: v, (N, D) in float64.
        mean: m, (D,).
        grid: values of lambda_2.
    """
    moment = embeddings.T @ embeddings / len(embeddings)  # (D, D)
    crossed = torch.outer(embeddings.mean(dim=0), mean)
    crossed, square = crossed + crossed.T, torch.outer(mean, mean)
    found = [torch.linalg.eigvalsh(moment - value * crossed + value**2 * square)[-1] for value in grid]
    return np.asarray(torch.stack(found).numpy())


def eigenvalue_curve(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    lambda_2_grid: Sequence[float],
) -> tuple[Array, Array]:
    """Return the largest eigenvalue and the Spearman correlation at each lambda_2 (the figure of appendix C.2).

    Args:
        model: has a fitted ``RepALPostProcessor``, whose ``lambda_1`` is used and whose weights are not changed.
        pairs: labelled pairs; the eigenvalue is that of the refined embeddings of all their sentences.
        scores: gold scores.
        lambda_2_grid: L weights of the corpus term.

    Raises:
        ValueError: if the scores do not match the pairs or are all equal, or the model has no fitted
            ``RepALPostProcessor``.
    """
    pairs, scores = check_pairs(pairs, scores)
    processor = fitted_processor(model)
    v, redundant, mean = _parts(processor, pairs)
    sides = pair_sides(v, redundant)
    spearman = spearman_surface(*sides, mean.numpy(), scores, [processor.lambda_1], lambda_2_grid)[0]
    return largest_eigenvalues(v - processor.lambda_1 * redundant, mean, lambda_2_grid), spearman


def lambda_surface(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    *,
    lambda_1_grid: Sequence[float] = LAMBDA_1_GRID,
    lambda_2_grid: Sequence[float] = LAMBDA_2_GRID,
) -> Array:
    """Return the Spearman correlation at every pair of weights, as ``RepALPostProcessor.tune`` searches it, (L1, L2).

    Args:
        model: has a fitted ``RepALPostProcessor``, whose own weights are neither used nor changed.
        pairs: labelled pairs.
        scores: gold scores, not all equal.
        lambda_1_grid: L1 weights of the sentence term.
        lambda_2_grid: L2 weights of the corpus term.

    Raises:
        ValueError: if the scores do not match the pairs or are all equal, or the model has no fitted
            ``RepALPostProcessor``.
    """
    pairs, scores = check_pairs(pairs, scores)
    v, redundant, mean = _parts(fitted_processor(model), pairs)
    return spearman_surface(*pair_sides(v, redundant), mean.numpy(), scores, lambda_1_grid, lambda_2_grid)


def fitted_processor(model: SentenceTransformer) -> RepALPostProcessor:
    """Return the RepAL module of a model.

    Raises:
        ValueError: if there is none, or it is not fitted.
    """
    processor = next((module for module in model if isinstance(module, RepALPostProcessor)), None)
    if processor is None or not processor.corpus_size:
        raise ValueError("model must have a fitted RepALPostProcessor: RepALPostProcessor.attach(..., corpus=...).")
    return processor


def _parts(processor: RepALPostProcessor, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return f(x) and f(x*) of all first, then all second sentences (2N, D), and the corpus mean (D,)."""
    v, redundant = processor.parts([x for x, _ in pairs] + [y for _, y in pairs], batch_size=BATCH)
    return v.double(), redundant.double(), processor.corpus_mean.double().cpu()


def plot_lambda_heatmap(
    lambda_1: ArrayLike, lambda_2: ArrayLike, spearman: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Draw RepAL's Spearman correlation over its two weights, with a star at the best setting.

    Args:
        lambda_1: (A,), strictly increasing weights of the partial mask, drawn upwards.
        lambda_2: (B,), strictly increasing weights of the corpus mean, drawn to the right.
        spearman: (A, B), from :func:`lambda_surface`.
        ax: axes to draw on; None makes a new figure.
    """
    first, second, table = np.asarray(lambda_1), np.asarray(lambda_2), np.asarray(spearman)
    ax = new_axes(ax)
    mesh = ax.pcolormesh(second, first, table, shading="nearest", cmap=COLOURS)
    ax.figure.colorbar(mesh, ax=ax, label="Spearman correlation")
    row, column = np.unravel_index(table.argmax(), table.shape)
    label = f"best: {table[row, column]:.4g} at ({first[row]:g}, {second[column]:g})"
    ax.plot([second[column]], [first[row]], "*", color="white", markeredgecolor="black", markersize=14, label=label)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    ax.set_xlabel("lambda_2 (corpus mean)")
    ax.set_ylabel("lambda_1 (partial mask)")
    return ax


def plot_eigenvalue_curve(
    lambda_2: ArrayLike, eigenvalues: ArrayLike, spearman: ArrayLike | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the largest eigenvalue of the refined embeddings against RepAL's lambda_2, with its minimum marked.

    Args:
        lambda_2: (B,), strictly increasing.
        eigenvalues: (B,), the largest eigenvalue of the uncentred second moment at each weight.
        spearman: (B,), drawn on a second axis on the right, with its maximum marked; None draws no second axis.
        ax: axes to draw on; None makes a new figure.
    """
    grid, values = np.asarray(lambda_2), np.asarray(eigenvalues)
    quality = None if spearman is None else np.asarray(spearman)
    ax = new_axes(ax)
    dark, light = shades(3)[0], shades(3)[1]
    (line,) = ax.plot(grid, values, color=dark, label="largest eigenvalue")
    lowest = int(values.argmin())
    ax.plot([grid[lowest]], [values[lowest]], "o", color=dark)
    ax.set_xlabel("lambda_2 (corpus mean)")
    ax.set_ylabel("largest eigenvalue", color=dark)
    if quality is not None:
        right = ax.twinx()
        (other,) = right.plot(grid, quality, color=light, linestyle="--", label="Spearman correlation")
        right.plot([grid[int(quality.argmax())]], [quality.max()], "o", color=light)
        right.set_ylabel("Spearman correlation", color=light)
        ax.legend(handles=[line, other], loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False)
    return ax
