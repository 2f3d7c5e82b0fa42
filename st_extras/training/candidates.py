"""The candidates of ``adapt``: linear steps after the encoder, each with a strength."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from st_extras.modules.neighbor_directions import NeighborDirections

RAW = 70.0
"""An encoder with less on the packaged graded pairs (Spearman correlation times 100) is taken for a raw one."""


@dataclass(frozen=True)
class Candidate:
    """A way to refine: v' = (v - mu) ((1 - t) I + t W) + kept_mean mu, W the kernel of :class:`NeighborDirections`.

    Attributes:
        name: in the table.
        recolor: how far W gives directions their variance back: 1 all of it, 0 leaves them white.
        strength: t, with any amount of text; N texts have N / (N + 1000) of it, as few say little.
        kept_mean: share of the mean embedding mu that is kept. 1 forgets least.
        for_raw: whether it is only tried on encoders that are raw, unless a development set chooses.
    """

    name: str
    recolor: float
    strength: float
    kept_mean: float
    for_raw: bool = False

    def affine(self, found: NeighborDirections) -> tuple[Tensor, Tensor]:
        """Return the matrix (D, D) and the offset (D,) of v' = v X + b, in float64."""
        kernel = found.kernel(power=1.0, recolor=self.recolor)
        covariance = (found.axes * found.variances) @ found.axes.T
        kernel *= (covariance.trace() / (kernel.T @ covariance @ kernel).trace()).sqrt()  # of the start's variance
        share = self.strength * found.count / (found.count + 1000)
        matrix = (1 - share) * torch.eye(len(kernel), dtype=kernel.dtype) + share * kernel
        return matrix, self.kept_mean * found.mean - found.mean @ matrix


CANDIDATES = (
    Candidate("neighbours, slight", recolor=1.0, strength=0.25, kept_mean=1.0),
    Candidate("neighbours, gentle", recolor=1.0, strength=0.5, kept_mean=1.0),
    Candidate("neighbours, medium", recolor=0.5, strength=0.75, kept_mean=0.5),
    Candidate("neighbours, white", recolor=0.0, strength=1.0, kept_mean=0.0, for_raw=True),
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
        seconds: what the candidate took beyond the encoding of the start.
    """

    name: str
    gain: float
    low: float | None
    high: float | None
    general: float | None
    accepted: bool
    why: str
    seconds: float

    @property
    def better(self) -> bool:
        """Whether it is better than the start, whatever it forgets."""
        return (self.gain if self.low is None else self.low) > 0
