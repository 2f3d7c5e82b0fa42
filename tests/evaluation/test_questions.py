"""Duplicate and similar questions: the readers on small files, the metrics against scikit-learn."""

import logging

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from st_extras.evaluation import (
    QuestionRetrievalEvaluator,
    RetrievalTask,
    question_retrieval,
    read_askubuntu,
    read_question_pairs,
    reranking_evaluator,
)
from tests.helpers import write

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
def qqp(tmp_path):
    return write(tmp_path / "quora_duplicate_questions.tsv", QQP)


def average_precision(encoder, query, documents, relevant):
    """The average precision and the reciprocal rank of the documents by cosine; ``relevant`` says which are."""
    scores = encoder.similarity(encoder.encode([query]), encoder.encode(documents)).numpy()[0]
    first = scores[np.array(relevant)].max()
    return average_precision_score(relevant, scores), 1 / (1 + (scores > first).sum())


def test_qqp_is_read_with_quotes_line_breaks_and_gaps(qqp, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        pairs = read_question_pairs(qqp)
    assert len(pairs) == 6
    assert pairs[2] == ('"the dog" ran', "a dog\nran", True)
    assert "2 rows with an empty question or too few fields" in caplog.text
    glue = write(tmp_path / "dev.tsv.gz", HEADER + '0\t1\t2\t"open quote\tplain\t1\n1\t3\t4\tone\ttwo\t0\n')
    assert read_question_pairs(glue, quoted=False) == [('"open quote', "plain", True), ("one", "two", False)]


def test_the_set_up_of_the_paper(qqp):
    task = question_retrieval(read_question_pairs(qqp))
    texts = ["a dog\nran", "a red book", "birds sing", "the cat sat", "two birds sing"]
    assert sorted(task.documents.values()) == texts
    named = {task.queries[q]: sorted(task.documents[d] for d in found) for q, found in task.relevant.items()}
    assert named == {
        "a cat sat": ["the cat sat"], '"the dog" ran': ["a dog\nran"], "two birds sing": ["birds sing", "the cat sat"],
    }  # fmt: skip
    literal = question_retrieval(read_question_pairs(qqp), exclude_identical=False)
    assert "a red book" in literal.queries.values()
    assert literal.documents == task.documents


@pytest.mark.parametrize("exclude", [True, False])
def test_retrieval_metrics_equal_scikit_learns(encoder, qqp, exclude):
    task = question_retrieval(read_question_pairs(qqp))
    evaluator = QuestionRetrievalEvaluator(task, ignore_identical_ids=exclude, name="qqp", corpus_chunk_size=2)
    metrics = evaluator(encoder)
    found, skipped = [], 0
    for query, text in task.queries.items():
        documents = {key: text for key, text in task.documents.items() if not (exclude and key == query)}
        skipped += len(task.documents) - len(documents)
        relevant = [key in task.relevant[query] for key in documents]
        found.append(average_precision(encoder, text, list(documents.values()), relevant))
    assert skipped == (1 if exclude else 0)
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


def test_bad_question_files_are_refused(tmp_path):
    quotes = HEADER + '0\t1\t2\t"open\tplain\t1\n' + "1\t3\t4\tone\ttwo\t0\n" * 9
    for text, named in ((HEADER + "0\t1\t2\ta\tb\tyes\n", "line 2: is_duplicate"), (quotes, "quoted=False")):
        with pytest.raises(ValueError, match=named):
            read_question_pairs(write(tmp_path / "bad.tsv", text))


# --- similar questions, to be ranked ---


@pytest.fixture
def askubuntu(tmp_path):
    texts = "".join(f"{i}\ttitle {letter}\tbody {letter} {letter}\n" for i, letter in enumerate("abcdefgh"))
    write(tmp_path / "text_tokenized.txt.gz", texts)
    lines = ["0\t2 5\t1 2 3 5 6\t9.1 8 7 6 5", "1\t\t2 3\t2 1", "2\t3\t3\t1", "4\t7 0\t5 7 7 6\t3 2 1 0"]
    write(tmp_path / "test.txt", "\n".join(lines) + "\n")
    return tmp_path


def test_askubuntu_is_read(askubuntu, caplog):
    with caplog.at_level(logging.INFO):
        samples = read_askubuntu(askubuntu)
    assert samples == [
        {"query": "title a", "positive": ["title c", "title f"], "negative": ["title b", "title d", "title g"]},
        {"query": "title e", "positive": ["title h"], "negative": ["title f", "title g"]},
    ]
    assert "2 queries without a similar candidate" in caplog.text
    assert read_askubuntu(askubuntu, with_body=True)[0]["query"] == "title a body a a"


def test_settings_of_another_kind_are_named():
    for pairs, named in (([("a", "b", False), ("c", "c", True)], "pairs must"), ([("a", "b", "0")], "pairs, row 0")):
        with pytest.raises(ValueError, match=rf"^{named}"):
            question_retrieval(pairs)
    with pytest.raises(ValueError, match=r"^samples, row 0, negative"):
        reranking_evaluator([{"query": "a", "positive": "b", "negative": 3}])
