"""Pure tensor mathematics shared by the losses: torch only, no models.

Shapes: B anchors, K candidates or points, D dimensions. Similarities and losses are computed in float32 or
better, also under autocast.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_SCORES = 2**24  # held at a time: 64 MiB in float32


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Cut the numbers of rows into blocks of which the scores with all columns fit into 64 MiB; one row at least."""
    size = max(1, _SCORES // max(1, columns))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def full_precision(x: Tensor) -> Tensor:
    """Return ``x`` in float32, or in float64 if it has that dtype."""
    return x if x.dtype == torch.float64 else x.float()


def finite_rows(x: Tensor) -> Tensor:
    """Return (N,) whether each row of (N, D) is finite; ``isfinite`` of all would hold a copy of them."""
    if x.numel() == 0:
        return torch.ones(len(x), dtype=torch.bool, device=x.device)
    lowest, highest = x.aminmax(dim=1)  # of a row with NaN, NaN
    return lowest.isfinite() & highest.isfinite()


def unit_rows(x: Tensor) -> Tensor:
    """Return the rows of ``x`` scaled to length 1, in float32 (float64 for float64 input); a zero row stays zero."""
    with torch.autocast(x.device.type, enabled=False):
        return F.normalize(full_precision(x), dim=-1)


def unit_scores(a: Tensor, b: Tensor, temperature: float = 1.0) -> Tensor:
    """Return :func:`cosine_scores` of rows of length 1, as :func:`unit_rows` makes them, (B, D) and (K, D)."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b.T / temperature


def cosine_scores(a: Tensor, b: Tensor, temperature: float = 1.0) -> Tensor:
    """Return cosine similarities divided by the temperature, never in half precision.

    Args:
        a: (B, D).
        b: (K, D).
        temperature: tau.

    Returns:
        (B, K), float32 (float64 for float64 input).
    """
    return unit_scores(unit_rows(a), unit_rows(b), temperature)


def weighted_info_nce(
    scores: Tensor, weights: Tensor | None = None, *, include_positive: bool = True, offset: int = 0
) -> Tensor:
    """Compute InfoNCE with weighted negatives, as one masked logsumexp per row.

    mean_i [ log( [include_positive] e^{s_ip} + sum_{k != p} w_ik e^{s_ik} ) - s_ip ],  p = i + offset.

    Args:
        scores: (B, K) similarities divided by the temperature; the positive of row i is in column ``i + offset``.
        weights: (B, K), >= 0; 0 removes a candidate. The positive's own weight is not used. None: all 1.
        include_positive: keep the positive in the denominator (the usual InfoNCE).
        offset: column of row 0's positive (candidates gathered across processes).

    Returns:
        (), the mean over the B rows. A row whose denominator is empty contributes 0.
    """
    positive = scores.diagonal(offset)  # (B,)
    logits = scores if weights is None else scores + weights.to(scores.dtype).log()
    if weights is not None or not include_positive:
        is_positive = torch.zeros_like(logits, dtype=torch.bool)
        is_positive.diagonal(offset).fill_(True)
        own = positive.unsqueeze(1)
        logits = (
            torch.where(is_positive, own, logits) if include_positive else logits.masked_fill(is_positive, -torch.inf)
        )
    empty = (logits == -torch.inf).all(dim=1)
    losses = torch.logsumexp(logits.masked_fill(empty.unsqueeze(1), 0.0), dim=1) - positive
    return losses.masked_fill(empty, 0.0).mean()


@torch.no_grad()
def anchor_pull(anchors: Tensor, probabilities: Tensor) -> Tensor:
    """Return sum_i p_ij h_i/|h_i|, the part of :func:`cosine_ascent_direction` that is a sum over the anchors.

    Args:
        anchors: (B, D), the h_i.
        probabilities: (B, K), the p_ij, or other weights of any scale.

    Returns:
        (K, D), float32 (float64 for float64 input). The pulls of several batches of anchors can be added.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        return full_precision(probabilities).T @ unit_rows(anchors)


@torch.no_grad()
def cosine_ascent_direction(points: Tensor, pull: Tensor) -> Tensor:
    """Return the gradient of a softmax-weighted sum of cosine similarities with respect to the points.

    For L = sum_i logsumexp_j(cos(h_i, n_j) / tau) and p_ij its softmax, tau dL/dn_j is
    sum_i p_ij (h_i/|h_i| - cos(h_i, n_j) n_j/|n_j|) / |n_j|: the cosine's Jacobian in closed form.

    Args:
        points: (K, D), the n_j.
        pull: (K, D), see :func:`anchor_pull`.

    Returns:
        (K, D) in the points' dtype; zero for a zero point.
    """
    with torch.autocast(points.device.type, enabled=False):
        n = full_precision(points)
        norms = n.norm(dim=-1, keepdim=True)
        n_unit = torch.where(norms > 0, n / norms, 0.0)
        tangent = pull - (pull * n_unit).sum(-1, keepdim=True) * n_unit
        return torch.where(norms > 0, tangent / norms, 0.0).to(points.dtype)


@torch.no_grad()
def mean_angle(start: Tensor, end: Tensor) -> Tensor:
    """Return the mean angle in degrees, (), between rows with the same index, (K, D) each; exact for small angles."""
    chord = (unit_rows(start) - unit_rows(end)).norm(dim=-1)
    return torch.rad2deg(2 * torch.asin((chord / 2).clamp(max=1))).mean()


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


def reverse_gradient(x: Tensor) -> Tensor:
    """Return ``x``; in the backward pass, reverse the sign of its gradient (Ganin & Lempitsky, 2015).

    The layers after this point descend their loss, the layers before it ascend the same loss.
    """
    reversed_x: Tensor = _ReverseGradient.apply(x)  # type: ignore[no-untyped-call]
    return reversed_x
