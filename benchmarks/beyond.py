"""Beyond similarity: encoders on labelled texts of three domains and on question retrieval, with untrained baselines.

It scores named encoders: ``minilm`` (tuned for similarity), ``layers3`` (its first 3 layers, raw), ``own`` and
``better`` (pre-trained here, raw); and those that the studies in ``trained`` left in the work folder, one folder for
each method and seed. Before them come TF-IDF of words and of characters, and means of the input embeddings.

* Domains: the test texts of ``domains/``. 1-NN accuracy among the other test texts, V-measure of k-means, MAP@R, and a
  linear probe in 5-fold cross-validation; nothing is fitted on labels but the probe.
* Questions: ``qqp_dev.tsv.gz``. Each question that has a duplicate looks for it among all second questions: MAP@100 and
  MRR@10.

TF-IDF is fitted on the texts that are compared (for domains, on the train texts), SIF's counts likewise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sentence_transformers import SentenceTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from benchmarks.domain_rows import BAGS, BASELINES
from benchmarks.domains import DOMAINS, encoder
from benchmarks.names import NAMED, PRETRAINED, is_there
from benchmarks.records import run_once
from benchmarks.studies import Options, left_encoders
from st_extras.encoders import load_encoder
from st_extras.evaluation import (
    LabeledTextEvaluator,
    QuestionRetrievalEvaluator,
    label_scores,
    load_labeled_texts,
    question_retrieval,
    read_question_pairs,
)

KNOWN = tuple(dict.fromkeys((*NAMED, *PRETRAINED)))
NEAREST = ("knn_accuracy", "v_measure", "map_at_r")
PROBE = "linear_probe"
MEASURES = (*NEAREST, PROBE)
PROBED = 384  # leading directions of TF-IDF that the probe learns from: MiniLM's size
RANKED = 101  # hits of a query, its own text among them
QUERIES = 500  # ranked at a time
QUESTIONS = "qqp_dev.tsv.gz"


class Tasks:
    """The texts of all tasks, read once.

    Args:
        data: the data folder.
    """

    def __init__(self, data: Path) -> None:
        self.data = data
        self.domains = {name: self._read(name, "test") for name in DOMAINS}

    def _read(self, domain: str, part: str) -> Any:
        return load_labeled_texts(self.data / "domains" / f"{domain}_{part}.tsv.gz")

    def train(self, domain: str) -> list[str]:
        """Return the different train texts of a domain, sorted."""
        return sorted(set(self._read(domain, "train").texts))

    @cached_property
    def retrieval(self) -> QuestionRetrievalEvaluator:
        """The evaluator of the question pairs."""
        task = question_retrieval(read_question_pairs(self.data / QUESTIONS, quoted=False))
        return QuestionRetrievalEvaluator(task, batch_size=64, write_csv=False)


def of_labels(scores: dict[str, float]) -> dict[str, float]:
    """Return each measure times 100."""
    return {name: 100 * scores[name] for name in MEASURES}


def of_questions(scores: dict[str, Any]) -> dict[str, float]:
    """Return MAP@100 and MRR@10 times 100."""
    return {"map": 100 * float(scores["cosine_map@100"]), "mrr": 100 * float(scores["cosine_mrr@10"])}


def score_encoder(model: SentenceTransformer, tasks: Tasks) -> dict[str, Any]:
    """Score an encoder on every domain and on the questions."""
    domains = {}
    for name, found in tasks.domains.items():
        evaluator = LabeledTextEvaluator(found.texts, found.labels, metrics=MEASURES, batch_size=64, write_csv=False)
        domains[name] = of_labels(evaluator(model))
    return {"domains": domains, "questions": of_questions(tasks.retrieval(model))}


def score_tfidf(options: dict[str, Any], tasks: Tasks) -> dict[str, Any]:
    """Score TF-IDF; the probe learns from its PROBED leading directions."""
    domains = {}
    for name, found in tasks.domains.items():
        rows = TfidfVectorizer(**options, dtype=np.float32).fit(tasks.train(name)).transform(found.texts)
        near = label_scores(same_cosines(rows), found.labels, metrics=NEAREST)
        leading = torch.from_numpy(TruncatedSVD(PROBED, random_state=0).fit_transform(rows)) + 1e-9
        domains[name] = of_labels(near | label_scores(leading, found.labels, metrics=[PROBE]))
    evaluator = tasks.retrieval
    vectorizer = TfidfVectorizer(**options, dtype=np.float32).fit([*evaluator.corpus, *evaluator.queries])
    corpus = vectorizer.transform(evaluator.corpus).T.tocsc()

    def similarities(queries: Sequence[str]) -> NDArray[Any]:
        return np.asarray((vectorizer.transform(queries) @ corpus).todense())

    return {"domains": domains, "questions": rank(evaluator, similarities)}


def same_cosines(rows: csr_matrix) -> Tensor:
    """Return (N, N) embeddings with the cosines of (N, V) rows of length 1; one of length 0 is like no other."""
    gram = torch.from_numpy((rows @ rows.T).toarray()).double()
    return torch.linalg.cholesky(gram + 1e-6 * torch.eye(len(gram))).float()  # equal rows make it singular


def score_bag(kind: str, model: SentenceTransformer, tasks: Tasks) -> dict[str, Any]:
    """Score means of a model's input embeddings, of a kind in ``BAGS``."""
    domains = {}
    for name, found in tasks.domains.items():
        embed = BAGS[kind](model, tasks.train(name))
        embeddings = unit(embed(found.texts))
        domains[name] = of_labels(label_scores(embeddings, found.labels, metrics=MEASURES))
    evaluator = tasks.retrieval
    embed = BAGS[kind](model, [*evaluator.corpus, *evaluator.queries])
    corpus = unit(embed(evaluator.corpus)).T

    def similarities(queries: Sequence[str]) -> NDArray[Any]:
        return (unit(embed(queries)) @ corpus).numpy()

    return {"domains": domains, "questions": rank(evaluator, similarities)}


