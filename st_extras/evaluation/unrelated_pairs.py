"""Encoders compared on texts without labels: cosines of unrelated pairs, thresholds, and the label-free score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_finite_embeddings, check_interval
from st_extras.encoders.prompts import encode_as
from st_extras.encoders.structure import has_search_routes
from st_extras.evaluation.geometry import MovedThreshold, moved_threshold, unrelated_cosines
from st_extras.evaluation.label_free import LEAST_CONFIRMED, LabelFreeComparison, LabelFreeScore
from st_extras.ranking import queries_from_documents
from st_extras.text.corpus import sampled_texts

FEWEST = 50  # a thousand pairs
_SAMPLED = 2000  # texts whose pairs are compared


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
    query_embeddings: dict[str, Tensor] = {}
    for name, model in models:
        if name in embeddings:
            raise ValueError(f"models must have different names, got {name!r} again.")
        if queries is None:
            embeddings[name] = model.encode(list(texts), prompt=prompt, **options)
        else:
            embeddings[name] = encode_as(model, "document", texts, **options)
            query_embeddings[name] = encode_as(model, "query", queries, **options)
    known, embeddings = _known("texts", texts, embeddings)
    if queries is None:
        return UnrelatedPairs(known, embeddings)
    queries, query_embeddings = _known("sentences", queries, query_embeddings)
    related = torch.tensor([[query in document for document in known] for query in queries])
    return UnrelatedPairs(known, embeddings, query_embeddings, related)


def _known(kind: str, texts: Sequence[str], embeddings: dict[str, Tensor]) -> tuple[list[str], dict[str, Tensor]]:
    """Return the texts that no encoder maps to zero, and their embeddings."""
    for rows in embeddings.values():
        check_finite_embeddings(rows, texts)
    kept = torch.stack([(rows != 0).any(dim=1).cpu() for rows in embeddings.values()]).all(dim=0)
    if int(kept.sum()) < FEWEST:
        raise ValueError(f"texts must hold at least {FEWEST} different {kind} to compare, got {int(kept.sum())}.")
    numbers = kept.nonzero().flatten()
    known = {encoder: rows[numbers.to(rows.device)] for encoder, rows in embeddings.items()}
    return [texts[number] for number in numbers.tolist()], known


# --- one report of all of it ---


@dataclass(frozen=True)
class UnrelatedCosine:
    """A cosine that a share of the unrelated pairs exceeds, with the ends of its 95 % interval."""

    cosine: float
    low: float
    high: float


@dataclass(frozen=True)
class TextComparison:
    """Encoders compared on text without labels.

    Attributes:
        texts: how many different texts were compared, with each other or with the queries.
        read: how many texts were read, without blank ones.
        queries: how many sentences of the texts were compared with the texts as queries; None: the texts were compared
            with each other.
        cosines: by encoder and n the cosine that 1 of n unrelated pairs exceeds.
        thresholds: by each encoder but the first, where a threshold of the first moves; empty without a threshold.
        label_free: by each encoder but the first, how much better it is than the first; empty if it was not compared.
        not_compared: why it was not, if there are several encoders.
    """

    texts: int
    read: int
    queries: int | None
    cosines: dict[str, dict[int, UnrelatedCosine]]
    thresholds: dict[str, MovedThreshold]
    label_free: dict[str, LabelFreeScore]
    not_compared: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return asdict(self)


def compare_texts(
    models: Iterable[tuple[str, SentenceTransformer]],
    texts: Any,
    *,
    threshold: float | None = None,
    prompt: str | None = None,
    show_progress_bar: bool = True,
) -> TextComparison:
    """Compare encoders on text without labels: cosines of unrelated pairs, a threshold that moves, who is better.

    Of the texts, 2,000 different ones are sampled. If an encoder has routes for queries and documents, as
    :func:`~st_extras.adaptation.adapt_search` saves them, sentences of the texts are compared with the texts as
    queries, else the texts with each other. Queries of users will not do, see :meth:`HybridSearch.unrelated_similarity
    <st_extras.search.HybridSearch.unrelated_similarity>`.

    Args:
        models: different names and encoders; the others are compared with the first. All are held at once.
        texts: at least 50 different texts: a collection of strings or a data set; of a generator, read once. For the
            label-free score none that an encoder was fitted on, and 100 or more.
        threshold: on cosines with the first encoder, between -1 and 1; None: no threshold is moved.
        prompt: text put before each text; not for encoders with routes. None: the encoder's own.
        show_progress_bar: while encoding.

    Raises:
        ValueError: if two encoders have one name, there are too few texts, ``threshold`` is out of range or given for
            one encoder, or ``prompt`` is given for an encoder with routes.

    Example:
        >>> from st_extras.encoders import load_encoder
        >>> from st_extras.evaluation import compare_texts
        >>> from st_extras.samples import sample_sentences
        >>> models = [("demo", load_encoder("demo"))]
        >>> report = compare_texts(models, sample_sentences()[:200], show_progress_bar=False)
        >>> report.texts, list(report.cosines["demo"])
        (200, [100, 1000])
    """
    if threshold is not None:
        threshold = check_interval("threshold", threshold, -1, 1)
    loaded = list(models)
    if threshold is not None and len(loaded) < 2:
        raise ValueError(f"threshold needs a second encoder, whose equivalent is found, got {len(loaded)}.")
    sample, read = sampled_texts(texts, _SAMPLED, 42)
    has_routes = any(has_search_routes(model) for _, model in loaded)
    if has_routes and prompt is not None:
        raise ValueError("prompt must be left out for an encoder with routes for queries and documents, got one.")
    pairs = encode_pairs(
        loaded,
        sample,
        queries_from_documents(sample) if has_routes else None,
        prompt=prompt,
        show_progress_bar=show_progress_bar,
    )
    scores, why_not = {}, None
    if len(loaded) > 1:
        try:
            scores = pairs.label_free_scores()
        except ValueError as error:
            why_not = str(error)
    return TextComparison(
        texts=len(pairs.texts),
        read=read,
        queries=None if pairs.queries is None else len(next(iter(pairs.queries.values()))),
        cosines={
            name: {n: UnrelatedCosine(*mark) for n, mark in marks.items()} for name, marks in pairs.cosines().items()
        },
        thresholds={} if threshold is None else pairs.moved_thresholds(threshold),
        label_free=scores,
        not_compared=why_not,
    )
