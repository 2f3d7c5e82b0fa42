"""Texts, or queries and documents, encoded to find a threshold: nearly all of their pairs are unrelated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_finite_embeddings
from st_extras.encoders.prompts import encode_as
from st_extras.evaluation.geometry import MovedThreshold, moved_threshold, unrelated_cosines

FEWEST = 50  # a thousand pairs


@dataclass(frozen=True)
class UnrelatedPairs:
    """Embeddings of texts by one or several encoders.

    Attributes:
        texts: encoder -> (N, D) of the texts, or of the documents.
        queries: encoder -> (Q, D), compared with the documents; None: the texts are compared with each other.
        related: (Q, N) bool, documents that contain a query; None without queries.
    """

    texts: dict[str, Tensor]
    queries: dict[str, Tensor] | None = None
    related: Tensor | None = None

    def cosines(self) -> dict[str, dict[int, tuple[float, float, float]]]:
        """Return what :func:`~st_extras.evaluation.geometry.unrelated_cosines` finds, by encoder."""
        queries: Mapping[str, Tensor | None] = self.queries or dict.fromkeys(self.texts)
        return {
            name: unrelated_cosines(rows, queries=queries[name], related=self.related)
            for name, rows in self.texts.items()
        }

    def moved_threshold(self, threshold: float) -> MovedThreshold:
        """Return where a threshold of the encoder "before" moves with the encoder "after"."""
        queries = None if self.queries is None else (self.queries["before"], self.queries["after"])
        before, after = self.texts["before"], self.texts["after"]
        return moved_threshold(threshold, before, after, queries=queries, related=self.related)


def encode_pairs(
    models: Mapping[str, SentenceTransformer],
    texts: Sequence[str],
    queries: Sequence[str] | None = None,
    *,
    prompt: str | None = None,
    **options: Any,
) -> UnrelatedPairs:
    """Encode texts, or queries and documents by their routes and prompts.

    Args:
        models: the encoders by name.
        texts: different texts in random order; the documents, if there are queries.
        queries: different ones in random order.
        prompt: text put before every text; not for queries and documents.
        **options: further arguments of ``encode``: ``batch_size``, ``show_progress_bar``.

    Raises:
        ValueError: if an embedding is not finite, or fewer than 50 texts or queries are not zero for every encoder (a
            table of words gives 0 to unknown ones).
    """
    options["convert_to_tensor"] = True
    if queries is None:
        encoded = {name: model.encode(list(texts), prompt=prompt, **options) for name, model in models.items()}
        return UnrelatedPairs(_known("text", texts, encoded)[1])
    documents = {name: encode_as(model, "document", texts, **options) for name, model in models.items()}
    asked = {name: encode_as(model, "query", queries, **options) for name, model in models.items()}
    texts, documents = _known("text", texts, documents)
    queries, asked = _known("queries", queries, asked)
    related = torch.tensor([[query in document for document in texts] for query in queries])
    return UnrelatedPairs(documents, asked, related)


def _known(name: str, texts: Sequence[str], encoded: dict[str, Tensor]) -> tuple[list[str], dict[str, Tensor]]:
    """Return the texts that no encoder maps to zero, and their embeddings."""
    for rows in encoded.values():
        check_finite_embeddings(rows, texts)
    kept = torch.stack([(rows != 0).any(dim=1).cpu() for rows in encoded.values()]).all(dim=0)
    if int(kept.sum()) < FEWEST:
        raise ValueError(f"{name} must hold at least {FEWEST} different texts to compare, got {int(kept.sum())}.")
    rows = kept.nonzero().flatten()
    return [texts[row] for row in rows.tolist()], {
        name: found[rows.to(found.device)] for name, found in encoded.items()
    }
