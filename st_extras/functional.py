"""Pure tensor mathematics shared by the losses: torch only, no models.

Shapes: B anchors, K candidates or points, D dimensions. Similarities and losses are computed in float32 or
better, also under autocast.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def check_positive(name: str, value: float) -> float:
    """``value`` where it is a finite number > 0, else a ValueError that names the argument."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}.")
    return value


def check_not_negative(name: str, value: Any) -> float:
    """``value`` where it is a finite number >= 0, else a ValueError that names the argument."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 <= value < float("inf"):
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}.")
    return float(value)


def check_fraction(name: str, value: float) -> float:
    """``value`` where it lies strictly between 0 and 1, else a ValueError that names the argument."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, both excluded, got {value!r}.")
    return value


def check_count(name: str, value: float) -> int:
    """``value`` where it is a whole number >= 0, else a ValueError that names the argument."""
    if not 0 <= value < float("inf") or int(value) != value:
        raise ValueError(f"{name} must be a whole number >= 0, got {value!r}.")
    return int(value)


def full_precision(x: Tensor) -> Tensor:
    """``x`` in float32, or as it is where it is float64."""
    return x if x.dtype == torch.float64 else x.float()


def cosine_scores(a: Tensor, b: Tensor, temperature: float = 1.0) -> Tensor:
    """Cosine similarities divided by the temperature, never in half precision.

    Args:
        a: (B, D).
        b: (K, D).
        temperature: tau.

    Returns:
        (B, K), float32 (float64 for float64 input).
    """
    with torch.autocast(a.device.type, enabled=False):
        a = F.normalize(full_precision(a), dim=-1)
        b = F.normalize(full_precision(b), dim=-1)
        return a @ b.T / temperature


def weighted_info_nce(
    scores: Tensor, weights: Tensor | None = None, *, include_positive: bool = True, offset: int = 0
) -> Tensor:
    """InfoNCE with weighted negatives, as one masked logsumexp a row.

    mean_i [ log( [include_positive] e^{s_ip} + sum_{k != p} w_ik e^{s_ik} ) - s_ip ],  p = i + offset.

    Args:
        scores: (B, K) similarities divided by the temperature; the positive of row i stands in column
            ``i + offset``.
        weights: (B, K), >= 0; 0 removes a candidate. The positive's own weight is not used. None: all 1.
        include_positive: keep the positive in the denominator (the usual InfoNCE).
        offset: column of row 0's positive (candidates gathered across processes).

    Returns:
        (), the mean over the B rows. A row whose denominator is empty contributes 0.
    """
    rows = torch.arange(scores.size(0), device=scores.device)
    positive = scores[rows, rows + offset]
    logits = scores if weights is None else scores + weights.to(scores.dtype).log()
    if weights is not None or not include_positive:
        is_positive = torch.zeros_like(logits, dtype=torch.bool)
        is_positive[rows, rows + offset] = True
        own = positive.unsqueeze(1) if include_positive else scores.new_tensor(-torch.inf)
        logits = torch.where(is_positive, own, logits)
    empty = (logits == -torch.inf).all(dim=1)
    losses = torch.logsumexp(logits.masked_fill(empty.unsqueeze(1), 0.0), dim=1) - positive
    return losses.masked_fill(empty, 0.0).mean()


def cosine_ascent_direction(points: Tensor, anchors: Tensor, probabilities: Tensor) -> Tensor:
    """Gradient of a softmax-weighted sum of cosine similarities with respect to the points.

    For L = sum_i logsumexp_j(cos(h_i, n_j) / tau) and p_ij its softmax, tau dL/dn_j is
    sum_i p_ij (h_i/|h_i| - cos(h_i, n_j) n_j/|n_j|) / |n_j|: the cosine Jacobian in closed form, no backward.

    Args:
        points: (K, D), the n_j.
        anchors: (B, D), the h_i.
        probabilities: (B, K), the p_ij (any weights; their scale is the caller's).

    Returns:
        (K, D) in the points' dtype; zero for a zero point.
    """
    with torch.autocast(points.device.type, enabled=False), torch.no_grad():
        n, h, p = full_precision(points), full_precision(anchors), full_precision(probabilities)
        norms = n.norm(dim=-1, keepdim=True)
        n_unit = torch.where(norms > 0, n / norms, 0.0)
        h_unit = F.normalize(h, dim=-1)
        pull = p.T @ h_unit  # (K, D)
        tangent = pull - (pull * n_unit).sum(-1, keepdim=True) * n_unit
        return torch.where(norms > 0, tangent / norms, 0.0).to(points.dtype)


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradient, None


def reverse_gradient(x: Tensor, strength: float = 1.0) -> Tensor:
    """``x`` itself; its gradient is multiplied by ``-strength`` on the way back (Ganin & Lempitsky, 2015).

    What follows the layer descends its loss, what precedes it ascends the same loss.
    """
    reversed_x: Tensor = _ReverseGradient.apply(x, strength)  # type: ignore[no-untyped-call]
    return reversed_x
