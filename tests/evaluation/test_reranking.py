"""Reranking of similar questions: the reader on small files, the metrics against scikit-learn."""

import gzip
import logging

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from st_extras.evaluation import read_askubuntu, reranking_evaluator


@pytest.fixture
def askubuntu(tmp_path):
    texts = "".join(f"{i}\ttitle {letter}\tbody {letter} {letter}\n" for i, letter in enumerate("abcdefgh"))
    with gzip.open(tmp_path / "text_tokenized.txt.gz", "wt", encoding="utf8") as file:
        file.write(texts)
    lines = ["0\t2 5\t1 2 3 5 6\t9.1 8 7 6 5", "1\t\t2 3\t2 1", "2\t3\t3\t1", "4\t7 0\t5 7 7 6\t3 2 1 0"]
    (tmp_path / "test.txt").write_text("\n".join(lines) + "\n", encoding="utf8")
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


def test_reranking_metrics_equal_scikit_learns(encoder, askubuntu, tmp_path):
    samples = read_askubuntu(askubuntu)
    evaluator = reranking_evaluator(samples, name="askubuntu")
    metrics = evaluator(encoder, str(tmp_path / "output"))
    average, reciprocal = [], []
    for sample in samples:
        documents = [*sample["positive"], *sample["negative"]]
        scores = encoder.similarity(encoder.encode([sample["query"]]), encoder.encode(documents)).numpy()[0]
        relevant = np.arange(len(documents)) < len(sample["positive"])
        average.append(average_precision_score(relevant, scores))
        reciprocal.append(1 / (1 + (scores > scores[relevant].max()).sum()))
    assert metrics["askubuntu_map"] == pytest.approx(np.mean(average))
    assert metrics["askubuntu_mrr@10"] == pytest.approx(np.mean(reciprocal))
    assert evaluator.primary_metric == "askubuntu_map"
    assert evaluator.primary_metric in metrics


def test_equal_cosines_do_not_flatter_the_primary_metric(encoder, askubuntu):
    samples = read_askubuntu(askubuntu)
    evaluator = reranking_evaluator(samples, similarity_fct=lambda a, b: torch.ones(1, len(b)))
    metrics = evaluator(encoder)
    assert metrics["map"] == pytest.approx((2 / 5 + 1 / 3) / 2)
    assert metrics["ndcg@10"] < 0.9


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0\t1", "line 1: 2 tab-separated fields, expected 3"),
        ("0\t1\t1 77\t2 1", "line 1: no text for the question '77'"),
        ("0\t\t1 2\t2 1", "no query with a similar and another candidate"),
    ],
)
def test_bad_askubuntu_files_are_refused(askubuntu, line, message):
    (askubuntu / "dev.txt").write_text(line + "\n", encoding="utf8")
    with pytest.raises(ValueError, match=message):
        read_askubuntu(askubuntu, "dev")


def test_missing_askubuntu_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must hold one text_tokenized file"):
        read_askubuntu(tmp_path)
    with pytest.raises(ValueError, match="split must be one of 'dev', 'test', got 'train'"):
        read_askubuntu(tmp_path, "train")
    (tmp_path / "text_tokenized.txt").write_text("no tabs\n", encoding="utf8")
    with pytest.raises(ValueError, match="line 1: 1 tab-separated fields"):
        read_askubuntu(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"samples": 3}, "samples"), ({"samples": []}, "samples"), ({"samples": ["a"]}, "samples, row 0"),
        ({"samples": [{"query": 3, "positive": ["b"], "negative": ["c"]}]}, "row 0, query"),
        ({"samples": [{"query": "a", "positive": "b", "negative": 3}]}, "row 0, negative"), ({"at_k": 10**11}, "at_k"),
    ],
)  # fmt: skip
def test_settings_of_another_kind_are_named(change, named):
    good = {"samples": [{"query": "a", "positive": "b", "negative": ["c"]}]}
    reranking_evaluator(**good)
    with pytest.raises(ValueError, match=named):
        reranking_evaluator(**(good | change))
