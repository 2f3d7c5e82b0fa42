"""Encoders compared on texts without labels: cosines of unrelated pairs, thresholds, and the label-free score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_finite_embeddings
from st_extras.encoders.prompts import encode_as
from st_extras.evaluation.geometry import MovedThreshold, moved_threshold, unrelated_cosines
from st_extras.evaluation.label_free import LEAST_CONFIRMED, LabelFreeComparison, LabelFreeScore

FEWEST = 50  # a thousand pairs


@dataclass(frozen=True)
class UnrelatedPairs:
    """Embeddings of N different texts by one or several encoders; nearly all pairs of the texts are unrelated.

    Attributes:
        texts: the texts, or the documents, that every encoder has an embedding of.
        embeddings: encoder -> (N, D) of the texts.
        queries: encoder -> (Q, D), compared with the documents; None: the texts are compared with each other.
        related: (Q, N) bool, documents that contain a query; None without queries.
    """

    texts: list[str]
    embeddings: dict[str, Tensor]
    queries: dict[str, Tensor] | None = None
    related: Tensor | None = None

    def cosines(self) -> dict[str, dict[int, tuple[float, float, float]]]:
        """Return what :func:`~st_extras.evaluation.geometry.unrelated_cosines` finds, by encoder."""
        queries: Mapping[str, Tensor | None] = self.queries or dict.fromkeys(self.embeddings)
        return {
            name: unrelated_cosines(rows, queries=queries[name], related=self.related)
            for name, rows in self.embeddings.items()
        }

    def moved_thresholds(self, threshold: float) -> dict[str, MovedThreshold]:
        """Return where a threshold of the first encoder moves with each other one, by encoder."""
        first, *others = self.embeddings
        return {
            name: moved_threshold(
                threshold,
                self.embeddings[first],
                self.embeddings[name],
                queries=None if self.queries is None else (self.queries[first], self.queries[name]),
                related=self.related,
            )
            for name in others
        }

    def label_free_scores(self) -> dict[str, LabelFreeScore]:
        """Return how much better each other encoder is than the first on the texts, by encoder.

        Raises:
            ValueError: if queries are compared with documents, too few texts have a neighbour that embeddings and words
                agree on, or as for :class:`~st_extras.evaluation.LabelFreeComparison`.
        """
        if self.queries is not None:
            raise ValueError("the score is for texts that are compared with each other, got queries and documents.")
        first, *others = self.embeddings
        comparison = LabelFreeComparison(self.texts, self.embeddings[first])
        if comparison.confirmed_share < LEAST_CONFIRMED:
            raise ValueError(
                f"{LEAST_CONFIRMED:.0%} of the texts must have a neighbour that embeddings and words agree on, got "
                f"{comparison.confirmed_share:.0%}."
            )
        return {name: comparison.compare(self.embeddings[name]) for name in others}


def encode_pairs(
    models: Iterable[tuple[str, SentenceTransformer]],
    texts: Sequence[str],
    queries: Sequence[str] | None = None,
    *,
    prompt: str | None = None,
    **options: Any,
) -> UnrelatedPairs:
    """Encode texts, or queries and documents by their routes and prompts.

    Args:
        models: different names and encoders.
        texts: different texts in random order; the documents, if there are queries.
        queries: different ones in random order.
        prompt: text put before every text; not for queries and documents.
        **options: further arguments of ``encode``: ``batch_size``, ``show_progress_bar``.

    Raises:
        ValueError: if two encoders have one name, an embedding is not finite, or fewer than 50 texts or queries are
            not zero for every encoder (a table of words gives 0 to unknown ones).
    """
    options["convert_to_tensor"] = True
    embeddings: dict[str, Tensor] = {}
    of_queries: dict[str, Tensor] = {}
    for name, model in models:
        if name in embeddings:
            raise ValueError(f"models must have different names, got {name!r} again.")
        if queries is None:
            embeddings[name] = model.encode(list(texts), prompt=prompt, **options)
        else:
            embeddings[name] = encode_as(model, "document", texts, **options)
            of_queries[name] = encode_as(model, "query", queries, **options)
    known, embeddings = _known("text", texts, embeddings)
    if queries is None:
        return UnrelatedPairs(known, embeddings)
    queries, of_queries = _known("queries", queries, of_queries)
    related = torch.tensor([[query in document for document in known] for query in queries])
    return UnrelatedPairs(known, embeddings, of_queries, related)


def _known(name: str, texts: Sequence[str], embeddings: dict[str, Tensor]) -> tuple[list[str], dict[str, Tensor]]:
    """Return the texts that no encoder maps to zero, and their embeddings."""
    for rows in embeddings.values():
        check_finite_embeddings(rows, texts)
    kept = torch.stack([(rows != 0).any(dim=1).cpu() for rows in embeddings.values()]).all(dim=0)
    if int(kept.sum()) < FEWEST:
        raise ValueError(f"{name} must hold at least {FEWEST} different texts to compare, got {int(kept.sum())}.")
    numbers = kept.nonzero().flatten()
    known = {encoder: rows[numbers.to(rows.device)] for encoder, rows in embeddings.items()}
    return [texts[number] for number in numbers.tolist()], known
