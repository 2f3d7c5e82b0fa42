"""Which passages of long documents an encoder should compare with queries, and what stems add to BM25, by nDCG@10.

Collections of short documents stand as they are. Those of long ones are made of short ones: three to six texts on like
topics are one document, which is relevant to the queries of each. For each length and step of passages, a document's
score is that of its best passage, or halfway between it and the mean, alone and plus BM25 of whole documents. BM25 with
English stems and without stop words stands beside BM25, alone and plus the encoder of whole documents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hybrid import weighted
from benchmarks.retrieval import START, embeddings, over_collections, scored
from benchmarks.studies import Options
from st_extras.encoders import load_encoder
from st_extras.encoders.passages import Passages, longer_than_read, passage_spans
from st_extras.evaluation import RetrievalEvaluator, RetrievalTask, load_retrieval
from st_extras.samples.encoder import packaged_minilm
from st_extras.search import bm25_weight
from st_extras.text.term_weights import BM25

FEWEST_JOINED, MOST_JOINED = 3, 6
PARAGRAPHS = "\n\n"
LANGUAGE = "english"


def joined(task: RetrievalTask, texts: int, seed: int = 0) -> RetrievalTask:
    """Return a collection of long documents: ``texts`` of the short ones, several on like topics in each.

    A document begins with a text drawn at random; the texts nearest to it by TF-IDF, of those that are left, follow in
    a random order. Queries that no drawn text is relevant to are left out.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    draw = random.Random(seed)
    ids = draw.sample(list(task.documents), min(texts, len(task.documents)))
    rows = TfidfVectorizer(sublinear_tf=True, stop_words="english").fit_transform(task.documents[key] for key in ids)
    alike = (rows @ rows.T).toarray()
    left, documents, of = set(range(len(ids))), {}, {}
    for begin in range(len(ids)):
        if begin not in left:
            continue
        nearest = [i for i in np.argsort(-alike[begin], kind="stable").tolist() if i in left and i != begin]
        members = [begin, *nearest[: draw.randint(FEWEST_JOINED, MOST_JOINED) - 1]]
        left -= set(members)
        draw.shuffle(members)
        name = f"long-{len(documents)}"
        documents[name] = PARAGRAPHS.join(task.documents[ids[i]] for i in members)
        of |= {ids[i]: name for i in members}
    relevant = {
        query: {of[key] for key, grade in found.items() if key in of and grade > 0}
        for query, found in task.relevant.items()
    }
    relevant = {query: found for query, found in relevant.items() if found}
    return RetrievalTask({query: task.queries[query] for query in relevant}, documents, relevant)


def read_collection(name: str, data: Path, texts: int) -> RetrievalTask:
    """Return a collection of the data folder; "long-NAME" is the one that :func:`joined` makes of it."""
    task = load_retrieval(data / "retrieval" / name.removeprefix("long-"))
    return joined(task, texts) if name.startswith("long-") else task


def cut(documents: Sequence[str], words: int, step: int) -> Passages:
    """Return the passages of N documents, so many words each, of which one begins every ``step`` words."""
    spans = [passage_spans(text, words, step) for text in documents]
    first = np.cumsum([0, *map(len, spans)])
    return Passages(first, np.array([span for found in spans for span in found], dtype=np.int32))


def rows_of(
    name: str, best: np.ndarray, mean: np.ndarray, bm25: np.ndarray, start: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the rows of passages of a length: of the best passage, halfway to the mean, and beside the beginning.

    Args:
        name: of the length.
        best: (Q, N) cosines of the best passage.
        mean: (Q, N) cosines of the mean passage.
        bm25: (Q, N) scores of whole documents.
        start: (Q, N) cosines of what the encoder reads of the documents.
    """
    for called, dense in {"": best, ", mean": (best + mean) / 2, ", beginning": np.maximum(best, start)}.items():
        yield f"{name}{called}", dense
        yield f"{name}{called} + BM25", weighted(dense, bm25, bm25_weight(dense, bm25))


def score(
    name: str,
    settings: dict[str, Any],
    collection: str,
    data: Path,
    cache: Path,
    *,
    cuts: Sequence[Sequence[int]],
    texts: int,
) -> dict[str, Any]:
    """Return the record of an encoder and a collection."""
    task = read_collection(collection, data, texts)
    evaluator = RetrievalEvaluator(task)
    queries, documents = [task.queries[key] for key in evaluator.queries_ids], list(task.documents.values())
    model = load_encoder(**({"path": packaged_minilm()} | settings))
    longer = longer_than_read(model, documents)
    bm25, stems = (BM25(documents, language).scores(queries) for language in (None, LANGUAGE))
    places = {f"{collection}.q": queries, f"{collection}.d": documents}
    of_queries, of_documents = embeddings(name, settings, places, cache)
    start = of_queries @ of_documents.T
    chosen = np.flatnonzero(longer).tolist()
    long_texts = [documents[i] for i in chosen]

    def rows() -> Iterator[tuple[str, np.ndarray]]:
        yield START, start
        for called, words in {"BM25": bm25, f"BM25, {LANGUAGE}": stems}.items():
            yield called, words
            yield f"{START} + {called}", weighted(start, words, bm25_weight(start, words))
        for length, step in cuts:
            passages = cut(long_texts, length, step)
            listed = passages.texts(long_texts)
            (of_passages,) = embeddings(name, settings, {f"{collection}.{length}-{step}": listed}, cache)
            scores = of_queries @ of_passages.T
            best, mean = start.copy(), start.copy()
            best[:, chosen] = passages.best(scores)
            mean[:, chosen] = np.add.reduceat(scores, passages.first[:-1], axis=1) / np.diff(passages.first)
            yield from rows_of(f"{length} words, step {step}", best, mean, bm25, start)

    lengths = [len(text.split()) for text in documents]
    counts = {"queries": len(queries), "documents": len(documents), "longer": int(longer.sum())}
    return {
        "encoder": name,
        "settings": settings,
        "collection": collection,
        **counts,
        "words": round(float(np.mean(lengths)), 1),
        "rows": scored(rows(), evaluator),
    }


def run(study: dict[str, Any], options: Options) -> None:
    """Score every row of each encoder and collection."""
    over_collections(study, options, partial(score, cuts=study["cuts"], texts=study["texts"]))
