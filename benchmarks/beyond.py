"""Question retrieval by trained encoders, beside their base model and TF-IDF (PaSeR, table 3).

Each question of ``qqp_dev.tsv.gz`` that has a duplicate looks for it among all second questions: MAP@100 and MRR@10. It
scores the base model of the studies in ``trained``, and the encoders that they left in the work folder, one folder for
each method and seed. TF-IDF is fitted on the questions that are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.building import finished_encoders
from benchmarks.domains import BASELINES
from benchmarks.records import encoder_name, run_once
from benchmarks.studies import Options, named_study
from st_extras.evaluation import QuestionRetrievalEvaluator, question_retrieval
from st_extras.text.tables import Column, open_file

RANKED = 101  # hits of a query, its own text among them
QUERIES = 500  # ranked at a time
QUESTIONS = "qqp_dev.tsv.gz"
Score = Callable[[QuestionRetrievalEvaluator], dict[str, float]]


def question_pairs(file: Path) -> list[tuple[str, str, bool]]:
    """Read a file of GLUE or Quora, without the few rows that have an empty question or too few fields."""
    names = ("question1", "question2", "is_duplicate")
    rows = open_file(file).rows({name: Column((name,)) for name in names})
    found = [[(row[name] or "").strip() for name in names] for _, row in rows]
    return [(first, second, label == "1") for first, second, label in found if first and second and label]


def score_encoder(load: Callable[[], SentenceTransformer], evaluator: QuestionRetrievalEvaluator) -> dict[str, float]:
    """Return MAP@100 and MRR@10 of an encoder, times 100."""
    scores: Any = evaluator(load())
    return {"map": 100 * float(scores["cosine_map@100"]), "mrr": 100 * float(scores["cosine_mrr@10"])}


def score_tfidf(options: dict[str, Any], evaluator: QuestionRetrievalEvaluator) -> dict[str, float]:
    """Return the same of TF-IDF, whose rows have length 1."""
    vectorizer = TfidfVectorizer(**options, dtype=np.float32).fit([*evaluator.corpus, *evaluator.queries])
    corpus = vectorizer.transform(evaluator.corpus).T.tocsc()
    hits = []
    for start in range(0, len(evaluator.queries), QUERIES):
        cosines = (vectorizer.transform(evaluator.queries[start : start + QUERIES]) @ corpus).toarray()
        values, places = torch.from_numpy(cosines).topk(min(RANKED, len(evaluator.corpus)))
        for row, columns in zip(values.tolist(), places.tolist(), strict=True):
            found = zip(columns, row, strict=True)
            hits.append([{"corpus_id": evaluator.corpus_ids[column], "score": value} for column, value in found])
    scores: Any = evaluator.compute_metrics(hits)
    return {"map": 100 * float(scores["map@k"][100]), "mrr": 100 * float(scores["mrr@k"][10])}


def rows(trained: list[str], work: Path) -> Iterator[tuple[dict[str, Any], Score]]:
    """Yield what is scored, by the fields of its record, and the function that scores it."""
    for kind, options in BASELINES.items():
        yield {"encoder": "", "row": kind, "seed": 0}, partial(score_tfidf, options)
    for of in map(named_study, trained):
        for method, seed, load in finished_encoders(of, work):
            encoder = encoder_name(of["encoder"]) if method == "start" else of["name"]
            yield {"encoder": encoder, "row": method, "seed": seed}, partial(score_encoder, load)


def run(study: dict[str, Any], options: Options) -> None:
    """Score TF-IDF, the base model of each study of ``trained``, and the encoders that it left in the work folder."""
    task = question_retrieval(question_pairs(options.data / QUESTIONS))
    evaluator = QuestionRetrievalEvaluator(task, batch_size=64, write_csv=False)
    for fields, score in rows(study["trained"], options.work):
        name = f"{fields['encoder'] or 'text'}-{fields['row']}-{fields['seed']}".replace(" ", "_")
        make = partial(lambda fields, score: fields | {"questions": score(evaluator)}, fields, score)
        record = run_once(study["name"], name, make, root=options.root)
        if record is not None:
            print(f"{name}: MAP {record['questions']['map']:.2f}", flush=True)
