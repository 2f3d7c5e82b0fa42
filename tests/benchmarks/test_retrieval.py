"""The study of search: rows against plain loops, the cache, and a study that resumes."""

import random

import numpy as np
import pytest
import torch

from benchmarks import retrieval, search_choices
from benchmarks.names import KEPT
from benchmarks.records import records
from benchmarks.studies import Options, named_study
from st_extras.adaptation.search_transforms import BOTH_SIDES, QUERIES_ALONE, both_sides, queries_alone
from st_extras.evaluation import RetrievalEvaluator, load_retrieval
from tests.fixtures import SENTENCES
from tests.helpers import draw

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=4)) for i in range(120)]


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.nn.functional.normalize(draw(*shape, seed=seed).float() + 1, dim=1)


@pytest.mark.parametrize("made", [False, True])
def test_the_choices_are_those_of_adapt(monkeypatch, made):
    monkeypatch.setattr(
        search_choices.PseudoRelevanceComparison, "compare", lambda self, queries, documents: (0.0, 0.0)
    )
    queries = [f"{WORDS[i % len(WORDS)]} {i}" for i in range(30)]
    start = unit(30, 16), unit(120, 16, seed=1)
    both = both_sides(TEXTS, start, search_choices.STEPS, 42)
    given = queries, TEXTS, both, (start[0], queries) if made else None
    found = {row: after for row, *after in search_choices.adapted(start, *given)}
    for name, steps in (("adapt", BOTH_SIDES), (KEPT, QUERIES_ALONE)):
        routes = both_sides(TEXTS, start, steps[-1 if made else 0 :], 42)
        after = (queries_alone(routes, start) if name == KEPT else routes)[0].after(start)
        for side, expected in zip(found[name + ", queries made from documents" * made], after, strict=True):
            torch.testing.assert_close(side, expected)


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data" / "retrieval" / "med"
    folder.mkdir(parents=True)
    tables = {
        "corpus": [("id", "text"), *enumerate(TEXTS)],
        "queries": [("id", "text"), *((f"q{i}", TEXTS[3 * i].rpartition(" ")[0]) for i in range(9))],
        "qrels": [("qid", "docid"), *((f"q{i}", 3 * i + k) for i in range(9) for k in (0, 1))],
    }
    for name, rows in tables.items():
        (folder / f"{name}.csv").write_text("".join(f"{key},{value}\n" for key, value in rows))
    return tmp_path / "data"


def test_a_study_resumes_and_encodes_once(data, encoder, tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(retrieval, "load_encoder", lambda **settings: (loaded.append(settings), encoder)[1])
    options = Options(data, tmp_path / "work", tmp_path / "results", encoders=["mpnet"], sets=["med"])
    study = named_study("retrieval")
    retrieval.run(study, options)
    (record,) = records("retrieval", root=options.root)
    expected = RetrievalEvaluator(load_retrieval(data / "retrieval" / "med"))(encoder)
    assert loaded == [{"path": "sentence-transformers/all-mpnet-base-v2", "max_seq_length": 128}]
    assert record["rows"]["start"]["ndcg@10"] == pytest.approx(100 * expected["cosine_ndcg@10"], abs=1e-3)
    assert record["rows"]["start"]["mrr@10"] == pytest.approx(100 * expected["cosine_mrr@10"], abs=1e-3)
    assert (record["run"], record["queries"], record["documents"]) == ("mpnet-med", 9, 120)
    for name, row in record["rows"].items():
        assert row["difference"] == pytest.approx(row["ndcg@10"] - record["rows"]["start"]["ndcg@10"], abs=2e-3), name
        assert row["low"] <= row["difference"] <= row["high"]
    retrieval.run(study, options)
    file = options.root / "retrieval.jsonl"
    file.unlink()
    retrieval.run(study, options)
    assert records("retrieval", root=options.root)[0]["rows"] == record["rows"]
    assert len(loaded) == 1
    np.save(options.work / "retrieval" / "mpnet" / "med.d.npy", np.zeros((3, 4)))
    file.unlink()
    with pytest.raises(ValueError, match=r"med\.d\.npy must hold 120 embeddings, got 3"):
        retrieval.run(study, options)
