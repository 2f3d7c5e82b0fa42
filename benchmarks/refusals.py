"""What a bound for "nothing relevant" does: on the cosine of a hit, and on the sum that ranks, by HybridSearch itself.

The bound is what one in so many pairs of a query and an unrelated document exceeds. Sentences of the documents stand
for queries, of other documents for each seed. Of each judged query it counts whether the first hit, where it is
relevant, passes; and whether none of ten hits passes once all relevant documents are removed. The judgements only
score.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import run_once
from benchmarks.studies import Options, chosen
from st_extras.encoders import load_encoder
from st_extras.evaluation import RetrievalTask, load_retrieval
from st_extras.ranking import queries_from_documents
from st_extras.samples.encoder import packaged_minilm
from st_extras.search import HybridSearch

HITS = 10
SHARE = 0.8  # of the documents, from which the sentences of a seed are taken


def opened(name: str, settings: dict[str, Any], collection: str, task: RetrievalTask, cache: Path) -> HybridSearch:
    """Return the search of a collection, encoded once."""
    model = load_encoder(**({"path": packaged_minilm()} | settings))
    file = cache / name / f"{collection}.parquet"
    if file.exists():
        return HybridSearch.open(file, model)
    search = HybridSearch(model, task.documents)
    file.parent.mkdir(parents=True, exist_ok=True)
    search.save(file)
    return search


def bounds(search: HybridSearch, one_in: list[int], seed: int) -> dict[str, float]:
    """Return the bound on each score that one in so many unrelated pairs exceeds, by its row."""
    texts = [document.full_text for document in search.documents]
    sentences = queries_from_documents(random.Random(seed).sample(texts, round(SHARE * len(texts))))
    dense, bm25 = search.scores(sentences)
    unrelated = np.array([[sentence not in text for text in texts] for sentence in sentences])
    sides = {"cosine": dense[unrelated], "sum": (dense + search.bm25_weight * bm25)[unrelated]}
    return {
        f"{side}, 1 in {number:,}": float(np.quantile(scores, 1 - 1 / number))
        for side, scores in sides.items()
        for number in one_in
    }


def score(
    name: str,
    settings: dict[str, Any],
    collection: str,
    data: Path,
    cache: Path,
    *,
    one_in: list[int],
    seeds: list[int],
) -> dict[str, Any]:
    """Return the record of an encoder and a collection."""
    task = load_retrieval(data / "retrieval" / collection)
    search = opened(name, settings, collection, task, cache)
    judged = [key for key in task.queries if task.relevant.get(key)]
    dense, bm25 = search.scores([task.queries[key] for key in judged])
    total = dense + search.bm25_weight * bm25
    relevant = np.array([[one in task.relevant[key] for one in search.ids] for key in judged])
    first = total.argmax(axis=1)[:, None]
    is_good = np.take_along_axis(relevant, first, axis=1)[:, 0]
    left = np.where(relevant, -np.inf, total)
    hits = np.argsort(-left, axis=1, kind="stable")[:, :HITS]
    sides = {"cosine": dense, "sum": total}
    found: dict[str, list[dict[str, float]]] = {}
    for seed in seeds:
        for row, bound in bounds(search, one_in, seed).items():
            scores = sides[row.partition(",")[0]]
            kept = np.take_along_axis(scores, first, axis=1)[is_good, 0] >= bound
            refused = (np.take_along_axis(scores, hits, axis=1) < bound).all(axis=1)
            shares = {"bound": bound, "kept": 100 * kept.mean(), "refused": 100 * refused.mean()}
            found.setdefault(row, []).append({key: round(float(value), 6) for key, value in shares.items()})
    return {
        "encoder": name,
        "settings": settings,
        "collection": collection,
        "documents": len(search.ids),
        "queries": len(judged),
        "good": int(is_good.sum()),
        "seeds": seeds,
        "rows": found,
    }


def run(study: dict[str, Any], options: Options) -> None:
    """Append the record of each encoder and collection that has none."""
    for name in chosen(options.encoders, list(study["encoders"]), "--encoders"):
        for collection in chosen(options.sets, study["collections"], "--sets"):
            places = options.data, options.work / "refusals"
            wanted = {"one_in": study["one_in"], "seeds": study["seeds"]}
            make = partial(score, name, study["encoders"][name], collection, *places, **wanted)
            record = run_once(study["name"], f"{name}-{collection}", make, root=options.root)
            if record is not None:
                print(f"{name}-{collection}: {record['good']} of {record['queries']} first hits are good", flush=True)
