"""The candidates of :func:`adapt_search`: queries and documents each centred and whitened halfway.

Queries are short, documents long: an encoder puts them into two clouds, and the offset between the clouds shows nothing
about what is relevant. Equation, for a query q and a document d of length 1, their means m_q and m_d:

    q' = (q - m_d - s (m_q - m_d)) X,    d' = (d - m_d) X,    X = (1 - t) I + t W

with W the kernel of :class:`~st_extras.modules.neighbor_directions.NeighborDirections` of the documents without
recoloring: directions on which a document and its nearest ones agree keep most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import normalize

from st_extras.functional import unit_rows
from st_extras.modules.linear import Affine
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.ranking import Floats, first_documents
from st_extras.text.term_weights import character_tfidf

_FIT_TEXTS = 10_000  # documents that the directions are found from
_MOST_WITH_A_GRAM = 0.1  # of the documents: grams that more of them have are left out, as stop words are
_RIDGE = 0.1  # of the mean variance
_LEVEL_DOCUMENTS = 5  # of each query, whose mean score is the one around which documents are ranked

Embeddings = tuple[Floats, Floats]
"""Of queries (Q, D) and of documents (N, D), in float32; of length 1 where a transform is applied."""


@dataclass(frozen=True)
class SearchTransform:
    """A candidate: see the module's equation.

    Attributes:
        name: in the table.
        strength: t, with any number of documents; N have N / (N + 1000) of it.
        own_mean: s.
    """

    name: str
    strength: float
    own_mean: float


BOTH_SIDES = (
    SearchTransform("half whitening with own means", 0.5, 1.0),
    SearchTransform("half whitening with halfway means", 0.5, 0.5),
    SearchTransform("half whitening with one mean", 0.5, 0.0),
)
"""Tried in this order. The later ones keep more of the queries' mean, for queries on one topic, whose mean names it.
Queries made from the documents get the last one alone, because the queries of users have another mean."""
QUERIES_ALONE = tuple(
    SearchTransform(one.name.replace("half whitening", "quarter whitening"), one.strength / 2, one.own_mean)
    for one in BOTH_SIDES
)
"""With ``keep_index``: queries are multiplied by X twice, documents never."""


@dataclass(frozen=True, eq=False)
class Routes:
    """What follows the encoder, once its embeddings have length 1. None: nothing.

    Attributes:
        queries: for queries.
        documents: for documents.
    """

    queries: Affine
    documents: Affine | None = field(default=None)

    def after(self, embeddings: Embeddings) -> Embeddings:
        """Return queries and documents after their transforms, of length 1."""
        queries, documents = embeddings
        return _transformed(queries, self.queries), _transformed(documents, self.documents)


def _transformed(embeddings: Floats, transform: Affine | None) -> Floats:
    """Return (N, D) rows of length 1 after a transform."""
    if transform is None:
        return embeddings
    matrix, offset = transform
    moved: Floats = unit_rows(torch.from_numpy(embeddings) @ matrix.float() + offset.float()).numpy()
    return moved


def both_sides(
    documents: Sequence[str], base: Embeddings, transforms: Sequence[SearchTransform], seed: int
) -> list[Routes]:
    """Return the routes of transforms of queries and documents.

    Args:
        documents: N texts.
        base: (Q, D) queries and (N, D) documents by the base model, of length 1.
        transforms: which ones.
        seed: of the texts that the directions are found from.

    Raises:
        TooFewDifferentError: if the documents have too few different embeddings.
    """
    of_queries, of_documents = (torch.from_numpy(side).double().mean(dim=0) for side in base)  # (D,)
    fitted = documents[:_FIT_TEXTS]
    directions = neighbor_directions(
        torch.from_numpy(base[1][:_FIT_TEXTS]), tfidf=character_tfidf(fitted, _MOST_WITH_A_GRAM), seed=seed
    )
    directions = dataclasses.replace(directions, count=directions.count * len(documents) // len(fitted))
    routes = []
    for one in transforms:
        matrix = directions.blend(one.strength, recolor=0.0)
        center = of_documents + one.own_mean * (of_queries - of_documents)
        routes.append(Routes(Affine.centred(center, matrix), Affine.centred(of_documents, matrix)))
    return routes


def queries_alone(routes: Sequence[Routes], base: Embeddings) -> list[Routes]:
    """Return, for each of the routes of :func:`both_sides`, one that leaves the documents as they are in the index.

    It ranks documents nearly as those routes do. They give q and d the score S = q'.d' / |d'|, with d' = (d - m_d) X.
    Documents of one score T are those with q'.d' - T |d'| = 0, and those that score more have more; so the documents
    around T are ranked by q'.d' - T |d'|. Both of its terms are linear in d, the second one nearly:

        q'.d' = (q' X^T).d + what depends on q alone,    |d'| = v.d + a constant    (v by ridge regression)

    So q'' = q' X^T - T v ranks them by its product with the stored d. T is the mean score of the first five documents
    of each query, because the first ones have to be in order.

    Args:
        routes: those of both sides.
        base: (Q, D) queries and (N, D) documents by the base model, of length 1.
    """
    start = torch.from_numpy(base[0]).double()
    documents = torch.from_numpy(base[1][:_FIT_TEXTS]).double()
    alone = []
    for both in routes:
        matrix, offset = both.queries
        queries = both.queries.apply(start)  # q', (Q, D)
        moved = documents if both.documents is None else both.documents.apply(documents)  # d', (N, D)
        slope = ridge_slope(documents, moved.norm(dim=1))  # v, (D,)
        moved = normalize(moved)
        first = first_documents(queries.float().numpy(), moved.float().numpy(), _LEVEL_DOCUMENTS)  # (Q, 5)
        level = (queries.unsqueeze(1) * moved[first]).sum(dim=2).mean()  # T, ()
        alone.append(Routes(Affine(matrix @ matrix.T, offset @ matrix.T - level * slope)))
    return alone


def ridge_slope(rows: Tensor, values: Tensor) -> Tensor:
    """Return v (D,) of values = rows v + constant by ridge regression, for (N, D) rows and (N,) values."""
    centred = rows - rows.mean(dim=0)
    scatter = centred.T @ centred
    scatter += _RIDGE * scatter.trace() / len(scatter) * torch.eye(len(scatter))
    slope: Tensor = torch.linalg.solve(scatter, centred.T @ (values - values.mean()))
    return slope
