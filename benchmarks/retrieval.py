"""Search: what documents and unlabelled queries alone are worth to an encoder, beside BM25; judged by nDCG@10.

    python -m benchmarks.retrieval --data DATA_FOLDER --cache FOLDER [--encoders minilm --collections med]

For each encoder and collection of ``retrieval.toml`` it embeds the documents and queries of ``DATA_FOLDER/retrieval``
once (into the cache), and scores every row: steps on both sides, steps on the queries alone (the stored embeddings of
documents stay), and sums with BM25. The judgements only score: nothing here chooses by them. Each result is a file in
``benchmarks/results/retrieval/``; what is there is not run again. ``benchmarks/tables/retrieval.py`` makes the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tomllib
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.domain_rows import STEPS, Affine
from benchmarks.provenance import provenance
from benchmarks.records import RESULTS, ROOT, write_json
from st_extras.adaptation import CANDIDATES, LinearStep, refine_documents, refine_queries
from st_extras.adaptation.search import (
    BOTH_SIDES,
    QUERIES_ALONE,
    Embeddings,
    Routes,
    by_words,
    propose,
    propose_both_sides,
    propose_queries_alone,
)
from st_extras.adaptation.search_judge import FROM_DOCUMENTS, Searched, SearchJudge, drawn_queries
from st_extras.encoders import load_encoder
from st_extras.evaluation import RetrievalEvaluator, load_retrieval
from st_extras.evaluation.reporting import bootstrap_interval
from st_extras.evaluation.retrieval import add_lexical
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.samples.encoder import packaged_minilm
from st_extras.text.lexical import BM25, character_tfidf

CONFIG = ROOT / "retrieval.toml"
START = "start"
HALF_WHITE = LinearStep("half white", recolor=0.0, strength=0.5, kept_mean=0.0)
OF_STATISTICS = ("whitened softly 0.1", "whitened softly 1", "all-but-the-top 3")
"""Steps of ``benchmarks.domain_rows`` that need the documents' mean and scatter alone."""
SMOOTHED, NEIGHBORS = 0.25, 5  # documents get so much of the mean of so many neighbours
HUB, NEAREST = 0.25, 10  # and lose so much of their mean cosine with so many nearest documents
RRF = 60  # of reciprocal rank fusion
STRENGTHS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Of whitening, as a part of what ``adapt`` has: would another choice have held on other collections?"""
Scores = np.ndarray | Tensor
Made = list[tuple[Tensor, Searched]]


def embeddings(name: str, settings: dict[str, Any], texts: dict[str, list[str]], cache: Path) -> list[Tensor]:
    """Return unit rows of queries and of documents, from the cache if they are there.

    Args:
        name: of the encoder.
        settings: of ``load_encoder``, with a path unless it is the packaged encoder.
        texts: by their places in the cache.
        cache: folder for embeddings.
    """
    files = [cache / name / f"{place}.npy" for place in texts]
    if not all(file.exists() for file in files):
        model = load_encoder(**({"path": packaged_minilm()} | settings))
        encode = partial(model.encode, normalize_embeddings=True, show_progress_bar=False)
        for file, listed in zip(files, texts.values(), strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, encode(listed))
    found = [torch.from_numpy(np.load(file)).float() for file in files]
    for file, rows, listed in zip(files, found, texts.values(), strict=True):
        if len(rows) != len(listed):
            raise ValueError(f"{file} must hold {len(listed)} embeddings, got {len(rows)}: remove it.")
    return [normalize(rows) for rows in found]


def cosines(queries: Tensor, documents: Tensor) -> Tensor:
    """Return the (Q, N) cosines."""
    return normalize(queries) @ normalize(documents).T


def smooth(documents: Tensor) -> Tensor:
    """Return unit documents with a part of their neighbours' mean."""
    return torch.from_numpy(refine_documents(documents, smoothing=SMOOTHED, hubness=0, neighbors=NEIGHBORS)[:, :-1])


def without_hubs(queries: Tensor, documents: Tensor) -> np.ndarray:
    """Return the (Q, N) cosines, less for documents that are near to many."""
    return refine_queries(queries) @ refine_documents(documents, hubness=HUB, neighbors=NEAREST).T


