"""The study of hybrid search: each way to fuse against a plain loop, and a record from its texts."""

import statistics

import numpy as np
import pytest

from benchmarks import hybrid, retrieval
from st_extras.search import HybridSearch
from tests.benchmarks.test_retrieval import TEXTS, data  # noqa: F401, a fixture

draw = np.random.default_rng(0)
DENSE = draw.normal(size=(3, 150))
BM25 = np.maximum(0, draw.normal(size=(3, 150)) * 5)
BM25[1, 3:] = 0
BM25[2] = 0


def first(scores: list[float], found: bool) -> list[int]:
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[:100]
    return [i for i in order if found or scores[i] > 0]


def of_distribution(values: list[float]) -> list[float]:
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    return [(value - (mean - 3 * deviation)) / (6 * deviation) for value in values]


def of_range(values: list[float]) -> list[float]:
    return [(value - min(values)) / (max(values) - min(values)) / 2 for value in values]


@pytest.mark.parametrize(
    ("fuse", "scale"), [(hybrid.fuse_distributions, of_distribution), (hybrid.fuse_ranges, of_range)]
)
def test_first_scores_are_scaled_and_added(fuse, scale):
    expected = np.zeros((3, 150))
    for query in range(3):
        for side in (DENSE, BM25):
            places = first(side[query].tolist(), side is DENSE)
            if places:
                for place, value in zip(places, scale([side[query, i] for i in places]), strict=True):
                    expected[query, place] += value
    np.testing.assert_allclose(fuse(DENSE, BM25), expected)


def test_a_record_is_what_hybrid_search_finds(data, encoder, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(retrieval, "load_encoder", lambda **_: encoder)
    record = hybrid.score("mpnet", {}, "med", data, tmp_path, shares=[0.1, 0.2])
    task = retrieval.load_retrieval(data / "retrieval" / "med")
    queries = list(task.queries.values())
    made = HybridSearch(encoder, TEXTS)
    assert record["weights"]["start + BM25, 0.2, weight from documents"] == pytest.approx(made.bm25_weight, abs=1e-5)
    found = HybridSearch(encoder, TEXTS, queries=queries, share=0.1)
    assert record["weights"]["start + BM25, 0.1"] == pytest.approx(found.bm25_weight, abs=1e-5)
    keys = list(task.documents)
    evaluator = retrieval.RetrievalEvaluator(task)
    hits = [[{**hit, "corpus_id": keys[hit["corpus_id"]]} for hit in one] for one in found.search(queries, 100)]
    metrics = evaluator.compute_metrics(hits)
    assert record["rows"]["start + BM25, 0.1"]["ndcg@10"] == pytest.approx(100 * metrics["ndcg@k"][10], abs=0.01)
    assert {"BM25", "start, RRF", "adapt, DBSF", "adapt, keep_index + BM25, 0.2"} <= record["rows"].keys()
