"""Question retrieval: the reader on small files, the metrics against scikit-learn."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sklearn.metrics import average_precision_score

from st_extras.evaluation.retrieval import QuestionRetrievalEvaluator
from st_extras.evaluation.retrieval_data import RetrievalTask, question_retrieval, read_question_pairs

HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
QQP = (
    HEADER
    + "0\t1\t2\ta cat sat\tthe cat sat\t1\n"
    + "1\t1\t3\ta cat sat\ttwo birds sing\t0\n"
    + '2\t4\t5\t"""the dog"" ran"\t"a dog\nran"\t1\n'
    + "3\t6\t7\ta river\t\t0\n"
    + "4\t8\t9\ttwo birds sing\tbirds sing\t1\n"
    + "5\t8\t9\ttwo birds sing\tthe cat sat\t1\n"
    + "6\t10\t11\tthe mat\n"
    + "7\t12\t13\ta red book\ta red book\t1\n"
)


@pytest.fixture
def qqp(tmp_path: Path) -> Path:
    path = tmp_path / "quora_duplicate_questions.tsv"
    path.write_text(QQP, encoding="utf8", newline="")
    return path


def test_qqp_is_read_with_quotes_line_breaks_and_gaps(qqp: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        pairs = read_question_pairs(qqp)
    assert pairs == [
        ("a cat sat", "the cat sat", True),
        ("a cat sat", "two birds sing", False),
        ('"the dog" ran', "a dog\nran", True),
        ("two birds sing", "birds sing", True),
        ("two birds sing", "the cat sat", True),
        ("a red book", "a red book", True),
    ]
    assert "2 rows with an empty question or too few fields" in caplog.text


def test_glue_has_no_quoting(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv.gz"
    with gzip.open(path, "wt", encoding="utf8") as file:
        file.write(HEADER + '0\t1\t2\t"open quote\tplain\t1\n1\t3\t4\tone\ttwo\t0\n')
    assert read_question_pairs(path, quoted=False) == [('"open quote', "plain", True), ("one", "two", False)]


def test_the_set_up_of_the_paper(qqp: Path) -> None:
    task = question_retrieval(read_question_pairs(qqp))
    assert sorted(task.documents.values()) == [
        "a dog\nran",
        "a red book",
        "birds sing",
        "the cat sat",
        "two birds sing",
    ]
    assert sorted(task.queries.values()) == ['"the dog" ran', "a cat sat", "two birds sing"]
    named = {task.queries[q]: sorted(task.documents[d] for d in found) for q, found in task.relevant.items()}
    assert named == {
        "a cat sat": ["the cat sat"],
        '"the dog" ran': ["a dog\nran"],
        "two birds sing": ["birds sing", "the cat sat"],
    }
    literal = question_retrieval(read_question_pairs(qqp), exclude_identical=False)
    assert "a red book" in literal.queries.values()
    assert literal.documents == task.documents


def test_sampling_keeps_the_corpus(qqp: Path) -> None:
    task = question_retrieval(read_question_pairs(qqp))
    small = task.sample(2, seed=3)
    assert len(small.queries) == 2
    assert small.documents == task.documents
    assert small == task.sample(2, seed=3)
    assert len(task.sample(99).queries) == 3
    with pytest.raises(ValueError, match="max_queries must be a whole number >= 1, got 0"):
        task.sample(0)


@pytest.mark.parametrize("exclude", [True, False])
def test_retrieval_metrics_equal_scikit_learns(
    encoder: SentenceTransformer, qqp: Path, exclude: bool, tmp_path: Path
) -> None:
    task = question_retrieval(read_question_pairs(qqp))
    evaluator = QuestionRetrievalEvaluator(task, exclude_identical=exclude, name="qqp", corpus_chunk_size=2)
    metrics = evaluator(encoder, str(tmp_path))
    average, reciprocal, skipped = [], [], 0
    for query, text in task.queries.items():
        documents = [key for key in task.documents if not (exclude and key == query)]
        skipped += len(task.documents) - len(documents)
        scores = encoder.similarity(
            encoder.encode([text]), encoder.encode([task.documents[key] for key in documents])
        ).numpy()[0]
        relevant = np.array([key in task.relevant[query] for key in documents])
        average.append(average_precision_score(relevant, scores))
        reciprocal.append(1 / (1 + (scores > scores[relevant].max()).sum()))
    assert skipped == (1 if exclude else 0)
    assert metrics["qqp_cosine_map@100"] == pytest.approx(np.mean(average))
    assert metrics["qqp_cosine_mrr@10"] == pytest.approx(np.mean(reciprocal))
    assert evaluator.primary_metric == "qqp_cosine_map@100"
    assert list(tmp_path.glob("*qqp_results.csv"))


def test_map_is_cut_at_the_depth_given(encoder: SentenceTransformer, qqp: Path) -> None:
    """One relevant document, ranked second: found at depth 2, worth a half, and not found at depth 1."""
    texts = ["a cat sat", "the cat sat", "two birds sing"]
    scores = encoder.similarity(encoder.encode(texts[:1]), encoder.encode(texts[1:]))[0]
    second = texts[1:][int(scores.argmin())]
    task = RetrievalTask({"q": texts[0]}, {text: text for text in texts[1:]}, {"q": {second: 1.0}})
    found = {}
    for depth in (1, 2):
        evaluator = QuestionRetrievalEvaluator(task, map_at_k=depth)
        assert evaluator.primary_metric == f"cosine_map@{depth}"
        found[depth] = evaluator(encoder)[evaluator.primary_metric]
    assert found == {1: 0.0, 2: 0.5}


TASK = RetrievalTask({"q": "a"}, {"d": "b"}, {"q": {"d": 1.0}})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: QuestionRetrievalEvaluator(3), "task must be a RetrievalTask, got 3"),
        (lambda: QuestionRetrievalEvaluator(TASK, map_at_k=0), "map_at_k must be a whole number between 1 .*got 0"),
        (lambda: question_retrieval([("a", "b", False), ("c", "c", True)]), "at least one duplicate pair"),
        (lambda: read_question_pairs("nowhere.tsv"), "no question pair file 'nowhere.tsv'"),
        (lambda: question_retrieval(3), "pairs must be a list of two questions and a label each, got 3"),
        (lambda: question_retrieval([("a", "b", "0")]), r"pairs, row 0: .*got \('a', 'b', '0'\)"),
        (lambda: question_retrieval([("a", "b", True), ("a", 3, True)]), "pairs, row 1: expected a sentence, got 3"),
    ],
)
def test_settings_of_another_kind_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_the_score_matrix_stays_small() -> None:
    task = question_retrieval([(f"q{i}", f"d{i}", True) for i in range(4000)])
    assert QuestionRetrievalEvaluator(task).corpus_chunk_size == 2**27 // 4000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question1\tquestion2\tlabel\na\tb\t1\n", "no column is_duplicate; it has question1, question2, label"),
        (HEADER + "0\t1\t2\ta\tb\tyes\n", "line 2: is_duplicate must be 0 or 1, got 'yes'"),
        (HEADER + '0\t1\t2\t"open\tplain\t1\n' + "1\t3\t4\tone\ttwo\t0\n" * 9, "try quoted=False"),
    ],
)
def test_bad_question_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.tsv"
    path.write_text(text, encoding="utf8")
    with pytest.raises(ValueError, match=message):
        read_question_pairs(path)
