"""``adapt`` for search: queries and documents each moved by their own mean, and whitened halfway where texts differ.

Queries are short, documents long: an encoder puts them into two clouds, and the way from one to the other says nothing
about what is relevant. Equation, for a query q and a document d of length 1, their means m_q and m_d:

    q' = (q - m_d - s (m_q - m_d)) X,    d' = (d - m_d) X,    X = (1 - t) I + t W

with W the kernel of :class:`~st_extras.modules.neighbor_directions.NeighborDirections` of the documents without
recoloring: directions on which a document and its nearest ones agree keep most.

With ``keep_index``, documents stay as they are, and a query gets what ranks them nearly as q' and d' do. The score is
q'.d' / |d'|, with |d'| close to a + v.d (ridge regression over documents). So a change of d changes it, but for a
factor, by that of (q' X^T - T v).d, where T is the score itself: its mean over the first five documents. Hence
q'' = q' X^T - T v.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router
from torch import Tensor
from torch.nn.functional import normalize

from st_extras.adaptation.candidates import LinearTransform
from st_extras.adaptation.encode import EncodeTexts
from st_extras.adaptation.judge import Row, choose
from st_extras.adaptation.report import REPORTS, Adapted, write_report, write_searches
from st_extras.adaptation.search_judge import (
    FEWEST_QUERIES,
    JudgedQueries,
    PseudoRelevanceComparison,
    Searched,
    first_documents,
)
from st_extras.checks import check_choice
from st_extras.evaluation import RetrievalTask
from st_extras.modules import LocalityPreservingPostProcessor, pipeline
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.text.term_weights import character_tfidf
from st_extras.training.run_folder import save_model

_FIT_TEXTS = 10_000  # documents that the directions are found from
_LONGEST_FIT_TEXT = 2000  # characters of them that are compared
_MOST_WITH_A_GRAM = 0.1  # of the documents: grams that more of them have are left out, as stop words are
_RIDGE = 0.1  # of the mean variance
ROLES = ("query", "document")
"""Routes of the saved model, and how texts are encoded for each."""

Embeddings = tuple[Tensor, Tensor]
"""Of queries (Q, D) and of documents (N, D), of length 1, in float32."""
Start = tuple[Embeddings, Embeddings]
"""As the encoder is searched by inner product, of any length if it compares so; and of length 1."""
Affine = tuple[Tensor, Tensor]
"""The matrix X (D, D) and the offset b (D,) of v' = v X + b, in float64."""


@dataclass(frozen=True)
class SearchStep:
    """A candidate: see the module's equation.

    Attributes:
        name: in the table.
        whitened: t, with any number of documents; N have N / (N + 1000) of it.
        own_mean: s.
    """

    name: str
    whitened: float
    own_mean: float


BOTH_SIDES = (
    SearchStep("half white, own means", 0.5, 1.0),
    SearchStep("half white, means halfway", 0.5, 0.5),
    SearchStep("half white, one mean", 0.5, 0.0),
)
"""Tried in this order. The later ones keep more of the queries' mean, for queries on one topic, whose mean says which.
Queries made from the documents get the last one alone, because the queries of users have another mean."""
QUERIES_ALONE = tuple(
    SearchStep(step.name.replace("half white", "quarter white"), step.whitened / 2, step.own_mean)
    for step in BOTH_SIDES
)
"""With ``keep_index``: queries are multiplied by X twice, documents never."""


@dataclass(frozen=True, eq=False)
class Routes:
    """What follows the encoder, once its embeddings have length 1. None: nothing.

    Attributes:
        queries: for queries.
        documents: for documents.
    """

    queries: Affine | None
    documents: Affine | None = None

    def after(self, embeddings: Embeddings) -> Embeddings:
        """Return queries and documents after their steps, of length 1."""
        return _after(embeddings[0], self.queries), _after(embeddings[1], self.documents)


