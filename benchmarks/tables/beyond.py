"""Encoders beyond similarity: labelled texts of the domains and question retrieval."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.records import records
from benchmarks.tables.domains import NAMES
from benchmarks.tables.markdown import markdown_table, spread

MEASURES = {"knn_accuracy": "1-NN", "v_measure": "V-measure", "map_at_r": "MAP@R", "linear_probe": "linear probe"}
QUESTIONS = {"map": "questions, MAP", "mrr": "questions, MRR@10"}
_START = "start"


def beyond_table() -> str:
    """Tabulate each encoder: every measure as the mean over the domains, then MAP@100 and MRR@10 on the questions.

    The floors come first, then the encoders before training, then those of the studies; mean ± standard deviation over
    the seeds.
    """
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records("beyond"):
        rows.setdefault((record["encoder"], record["row"]), []).append(record)
    if not rows:
        return "Not run yet."
    lines = []
    for names in sorted(rows, key=_place):
        found = rows[names]
        cells = [_label(*names), str(len(found))]
        for measure in MEASURES:
            means = [statistics.mean(scores[measure] for scores in one["domains"].values()) for one in found]
            cells.append(spread(means))
        cells += [spread([one["questions"][measure] for one in found]) for measure in QUESTIONS]
        lines.append(cells)
    return markdown_table(("encoder", "seeds", *MEASURES.values(), *QUESTIONS.values()), lines)


def _place(names: tuple[str, str]) -> tuple[int, str, str]:
    encoder, row = names
    if encoder in NAMES:
        return (1 if row == _START else 0, encoder, row)
    return (1 if row == _START else 2, encoder, row)


def _label(encoder: str, row: str) -> str:
    if row == _START:
        return NAMES.get(encoder, encoder)
    if encoder not in NAMES:
        return f"{encoder}/{row}"
    return f"floor: {row}" + (f" of {NAMES[encoder]}" if encoder else "")
