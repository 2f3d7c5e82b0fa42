"""The table of README: the three jobs, each with its number and its worst case."""

from __future__ import annotations

from benchmarks.tables import domains, search
from benchmarks.tables.render import Part, Sentence, Table, lowest, number, of_texts
from benchmarks.tables.sources import BASE, LAYERS, OWN, RECOMMENDED, TFIDF, TRAINED

_ONE, _SIGNED = "{:.1f}", "{:+.1f}"


def _adapt(metric: str) -> dict[str, Part]:
    rows = {"before": "start", "after": domains.ADAPT}
    return {
        name: {"of": domains.row(row, "banking77"), "metric": metric, "show": number(_ONE)}
        for name, row in rows.items()
    }


def _search(show: str) -> dict[str, Part]:
    shown = {"mean": number(_SIGNED), "lowest": lowest(_SIGNED)}[show]
    return {
        name: {"of": search.ENCODER, "metric": f"rows/{row}/difference", "show": shown}
        for name, row in {"weight": "start + BM25, 0.2", "ranks": "start, RRF"}.items()
    }


def _train(encoder: str) -> dict[str, Part]:
    labels = {"base": BASE, "simcse": "SimCSE", "best": RECOMMENDED, "tfidf": TFIDF}
    return {
        name: {"of": TRAINED[label][encoder], "metric": "average", "show": number(_ONE)}
        for name, label in labels.items()
    }


SENTENCES = {
    ("adapt", "measured"): Sentence(
        "all-MiniLM-L6-v2 on Banking77, MAP@R: {before} before, {after} after", _adapt("scores/map_at_r")
    ),
    ("adapt", "worst case"): Sentence("that encoder's STS-B test falls from {before} to {after}", _adapt(domains.STS)),
    ("search", "measured"): Sentence(
        "nDCG@10, mean of seven collections: {weight} over the encoder (rank fusion: {ranks})", _search("mean")
    ),
    ("search", "worst case"): Sentence("{weight} on one of them (rank fusion: {ranks})", _search("lowest")),
    ("train", "measured"): Sentence(
        "three layers of MiniLM on seven STS sets: {base} before, {best} after (SimCSE: {simcse})", _train(LAYERS)
    ),
    ("train", "worst case"): Sentence(
        "a small BERT gets from {base} to {best}, where TF-IDF has {tfidf}; a good encoder gets worse", _train(OWN)
    ),
}
JOBS = {
    "adapt": "**[Adapt](#adapt)** an encoder to your text, in two minutes of one CPU core",
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