def adapt_search(
    model: SentenceTransformer,
    searched: Searched,
    facts: dict[str, Any],
    output: Path,
    encode_texts: EncodeTexts,
    kept: Path,
    began: float,
    seed: int,
    *,
    dev: RetrievalTask | None,
    keep_index: bool,
) -> Adapted:
    """Encode, propose, judge, choose and save: what :func:`~st_extras.adaptation.adapt` does for search.

    Args:
        model: the encoder.
        searched: documents and queries.
        facts: what was found out about them so far.
        output: where the model goes.
        encode_texts: encodes them.
        kept: folder for their embeddings.
        began: when the adaptation did, by ``time.perf_counter``.
        seed: random seed.
        dev: chooses in place of the judge.
        keep_index: change the route of queries alone.

    Raises:
        ValueError: if an embedding is not finite, or the documents have too few different ones.
        ImportError: if bm25s is not installed.
    """
    own, start = encode_both(model, searched, encode_texts, kept)
    if keep_index and not torch.allclose(own[1].norm(dim=1), torch.ones(1), atol=0.01):  # in bfloat16
        raise ValueError("keep_index must be False where dot products see lengths: those of its documents are 1.")
    facts |= {"texts": len(searched.documents), "queries": len(searched.queries), "made": searched.made}
    steps = (QUERIES_ALONE if keep_index else BOTH_SIDES)[-1 if searched.made else 0 :]
    proposed = propose_both_sides(searched, start, steps, seed)
    proposed = queries_alone(proposed, start) if keep_index else proposed
    if dev is None:
        rows, number, reason = by_words(searched, (own, start), steps, proposed, facts)
    else:
        rows, number, reason = by_judgements(model, dev, steps, proposed, facts, encode_texts)
    chosen = None
    if number is not None:
        chosen = steps[number].name
        model = routed(model, proposed[number])
        describe(model, chosen, searched)
    adapted = Adapted(model, chosen, reason, rows, facts, time.perf_counter() - began)
    save_model(model, output, reports=REPORTS)
    if number is not None:
        before, after = (first_documents(*both) for both in (own, proposed[number].after(start)))
        facts["changed"] = write_searches(output, searched.queries, searched.documents, before, after, seed)
    write_report(output, adapted, steps)
    return adapted


def encode_both(model: SentenceTransformer, searched: Searched, encode_texts: EncodeTexts, kept: Path | None) -> Start:
    """Encode queries and documents with the prompts and by the routes that the model has for them.

    Raises:
        ValueError: if an embedding is not finite.
    """
    own = []
    for role, texts in zip(ROLES, (searched.queries, searched.documents), strict=True):
        own.append(encode_texts(model, texts, kept=kept, role=role, label=f"Encoding {role} texts"))
        pipeline.check_finite(own[-1], texts)
    unit = normalize(own[0]).float(), normalize(own[1]).float()
    return (unit if model.similarity_fn_name == "cosine" else (own[0].float(), own[1].float())), unit


