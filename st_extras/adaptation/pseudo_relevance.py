"""Rankings compared with those of the base model, with and without relevance judgements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from st_extras.encoders.passages import Passages
from st_extras.evaluation import RetrievalEvaluator, RetrievalTask
from st_extras.functional import row_blocks
from st_extras.ranking import Floats, Numbers, highest, score_blocks
from st_extras.text.term_weights import BM25

_FIRST = 5  # pseudo-relevant documents of a query: BM25's first ones


class PseudoRelevanceComparison:
    """Compares rankings with the base model's by how early they find pseudo-relevant documents: the first five of BM25.

    It measures the average precision of each query. That shows whether a transform harms, not how strong one should be:
    over seven collections, it ordered strengths as the relevance judgements do on five.

    Args:
        bm25: of N documents.
        queries: Q texts.
        base: (Q, D) queries and (P, D) passages of documents by the base model, compared by inner product.
        passages: of each document, whose best one counts. None: the documents are whole.

    Attributes:
        compared: numbers of the queries that share a word with a document; the others have no pseudo-relevant one.
    """

    def __init__(
        self,
        bm25: BM25,
        queries: Sequence[str],
        base: tuple[Floats, Floats],
        passages: Passages | None = None,
    ) -> None:
        self._passages = passages
        targets = [np.empty((0, _FIRST), dtype=np.int64)]
        for rows in row_blocks(len(queries), len(base[1])):
            scores = bm25.scores(queries[rows])
            best = highest(scores, _FIRST)
            targets.append(np.where(np.take_along_axis(scores, best, axis=1) > 0, best, -1))  # (B, 5), -1: none
        all_targets = np.concatenate(targets)
        self.compared = np.flatnonzero(all_targets[:, 0] >= 0)
        self._targets = all_targets[self.compared]
        self._base = self._average_precisions(*base)

    def compare(self, queries: Floats, documents: Floats) -> tuple[float, float]:
        """Return the mean change of the average precision, and its standard error over queries.

        Args:
            queries: (Q, D) their embeddings after a transform, of length 1.
            documents: (P, D) likewise, of the passages of the documents.
        """
        changes = self._average_precisions(queries, documents) - self._base
        return float(changes.mean()), float(changes.std(ddof=1) / len(changes) ** 0.5)

    def _average_precisions(self, queries: Floats, documents: Floats) -> NDArray[np.float64]:
        """Return the average precision of each of the J compared queries, (J,)."""
        blocks = score_blocks(queries[self.compared], documents)
        cut = self._passages
        precisions = [
            average_precision(scores if cut is None else cut.best(scores), self._targets[rows])
            for rows, scores in blocks
        ]
        return np.concatenate([np.empty(0), *precisions])


class JudgedQueries:
    """Compares rankings with the base model's by relevance judgements: nDCG@10, times 100.

    Args:
        task: its documents are searched for its queries.
        base: (Q, D) queries and (P, D) passages of the task's documents by the base model, compared by inner product.
        passages: of each document, whose best one counts.

    Attributes:
        score: of the base model.
    """

    def __init__(self, task: RetrievalTask, base: tuple[Floats, Floats], passages: Passages) -> None:
        self._passages = passages
        self._evaluator = RetrievalEvaluator(task)
        self.score = self._ndcg(*base)

    def compare(self, queries: Floats, documents: Floats) -> tuple[float, None]:
        """Return the change of the score for embeddings after a transform, and no standard error."""
        return self._ndcg(queries, documents) - self.score, None

    def _ndcg(self, queries: Floats, documents: Floats) -> float:
        blocks = score_blocks(queries, documents)
        hits = [hit for _, scores in blocks for hit in self._evaluator.rank(self._passages.best(scores))]
        return 100 * float(self._evaluator.compute_metrics(hits)["ndcg@k"][10])


def average_precision(scores: Floats, targets: Numbers) -> NDArray[np.float64]:
    """Return the average precision (B,) with which rankings find documents; of equal scores, others come first.

    Args:
        scores: (B, N) of each document, higher is earlier.
        targets: (B, K) numbers of the documents to find; -1: none. Each row has one at least.
    """
    of_targets = np.take_along_axis(scores, targets.clip(0), axis=1)  # (B, K)
    ranks = np.stack([(scores >= one[:, None]).sum(axis=1) for one in of_targets.T], axis=1).astype(np.float64)
    ranks[targets < 0] = np.inf
    ranks.sort(axis=1)
    precision = np.arange(1, targets.shape[1] + 1) / ranks
    averages: NDArray[np.float64] = precision.sum(axis=1) / (targets >= 0).sum(axis=1)
    return averages
