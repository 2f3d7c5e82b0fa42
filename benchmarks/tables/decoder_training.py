"""The methods trained on a language model that others made, each as trained and softly whitened."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.records import records
from benchmarks.studies import named_study
from benchmarks.tables.markdown import difference, markdown_table, spread

WHITENED = "whitened softly on the text"
TFIDF = "TF-IDF of characters, sts"
LABELS = {
    "start": "untrained",
    "simcse": "SimCSE",
    "consert": "ConSERT",
    "dclr": "DCLR",
    "dclr-consert-views-no-noise": "DCLR on ConSERT's views, no noise",
    "adcse": "AdCSE",
    "slt-fai": "SLT-FAI over SimCSE",
    "paser": "PaSeR",
}


def decoder_training_table(study: str = "decoder_training") -> str:
    """Tabulate a study by method: dev, STS-B test, seven sets; with differences over the seeds that both sides have."""
    by_method: dict[str, dict[int, dict[str, Any]]] = {}
    for record in records(study):
        by_method.setdefault(record["method"], {})[record["seed"]] = record
    if not by_method:
        return "Not run yet."

    def each(method: str, figure: Callable[[dict[str, Any]], float]) -> dict[int, float]:
        return {seed: figure(record) for seed, record in by_method.get(method, {}).items()}

    def against(method: str, other: str, figure: Callable[[dict[str, Any]], float]) -> str:
        ours, theirs = each(method, figure), each(other, figure)
        if other == "start":
            theirs = dict.fromkeys(ours, theirs[0])  # it has no seed
        return "" if method in ("start", other) else difference(ours, theirs)

    rows = [[TFIDF, *[""] * 4, f"{row[TFIDF]['stsb_test']:.2f}", *[""] * 6] for row in _baselines()]
    for method in ("start", *named_study(study)["methods"]):
        if method not in by_method:
            continue
        found = list(by_method[method].values())
        figures = (_dev, _dev_whitened, _test, _test_whitened, _mean, _mean_whitened)
        kept = ", ".join(str(record["best_step"]) for record in found)
        cells = [LABELS[method], str(len(found)), kept, *(spread([one(record) for record in found]) for one in figures)]
        cells += [against(method, "simcse", _mean), against(method, "start", _mean_whitened)]
        seconds = [record["processor_seconds"] for record in found if record["steps"]]
        rows.append([*cells, f"{statistics.mean(seconds):.0f}" if seconds else ""])
    both = [f"{sets}{after}" for sets in ("STS-B dev", "STS-B test", "seven sets") for after in ("", ", whitened")]
    gains = ("minus SimCSE", "whitened, minus untrained whitened", "processor s")
    return markdown_table(("method", "seeds", "kept step", *both, *gains), rows)


def _baselines() -> list[dict[str, Any]]:
    """Return the baselines of the study without training, which scored the same pairs of STS-B test."""
    return [record["rows"] for record in records("decoders", "baselines")]


def _dev(record: dict[str, Any]) -> float:
    return float(record["dev"])


def _dev_whitened(record: dict[str, Any]) -> float:
    return float(record["post_processing"][WHITENED]["stsb_dev"])


def _test(record: dict[str, Any]) -> float:
    return float(record["scores"]["stsb_test"])


def _test_whitened(record: dict[str, Any]) -> float:
    return float(record["post_processing"][WHITENED]["stsb_test"])


def _mean(record: dict[str, Any]) -> float:
    return float(record["average"])


def _mean_whitened(record: dict[str, Any]) -> float:
    return float(record["post_processing"][WHITENED]["average"])
