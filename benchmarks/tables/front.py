"""The table of README: the three jobs, each with its number and its worst case."""

from __future__ import annotations

from benchmarks.tables import domains, similarity
from benchmarks.tables.render import Part, Sentence, Show, Table, lowest, number, of_texts
from benchmarks.tables.sources import BASE, LAYERS, OWN, RECOMMENDED, SIF, TFIDF, TRAINED

_ONE, _TWO, _SIGNED = "{:.1f}", "{:.2f}", "{:+.1f}"


def _adapt(metric: str) -> dict[str, Part]:
    rows = {"before": "start", "after": domains.ADAPT}
    return {
        name: {"of": domains.row(row, "banking77"), "metric": metric, "show": number(_ONE)}
        for name, row in rows.items()
    }


def _search(encoder: str, show: Show) -> dict[str, Part]:
    return {
        name: {"of": ({"study": "hybrid", "encoder": encoder},), "metric": f"rows/{row}/difference", "show": show}
        for name, row in {"weight": "start + BM25, 0.2, weight from documents", "ranks": "start, RRF"}.items()
    }


def _train(encoder: str) -> dict[str, Part]:
    labels = {"base": BASE, "simcse": "SimCSE", "best": RECOMMENDED, "tfidf": TFIDF, "sif": SIF}
    return {
        name: {"of": TRAINED[label][encoder], "metric": "average", "show": number(_TWO)}
        for name, label in labels.items()
    }


SENTENCES = {
    ("adapt", "measured"): Sentence(
        "all-MiniLM-L6-v2 on Banking77, MAP@R: {before} before, {after} after", _adapt("scores/map_at_r")
    ),
    ("adapt", "worst case"): Sentence("that encoder's STS-B test falls from {before} to {after}", _adapt(domains.STS)),
    ("search", "measured"): Sentence(
        "all-MiniLM-L6-v2, nDCG@10 on the mean of seven collections: {weight} (by rank fusion, the usual way, {ranks})",
        _search("minilm", number(_SIGNED)),
    ),
    ("search", "worst case"): Sentence(
        "{weight} with all-mpnet-base-v2 on one collection (rank fusion: {ranks})", _search("mpnet", lowest(_SIGNED))
    ),
    ("train", "measured"): Sentence(
        "a raw encoder, the first three layers of all-MiniLM-L6-v2, on seven STS sets: {base} before, {best} after, "
        "{refined} with RepAL (SimCSE: {simcse}; SIF, which trains nothing: {sif})",
        _train(LAYERS) | {"refined": similarity.FIXED_WEIGHT | {"show": number(_TWO)}},
    ),
    ("train", "worst case"): Sentence(
        "a small BERT gets from {base} to {best}, and TF-IDF has {tfidf}; a good encoder gets worse", _train(OWN)
    ),
}
JOBS = {
    "adapt": "**[Adapt](#adapt)** an encoder to your text, in two minutes on one CPU core",
    "search": "**[Search](#search)** with an encoder and BM25 together",
    "train": "**[Train](#train)** an encoder on plain sentences",
}


def jobs_table() -> Table:
    """Return the table."""
    rows = {
        label: {title: SENTENCES[job, title].written() for title in ("measured", "worst case")}
        for job, label in JOBS.items()
    }
    return of_texts("job, without labels", rows, left=3)
