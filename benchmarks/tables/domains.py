"""Tables of the domain study: what adapting an encoder to a domain gained, judged by labels."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.records import records
from benchmarks.tables.markdown import difference, markdown_table, spread

NAMES = {
    "minilm": "all-MiniLM-L6-v2 (tuned)",
    "layers3": "its first 3 layers (raw)",
    "own": "own pre-trained (raw)",
    "": "no encoder",
}
MEASURES = ("knn_accuracy", "v_measure", "map_at_r")
_Cell = tuple[str, str]
_FLOOR, _START, _ADAPTED = "TF-IDF of characters 3-5", "start", "adapt"


def by_cell(found: Sequence[dict[str, Any]]) -> dict[_Cell, dict[str, dict[int, dict[str, float]]]]:
    """Return the scores by (encoder, domain), row and seed."""
    cells: dict[_Cell, dict[str, dict[int, dict[str, float]]]] = {}
    for record in found:
        rows = cells.setdefault((record["encoder"], record["domain"]), {})
        rows.setdefault(record["row"], {})[record["seed"]] = record["scores"]
    return cells


def adapted_table() -> str:
    """Compare what ``adapt`` picks with the start and with TF-IDF, for each encoder and domain."""
    cells = by_cell(records("domains"))
    rows = []
    for (name, domain), found in cells.items():
        if _START in found and _ADAPTED in found:
            start, adapted = found[_START][0], found[_ADAPTED]
            floor = cells.get(("", domain), {}).get(_FLOOR, {}).get(0)
            means = {seed: one["mean"] for seed, one in adapted.items()}
            rows.append([
                NAMES[name],
                domain,
                "" if floor is None else f"{floor['mean']:.1f}",
                f"{start['mean']:.1f}",
                spread(list(means.values())),
                difference(means, dict.fromkeys(means, start["mean"])),
                f"{start['stsb_test']:.1f}",
                f"{statistics.mean(one['stsb_test'] for one in adapted.values()):.1f}",
                str(len(adapted)),
            ])  # fmt: skip
    titles = ["encoder", "domain", "TF-IDF", "start", "adapted", "gain", "STS-B before", "after", "seeds"]
    return markdown_table(titles, rows, left=(0, 1))


def domains_table() -> str:
    """List every row of every encoder and domain, with its measures."""
    rows = []
    for (name, domain), found in by_cell(records("domains")).items():
        for row, seeds in found.items():
            scores = list(seeds.values())
            measures = [f"{statistics.mean(one[key] for one in scores):.1f}" for key in MEASURES]
            forgotten = [one["stsb_test"] for one in scores if "stsb_test" in one]
            sts = f"{statistics.mean(forgotten):.1f}" if forgotten else ""
            mean = spread([one["mean"] for one in scores])
            rows.append([NAMES[name], domain, row, *measures, mean, sts, str(len(scores))])
    titles = ["encoder", "domain", "row", "1-NN", "V-measure", "MAP@R", "mean", "STS-B test", "seeds"]
    return markdown_table(titles, rows, left=(0, 1, 2))