def fuse(dense: Tensor, lexical: np.ndarray) -> np.ndarray:
    """Return the sum of 1 / (60 + rank) of both, (Q, N): reciprocal rank fusion."""
    ranks = [(-np.asarray(scores)).argsort(axis=1, kind="stable").argsort(axis=1) + 1 for scores in (dense, lexical)]
    return np.add(*(1 / (RRF + rank) for rank in ranks))


def adapted(start: Embeddings, searched: Searched, made: Made) -> Iterator[tuple[str, Scores]]:
    """Yield what ``adapt`` makes of a search, with what may stand beside it: it chooses without judgements.

    Args:
        start: (Q, D) queries and (N, D) documents.
        searched: their texts.
        made: (Q', D) queries made from the documents, with their texts, or nothing: then nothing is changed.
    """
    queries, documents = start
    for keep_index in (False, True):
        name = "adapt, keep_index" if keep_index else "adapt"
        for said, given in (("", [(queries, searched)]), (", queries made from documents", made)):
            chosen = Routes(None)
            for of, texts in given:
                steps, proposed = propose(texts, (of, documents), 42, keep_index=keep_index)
                number = by_words(texts, (of, documents), steps, proposed, {})[1]
                chosen = chosen if number is None else proposed[number]
            after = chosen.after(start)
            yield name + said, after[0] @ after[1].T
            if name + said == "adapt":
                yield "adapt, refine_documents", without_hubs(*after)


def trials(
    start: Embeddings, searched: Searched, gain_of: Callable[[Tensor], float]
) -> dict[str, list[dict[str, Any]]]:
    """Return what the judge and the judgements say of steps of several strengths.

    Args:
        start: (Q, D) queries and (N, D) documents.
        searched: their texts.
        gain_of: of (Q, N) scores, over the start, by the judgements.
    """
    judge, found = SearchJudge(searched, start), {}
    for kind, own in (("adapt", BOTH_SIDES), ("adapt, keep_index", QUERIES_ALONE)):
        steps = [replace(step, whitened=step.whitened * share) for share in STRENGTHS for step in own]
        proposed = (propose_both_sides if own is BOTH_SIDES else propose_queries_alone)(searched, start, steps, 42)
        found[kind] = []
        for step, routes in zip(steps, proposed, strict=True):
            after = routes.after(start)
            judged, error = judge.compare(*after)
            said = {"judge": judged, "error": error, "difference": gain_of(after[0] @ after[1].T)}
            found[kind].append({"whitened": step.whitened, "own_mean": step.own_mean, **said})
    return found


def similarities(
    start: Embeddings, searched: Searched, made: Made, lexical: np.ndarray
) -> Iterator[tuple[str, Scores]]:
    """Yield each row with its (Q, N) similarities.

    Args:
        start: (Q, D) queries and (N, D) documents, unit rows.
        searched: their texts.
        made: (Q', D) queries made from the documents, with their texts, or nothing: then nothing is changed.
        lexical: (Q, N) of BM25.
    """
    (queries, documents), texts = start, searched.documents
    of_queries, of_documents = queries.mean(dim=0), documents.mean(dim=0)
    cosine = queries @ documents.T
    yield START, cosine
    yield "BM25", lexical
    yield "start + 0.3 BM25", add_lexical(cosine, lexical)
    yield "start and BM25, fused by ranks", fuse(cosine, lexical)
    for name, scores in adapted(start, searched, made):
        yield name, scores
        yield f"{name} + 0.3 BM25", add_lexical(scores, lexical)
    yield "one mean", cosines(queries - of_documents, documents - of_documents)
    yield "own means", cosines(queries - of_queries, documents - of_documents)
    both = without_hubs(queries - of_queries, smooth(documents - of_documents))
    yield "own means, neighbours and hubness", both
    yield "own means, neighbours and hubness + 0.3 BM25", add_lexical(both, lexical)

    directions = neighbor_directions(documents.double(), words=character_tfidf(texts))
    steps: dict[str, Affine] = {one.name: one.affine(directions) for one in (*CANDIDATES, HALF_WHITE)}
    steps |= {name: STEPS[name](documents.double(), texts, 0) for name in OF_STATISTICS}
    for name, (matrix, offset) in steps.items():
        matrix, offset = matrix.float(), offset.float()
        centred = [(queries - of_queries) @ matrix, (documents - of_documents) @ matrix]
        yield name, cosines(queries @ matrix + offset, documents @ matrix + offset)
        yield f"{name}, own means", cosines(*centred)
        if name == HALF_WHITE.name:
            hubs = without_hubs(*centred)
            yield f"{name}, own means, hubness", hubs
            yield f"{name}, own means + 0.3 BM25", add_lexical(cosines(*centred), lexical)
            yield f"{name}, own means, hubness + 0.3 BM25", add_lexical(hubs, lexical)

    for share, called in ((0.25, "a quarter of the mean"), (0.5, "half the mean"), (1.0, "the mean")):
        yield f"queries alone: minus {called}", cosines(queries - share * of_queries, documents)
    matrix, offset = (part.float() for part in steps[CANDIDATES[0].name])
    yield f"queries alone: {CANDIDATES[0].name}", cosines(queries @ matrix + offset, documents)
    minus_half = cosines(queries - 0.5 * of_queries, documents)
    yield "queries alone: minus half the mean + 0.3 BM25", add_lexical(minus_half, lexical)


