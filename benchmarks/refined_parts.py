"""Texts encoded once, for RepAL with the weights that STS-B dev chooses; used by ``benchmarks.analyses``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from benchmarks.domains import encoder
from benchmarks.variants import texts_of
from st_extras.evaluation import STSDataset
from st_extras.modules import RepALPostProcessor, search_lambdas
from st_extras.modules.lambda_search import LAMBDA_1_GRID, LAMBDA_2_GRID, pair_sides

DEV = "stsb_dev"
BATCH = 64
GRIDS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "plain": ((0.0,), (0.0,)),
    "sentence term": (LAMBDA_1_GRID, (0.0,)),
    "RepAL": (LAMBDA_1_GRID, LAMBDA_2_GRID),
}
"""The weights of both terms that STS-B dev chooses from, by the name of the row."""


class Encoded:
    """An encoder, f(x) and f(x*) of the texts that it was asked for, and RepAL's weights.

    Args:
        name: of the encoder, as ``benchmarks.domains.encoder`` knows it.
        sets: the STS sets by name.
    """

    def __init__(self, name: str, sets: dict[str, STSDataset]) -> None:
        self.model = encoder(name)
        self.sets = sets
        self.redundancy = "encoder"
        self.found: dict[str, tuple[Tensor, Tensor]] = {}

    def parts(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return f(x) and f(x*) of N texts, two (N, D) in float64; each text is encoded once."""
        new = [text for text in dict.fromkeys(texts) if text not in self.found]
        if new:
            attached = RepALPostProcessor.attach(self.model, lambda_1=1, lambda_2=0, redundancy=self.redundancy)
            processor = next(module for module in attached if isinstance(module, RepALPostProcessor))
            self.found.update(zip(new, zip(*processor.parts(new, batch_size=BATCH), strict=True), strict=True))
        embeddings, redundant = zip(*(self.found[text] for text in texts), strict=True)
        return torch.stack(embeddings).double(), torch.stack(redundant).double()

    @cached_property
    def weights(self) -> dict[str, dict[str, Any]]:
        """The weights that STS-B dev chooses for each row, and the Spearman correlation there, times 100."""
        dev = self.sets[DEV]
        embeddings, redundant = self.parts(texts_of([dev]))
        mean, sides = embeddings.mean(dim=0).numpy(), pair_sides(embeddings, redundant)
        rows = {}
        for name, grids in GRIDS.items():
            found = search_lambdas(*sides, mean, dev.scores, *grids)
            rows[name] = {
                "lambda_1": found.lambda_1,
                "lambda_2": found.lambda_2,
                "at_edge": found.at_edge,
                DEV: round(100 * found.spearman, 2),
            }
        if not any(row["lambda_1"] for row in rows.values()):
            self.redundancy = "pooled"  # no row subtracts f(x*): its pass is saved
        return rows

    def refined(self, row: str, texts: Sequence[str]) -> Refined:
        """Return a row's model, with the corpus mean of ``texts``."""
        weights = self.weights[row]
        mean = self.parts(texts)[0].mean(dim=0)
        return Refined(self, weights["lambda_1"], weights["lambda_2"], mean)


class Refined:
    """The embeddings that a model with RepAL gives, before its ``Normalize``, from parts that are encoded once.

    Args:
        encoded: of the encoder.
        lambda_1: weight of the sentence term.
        lambda_2: weight of the corpus term.
        mean: of the corpus, (D,).
    """

    def __init__(self, encoded: Encoded, lambda_1: float, lambda_2: float, mean: Tensor) -> None:
        self.encoded, self.lambda_1, self.lambda_2, self.mean = encoded, lambda_1, lambda_2, mean

    def encode(self, texts: Sequence[str], **_: Any) -> Tensor:
        """Return (N, D) refined embeddings, as ``benchmarks/figures/redundancy.py`` asks for them."""
        embeddings, redundant = self.encoded.parts(texts)
        return embeddings - self.lambda_1 * redundant - self.lambda_2 * self.mean