def unit(embeddings: Tensor) -> Tensor:
    """Return (N, D) unit rows in float32; a text without a known token gets an even row."""
    return torch.nn.functional.normalize(embeddings + 1e-9, dim=1).float()


def rank(
    evaluator: QuestionRetrievalEvaluator, similarities: Callable[[Sequence[str]], NDArray[Any]]
) -> dict[str, float]:
    """Rank the corpus for each query by a function from Q queries to (Q, N) similarities, as the evaluator does."""
    hits = []
    for start in range(0, len(evaluator.queries), QUERIES):
        values, best = torch.from_numpy(similarities(evaluator.queries[start : start + QUERIES])).topk(
            min(RANKED, len(evaluator.corpus))
        )
        for row, columns in zip(values.tolist(), best.tolist(), strict=True):
            found = zip(columns, row, strict=True)
            hits.append([{"corpus_id": evaluator.corpus_ids[column], "score": value} for column, value in found])
    scores = evaluator.compute_metrics(hits)
    return {"map": 100 * float(scores["map@k"][100]), "mrr": 100 * float(scores["mrr@k"][10])}


Row = tuple[dict[str, Any], Callable[[Tasks], dict[str, Any]]]
"""What is scored, by the fields of its record, and the function that scores it."""


def untrained(encoders: Sequence[str]) -> Iterator[Row]:
    """Yield the baselines: TF-IDF, and those of the input embeddings of each encoder (layers3 has those of minilm)."""
    for kind, options in BASELINES.items():
        yield {"encoder": "", "row": kind, "seed": 0}, partial(score_tfidf, options)
    for name in dict.fromkeys("minilm" if name == "layers3" else name for name in encoders if name in KNOWN):
        for kind in BAGS:
            yield {"encoder": name, "row": kind, "seed": 0}, partial(_bag_of, kind, name)


def _bag_of(kind: str, name: str, tasks: Tasks) -> dict[str, Any]:
    return score_bag(kind, encoder(name), tasks)


def named(encoders: Sequence[str]) -> Iterator[Row]:
    """Yield the encoders by name, or folder."""
    for name in encoders:
        yield {"encoder": name, "row": "start", "seed": 0}, partial(_encoder_of, name)


def trained(studies: Sequence[str], work: Path) -> Iterator[Row]:
    """Yield the encoders that studies left."""
    for study in studies:
        for method, seed, folder in left_encoders(study, work):
            yield {"encoder": study, "row": method, "seed": seed}, partial(_encoder_of, str(folder))


def _encoder_of(name: str, tasks: Tasks) -> dict[str, Any]:
    return score_encoder(encoder(name) if name in KNOWN else load_encoder(name), tasks)


def run_name(fields: dict[str, Any]) -> str:
    """Return the run of a row."""
    name = "-".join((fields["encoder"] or "text", fields["row"], str(fields["seed"])))
    return name.replace(" ", "_").replace(",", "").replace("/", "_")


def run(study: dict[str, Any], options: Options) -> None:
    """Score the baselines, the named encoders, and those that the studies of ``trained`` left in the work folder."""
    encoders = [name for name in options.encoders or KNOWN if is_there(name)]
    tasks = Tasks(options.data)
    for fields, score in (*untrained(encoders), *named(encoders), *trained(study["trained"], options.work)):
        make = partial(_timed, fields, score, tasks)
        record = run_once(study["name"], run_name(fields), make, root=options.root)
        if record is not None:
            print(f"{run_name(fields)}: MAP {record['questions']['map']:.2f}", flush=True)


def _timed(fields: dict[str, Any], score: Callable[[Tasks], dict[str, Any]], tasks: Tasks) -> dict[str, Any]:
    began = time.perf_counter()
    return fields | score(tasks) | {"seconds": round(time.perf_counter() - began, 1)}