def made_queries(documents: list[str]) -> list[str]:
    """Return queries made from documents; none if too few have two sentences, where ``adapt`` asks for queries."""
    try:
        return drawn_queries(FROM_DOCUMENTS, documents, 42)[0]
    except ValueError:
        return []


def run(name: str, settings: dict[str, Any], collection: str, data: Path, cache: Path) -> dict[str, Any]:
    """Return the record of an encoder and a collection."""
    task = load_retrieval(data / "retrieval" / collection)
    evaluator = RetrievalEvaluator(task)
    queries, documents = [task.queries[key] for key in evaluator.queries_ids], list(task.documents.values())
    of_documents = made_queries(documents)
    places = {f"{collection}.q": queries, f"{collection}.d": documents}
    places |= {f"{collection}.made": of_documents} if of_documents else {}
    both, made = (found := embeddings(name, settings, places, cache))[:2], found[2:]
    searched, from_documents = Searched(documents, queries), Searched(documents, of_documents, made=True)
    lexical = BM25(documents).scores(queries)
    rows: dict[str, dict[str, float]] = {}
    start = np.zeros(0)
    for row, scores in similarities((both[0], both[1]), searched, [(one, from_documents) for one in made], lexical):
        metrics = evaluator.compute_metrics(evaluator.rank(scores))
        ndcg = evaluator.ndcg_of_queries[10]
        start = ndcg if row == START else start
        low, high = bootstrap_interval(ndcg - start)
        numbers = {"ndcg@10": ndcg.mean(), "difference": (ndcg - start).mean(), "low": low, "high": high}
        numbers |= {"recall@100": metrics["recall@k"][100], "mrr@10": metrics["mrr@k"][10]}
        rows[row] = {key: round(100 * float(value), 3) for key, value in numbers.items()}

    def gain_of(scores: Tensor) -> float:
        evaluator.compute_metrics(evaluator.rank(scores))
        return round(100 * float((evaluator.ndcg_of_queries[10] - start).mean()), 3)

    tried = trials((both[0], both[1]), searched, gain_of)
    counts = {"queries": len(queries), "documents": len(documents), "made": len(of_documents)}
    return {"encoder": name, "settings": settings, "collection": collection, **counts, "rows": rows, "trials": tried}


def main() -> None:
    config = tomllib.loads(CONFIG.read_text(encoding="utf8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with retrieval/")
    parser.add_argument("--cache", type=Path, required=True, help="folder for embeddings")
    parser.add_argument("--encoders", nargs="+", choices=config["encoders"], default=list(config["encoders"]))
    parser.add_argument("--collections", nargs="+", choices=config["collections"], default=config["collections"])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.encoders:
        for collection in options.collections:
            path = RESULTS / "retrieval" / f"{name}-{collection}.json"
            if not path.exists():
                record = run(name, config["encoders"][name], collection, options.data, options.cache)
                write_json(path, record | provenance())
                print(f"{path.stem}: {record['rows'][START]['ndcg@10']:.2f}", flush=True)


if __name__ == "__main__":
    main()