def propose_both_sides(searched: Searched, start: Embeddings, steps: Sequence[SearchStep], seed: int) -> list[Routes]:
    """Return the routes of steps on both sides.

    Raises:
        ValueError: if the documents have too few different embeddings.
    """
    of_queries, of_documents = (side.double().mean(dim=0) for side in start)  # (D,)
    fitted = [text[:_LONGEST_FIT_TEXT] for text in searched.documents[:_FIT_TEXTS]]
    found = neighbor_directions(start[1][:_FIT_TEXTS], words=character_tfidf(fitted, _MOST_WITH_A_GRAM), seed=seed)
    found = dataclasses.replace(found, count=found.count * len(searched.documents) // len(fitted))
    routes = []
    for step in steps:
        matrix, _ = LinearTransform(step.name, recolor=0.0, strength=step.whitened, kept_mean=0.0).affine(found)
        center = of_documents + step.own_mean * (of_queries - of_documents)
        routes.append(Routes((matrix, -center @ matrix), (matrix, -of_documents @ matrix)))
    return routes


def queries_alone(routes: Sequence[Routes], start: Embeddings) -> list[Routes]:
    """Return for each of the routes of :func:`propose_both_sides` one that leaves documents as they are."""
    documents = start[1][:_FIT_TEXTS].double()
    centred = documents - documents.mean(dim=0)
    scatter = centred.T @ centred
    scatter += _RIDGE * scatter.trace() / len(scatter) * torch.eye(len(scatter))
    alone = []
    for both in routes:
        (matrix, offset), (_, of_documents) = cast(Any, (both.queries, both.documents))
        queries, moved = start[0].double() @ matrix + offset, documents @ matrix + of_documents
        lengths = moved.norm(dim=1)
        slope = torch.linalg.solve(scatter, centred.T @ (lengths - lengths.mean()))  # v, (D,)
        moved = normalize(moved)
        first = first_documents(queries.float(), moved.float(), count=5)  # (Q, 5)
        level = (queries.unsqueeze(1) * moved[first]).sum(dim=2).mean()  # T
        alone.append(Routes((matrix @ matrix.T, offset @ matrix.T - level * slope)))
    return alone


Choice = tuple[list[Row], int | None, str]
"""The table, the number of the row to take or None, and why."""


def by_words(
    searched: Searched, both: Start, steps: Sequence[SearchStep], routes: Sequence[Routes], facts: dict[str, Any]
) -> Choice:
    """Take the first step that the :class:`PseudoRelevanceComparison` accepts."""
    own, start = both
    judge = PseudoRelevanceComparison(searched, own)
    facts["judged"] = len(judge.judged)
    if len(judge.judged) < FEWEST_QUERIES:
        few = f"{len(judge.judged)} queries share a word with a document, and {FEWEST_QUERIES} are needed to judge"
        return [], None, f"Left as it is: {few}."
    rows = [judged_row(judge, step, one.after(start)) for step, one in zip(steps, routes, strict=True)]
    for number, row in enumerate(rows):
        if row.accepted:
            return rows, number, f"{row.name} was taken: it finds BM25's first documents as early as the start does."
    return rows, None, "Left as it is: each candidate finds BM25's first documents later than the start does."


def judged_row(judge: PseudoRelevanceComparison, step: SearchStep, after: Embeddings) -> Row:
    """Return a line of the table; accepted unless it is worse than the start by more than one standard error."""
    began = time.perf_counter()
    gain, error = judge.compare(*after)
    accepted = gain >= -error
    why = "" if accepted else "finds BM25's first documents later than the start"
    low, high = gain - 1.96 * error, gain + 1.96 * error
    return Row(step.name, gain, low, high, None, accepted, why, round(time.perf_counter() - began, 1))


def by_judgements(
    model: SentenceTransformer,
    dev: RetrievalTask,
    steps: Sequence[SearchStep],
    routes: Sequence[Routes],
    facts: dict[str, Any],
    encode_texts: EncodeTexts,
) -> Choice:
    """Take the step of the highest nDCG@10, if it is above the start's."""
    scored = [text for key, text in dev.queries.items() if dev.relevant.get(key)]
    searched = Searched(list(dev.documents.values()), scored)
    own, start = encode_both(model, searched, encode_texts, None)
    judge = JudgedQueries(dev, own)
    facts["dev"] = judge.score
    rows = []
    for step, one in zip(steps, routes, strict=True):
        began = time.perf_counter()
        gain = judge.compare(*one.after(start))
        why = "" if gain > 0 else "not better than the start"
        rows.append(Row(step.name, gain, None, None, None, not why, why, round(time.perf_counter() - began, 1)))
    return rows, *choose(rows)


def check_searchable(model: SentenceTransformer) -> None:
    """Check that routes for queries and documents can be put behind the encoder.

    Raises:
        ValueError: if it starts with a Router that has other routes, or compares by distances.
    """
    check_choice("model.similarity_fn_name", model.similarity_fn_name, ("cosine", "dot"))
    if isinstance(model[0], Router) and (missing := sorted(set(ROLES) - set(model[0].sub_modules))):
        found = ", ".join(map(repr, model[0].sub_modules))
        raise ValueError(f"model must have the routes 'query' and 'document' in its Router, got {found}: no {missing}.")


def routed(model: SentenceTransformer, routes: Routes) -> SentenceTransformer:
    """Return a model of stock modules with a route for queries and one for documents; weights are shared.

    Plain ``encode`` takes the route of documents. The routes come behind the encoder: Sentence Transformers gives
    modules behind the first one its dtype, and none within it.
    """
    modules: list[Any] = list(model)
    if isinstance(modules[0], Router):
        modules[0] = pipeline.shared_module(modules[0], Router)
        modules[0].default_route = ROLES[1]
    while isinstance(modules[-1], Normalize):
        modules.pop()
    sides: dict[str, list[Any]] = {name: [Normalize()] for name in ROLES}
    for name, step in zip(ROLES, (routes.queries, routes.documents), strict=True):
        if step is not None:
            sides[name].append(pipeline.as_dense(step[0].T, step[1]).to(model.device))
    return pipeline.rebuild_model(model, [*modules, Router(sides, default_route=ROLES[1]), Normalize()])


def describe(model: SentenceTransformer, step: str, searched: Searched) -> None:
    """Say in the model card what was put behind the encoder."""
    queries = "queries made from them" if searched.made else f"{len(searched.queries):,} queries"
    line = (
        f"* **st-extras adapt, for search**, {step}: from {len(searched.documents):,} documents and {queries}, "
        "without judgements. Use `encode_query` and `encode_document`; plain `encode` takes a text for a document."
    )
    card: Any = model.model_card_data
    card.exported = card.exported | {"Search": (line, LocalityPreservingPostProcessor(1).citation)}


def _after(embeddings: Tensor, step: Affine | None) -> Tensor:
    """Return (N, D) rows of length 1 after a step."""
    return embeddings if step is None else normalize(embeddings @ step[0].float() + step[1].float())
