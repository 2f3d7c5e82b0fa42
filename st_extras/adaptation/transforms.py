"""Linear transforms after an encoder, computed from its embeddings of a corpus: the candidates of :func:`adapt`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from st_extras.modules.linear import Affine
from st_extras.modules.neighbor_directions import NeighborDirections


@dataclass(frozen=True)
class LinearTransform:
    """A way to refine: v' = (v - mu) ((1 - t) I + t W) + kept_mean mu, W the kernel of :class:`NeighborDirections`.

    Attributes:
        name: in the table.
        recolor: how far W gives directions their variance back: 1 all of it, 0 leaves them whitened.
        strength: t, with any amount of text; N texts have N / (N + 1000) of it, as few texts are weak evidence.
        kept_mean: share of the mean embedding mu that is kept. 1 forgets least.
    """

    name: str
    recolor: float
    strength: float
    kept_mean: float

    def affine(self, directions: NeighborDirections) -> Affine:
        """Return the matrix (D, D) and the offset (D,) of v' = v X + b, in float64."""
        kernel = directions.kernel(power=1.0, recolor=self.recolor)
        covariance = (directions.axes * directions.variances) @ directions.axes.T
        kernel *= (covariance.trace() / (kernel.T @ covariance @ kernel).trace()).sqrt()  # the base model's variance
        t = self.strength * directions.count / (directions.count + 1000)
        matrix = (1 - t) * torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device) + t * kernel
        return Affine(matrix, self.kept_mean * directions.mean - directions.mean @ matrix)


CANDIDATES = (
    LinearTransform("slight neighbour transform", recolor=1.0, strength=0.25, kept_mean=1.0),
    LinearTransform("gentle neighbour transform", recolor=1.0, strength=0.5, kept_mean=1.0),
    LinearTransform("medium neighbour transform", recolor=0.5, strength=0.75, kept_mean=0.5),
    LinearTransform("whitening neighbour transform", recolor=0.0, strength=1.0, kept_mean=0.0),
)
"""What :func:`adapt` tries, the gentlest first."""
STRENGTHS = {one.name.partition(" ")[0]: one.name for one in CANDIDATES}
"""Names of the candidates, by what ``strength`` and ``--strength`` call them: "slight", "gentle", and so on."""
