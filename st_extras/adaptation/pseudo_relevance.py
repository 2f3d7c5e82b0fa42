"""Queries of an adaptation for search, and rankings compared with and without relevance judgements."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from st_extras.checks import shown
from st_extras.evaluation import RetrievalEvaluator, RetrievalTask
from st_extras.text.corpus import is_blank, iterate_sentences
from st_extras.text.term_weights import BM25, bm25_weight_of_blocks, searchable_sentences

FROM_DOCUMENTS = "documents"
"""In place of queries: make some from the documents."""
FEWEST_QUERIES = 20
FEWEST_DOCUMENTS = 100
MOST_QUERIES = 2000
"""More are not encoded: means and comparison are exact enough by then."""
_FIRST = 5  # pseudo-relevant documents of a query: BM25's first ones
_BLOCK = 2**22  # scores held at a time


def sample_queries(queries: Any, documents: Sequence[str], seed: int) -> tuple[list[str], bool]:
    """Return at most 2,000 different queries, sampled at random, and whether they were made from the documents.

    Raises:
        ValueError: if one is not a text, or most of the queries are documents.
    """
    if isinstance(queries, str) and queries != FROM_DOCUMENTS:
        raise ValueError(f'queries must be a collection of texts or "{FROM_DOCUMENTS}", got {shown(queries)}.')
    made = isinstance(queries, str)
    texts = _made_from(documents, seed) if made else list(map(str.strip, iterate_sentences(queries, name="queries")))
    different = list(dict.fromkeys(text for text in texts if not is_blank(text)))
    same = len(set(different) & set(documents))
    if 2 * same > len(different):
        raise ValueError(f"queries must differ from the documents, but {same} of {len(different)} are documents.")
    return random.Random(seed).sample(different, min(MOST_QUERIES, len(different))), made


def too_few(documents: int, queries: int, made: bool) -> str:
    """Return what is lacking, counting different documents and queries; empty if there are enough of both."""
    if documents < FEWEST_DOCUMENTS:
        return f"{FEWEST_DOCUMENTS} different documents are needed, got {documents}."
    if queries < FEWEST_QUERIES:
        remedy = ": too few documents have two sentences to make them of, so give queries" if made else ""
        return f"{FEWEST_QUERIES} different queries are needed, got {queries}{remedy}."
    return ""


def _made_from(documents: Sequence[str], seed: int) -> list[str]:
    """Return a sentence of three words and more of each document that has two of them."""
    draw = random.Random(seed)
    return [draw.choice(found) for found in map(searchable_sentences, documents) if len(found) > 1]


def hybrid_weight(documents: Sequence[str], queries: Sequence[str], embeddings: tuple[Tensor, Tensor]) -> float:
    """Return the weight of BM25 beside an encoder, see :func:`~st_extras.text.term_weights.bm25_weight`.

    Args:
        documents: N texts.
        queries: Q texts.
        embeddings: (Q, D) queries and (N, D) documents, compared by inner product.

    Raises:
        ImportError: if bm25s is not installed.
    """
    index = BM25(documents)
    rows = blocks(list(range(len(queries))), len(documents))
    return bm25_weight_of_blocks(
        ((embeddings[0][block] @ embeddings[1].T).numpy(), index.scores([queries[row] for row in block]))
        for block in rows
    )


class PseudoRelevanceComparison:
    """Compares rankings with the base model's by how early they find pseudo-relevant documents: the first five of BM25.

    It measures the average precision of each query. That shows whether a transform harms, not how strong one should be:
    over seven collections, it ordered strengths as the relevance judgements do on five. So a transform is refused if it
    is worse than the base model by more than one standard error.

    Args:
        documents: N texts.
        queries: Q texts.
        base: (Q, D) queries and (N, D) documents by the base model, compared by inner product.

    Attributes:
        compared: numbers of the queries that share a word with a document; the others have no pseudo-relevant one.

    Raises:
        ImportError: if bm25s is not installed.
    """

    def __init__(self, documents: Sequence[str], queries: Sequence[str], base: tuple[Tensor, Tensor]) -> None:
        index = BM25(documents)
        targets = [torch.zeros(0, _FIRST, dtype=torch.long)]
        for rows in blocks(list(range(len(queries))), len(documents)):
            best = torch.from_numpy(index.scores([queries[row] for row in rows])).topk(_FIRST, dim=1)
            targets.append(best.indices.masked_fill(best.values <= 0, -1))  # (B, 5), -1: none
        self._targets = torch.cat(targets)
        self.compared: list[int] = (self._targets[:, 0] >= 0).nonzero().flatten().tolist()
        self._base = self._average_precisions(*base)

    def compare(self, queries: Tensor, documents: Tensor) -> tuple[float, float]:
        """Return the mean change of the average precision, and its standard error over queries.

        Args:
            queries: (Q, D) their embeddings after a transform, of length 1.
            documents: (N, D) likewise.
        """
        changes = self._average_precisions(queries, documents) - self._base
        return float(changes.mean()), float(changes.std() / len(changes) ** 0.5)

    def _average_precisions(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Return the average precision of each compared query, (J,)."""
        found = [
            average_precision(queries[rows] @ documents.T, self._targets[rows])
            for rows in blocks(self.compared, len(documents))
        ]
        return torch.cat([torch.zeros(0), *found]).double()


class JudgedQueries:
    """Compares rankings with the base model's by relevance judgements: nDCG@10, times 100.

    Args:
        task: its documents are searched for its queries.
        base: (Q, D) queries and (N, D) documents of the task by the base model, compared by inner product.

    Attributes:
        score: of the base model.
    """

    def __init__(self, task: RetrievalTask, base: tuple[Tensor, Tensor]) -> None:
        self._evaluator = RetrievalEvaluator(task)
        self.score = self._ndcg(*base)

    def compare(self, queries: Tensor, documents: Tensor) -> float:
        """Return the change of the score, for embeddings after a transform."""
        return self._ndcg(queries, documents) - self.score

    def _ndcg(self, queries: Tensor, documents: Tensor) -> float:
        hits = []
        for rows in blocks(list(range(len(queries))), len(documents)):
            hits += self._evaluator.rank(queries[rows] @ documents.T)
        return 100 * float(self._evaluator.compute_metrics(hits)["ndcg@k"][10])


def blocks(rows: list[int], columns: int) -> list[list[int]]:
    """Cut row numbers so that the scores of a block with all columns fit into 16 MiB."""
    size = max(1, _BLOCK // columns)
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def first_documents(queries: Tensor, documents: Tensor, count: int = 3) -> Tensor:
    """Return the numbers (Q, count) of the documents (N, D) that each query (Q, D) finds first."""
    found = blocks(list(range(len(queries))), len(documents))
    return torch.cat([(queries[rows] @ documents.T).topk(count, dim=1).indices for rows in found])


def average_precision(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the average precision (B,) with which rankings find documents; of equal scores, others come first.

    Args:
        scores: (B, N) of each document, higher is earlier.
        targets: (B, K) numbers of the documents to find; -1: none. Each row has one at least.
    """
    of_targets = scores.gather(1, targets.clamp_min(0))  # (B, K)
    ranks = torch.stack([(scores >= one.unsqueeze(1)).sum(dim=1) for one in of_targets.unbind(1)], dim=1).float()
    ranks = ranks.masked_fill(targets < 0, torch.inf).sort(dim=1).values
    precision = torch.arange(1, ranks.size(1) + 1) / ranks
    return precision.sum(dim=1) / (targets >= 0).sum(dim=1)
