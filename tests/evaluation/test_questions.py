"""Duplicate questions: the task of their pairs, the metrics against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from st_extras.evaluation import (
    QuestionRetrievalEvaluator,
    RetrievalTask,
    question_retrieval,
)

PAIRS = [
    ("a cat sat", "the cat sat", True),
    ("a cat sat", "two birds sing", False),
    ('"the dog" ran', "a dog\nran", True),
    ("two birds sing", "birds sing", True),
    ("two birds sing", "the cat sat", True),
    ("a red book", "a red book", True),
]


def average_precision(encoder, query, documents, relevant):
    """The average precision and the reciprocal rank of the documents by cosine; ``relevant`` says which are."""
    scores = encoder.similarity(encoder.encode([query]), encoder.encode(documents)).numpy()[0]
    first = scores[np.array(relevant)].max()
    return average_precision_score(relevant, scores), 1 / (1 + (scores > first).sum())


def test_the_set_up_of_the_paper():
    task = question_retrieval(PAIRS)
    texts = ["a dog\nran", "a red book", "birds sing", "the cat sat", "two birds sing"]
    assert sorted(task.documents.values()) == texts
    named = {task.queries[q]: sorted(task.documents[d] for d in found) for q, found in task.relevant.items()}
    assert named == {
        "a cat sat": ["the cat sat"], '"the dog" ran': ["a dog\nran"], "two birds sing": ["birds sing", "the cat sat"],
    }  # fmt: skip


def test_retrieval_metrics_equal_scikit_learns(encoder):
    task = question_retrieval(PAIRS)
    evaluator = QuestionRetrievalEvaluator(task, name="qqp", corpus_chunk_size=2)
    metrics = evaluator(encoder)
    found, skipped = [], 0
    for query, text in task.queries.items():
        documents = {key: text for key, text in task.documents.items() if key != query}
        skipped += len(task.documents) - len(documents)
        relevant = [key in task.relevant[query] for key in documents]
        found.append(average_precision(encoder, text, list(documents.values()), relevant))
    assert skipped == 1
    assert metrics["qqp_cosine_map@100"] == pytest.approx(np.mean([average for average, _ in found]))
    assert metrics["qqp_cosine_mrr@10"] == pytest.approx(np.mean([reciprocal for _, reciprocal in found]))
    assert evaluator.primary_metric == "qqp_cosine_map@100"


def test_map_is_cut_at_the_depth_given(encoder):
    """One relevant document, ranked second: found at depth 2, worth a half, and not found at depth 1."""
    texts = ["a cat sat", "the cat sat", "two birds sing"]
    scores = encoder.similarity(encoder.encode(texts[:1]), encoder.encode(texts[1:]))[0]
    second = texts[1:][int(scores.argmin())]
    task = RetrievalTask({"q": texts[0]}, {text: text for text in texts[1:]}, {"q": {second: 1.0}})
    found = [QuestionRetrievalEvaluator(task, map_at_k=depth)(encoder)[f"cosine_map@{depth}"] for depth in (1, 2)]
    assert found == [0.0, 0.5]


def test_the_score_matrix_stays_small():
    task = question_retrieval([(f"q{i}", f"d{i}", True) for i in range(4000)])
    assert QuestionRetrievalEvaluator(task).corpus_chunk_size == 2**27 // 4000


def test_settings_of_another_kind_are_named():
    for pairs, named in (([("a", "b", False), ("c", "c", True)], "pairs must"), ([("a", "b", "0")], "pairs, row 0")):
        with pytest.raises(ValueError, match=rf"^{named}"):
            question_retrieval(pairs)
