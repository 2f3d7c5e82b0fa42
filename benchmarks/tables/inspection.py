"""What a trained encoder is like inside: its embedding space, and the phrases that PaSeR's decoder writes."""

from __future__ import annotations

import statistics

from benchmarks.records import records
from benchmarks.tables.markdown import markdown_table

SPACE = {
    ("frequency_bias", "probe_accuracy"): "probe",
    ("frequency_bias", "low_centre_distance"): "low, to centre",
    ("frequency_bias", "high_centre_distance"): "high, to centre",
    ("frequency_bias", "low_neighbour_distance"): "low, to neighbours",
    ("frequency_bias", "high_neighbour_distance"): "high, to neighbours",
    ("geometry", "mean_cosine"): "mean cosine",
    ("geometry", "iso_score"): "IsoScore",
    ("geometry", "uniformity"): "uniformity",
}
"""Titles of the columns, by the part of a record and the figure in it."""


def space_table(study: str) -> str:
    """Describe the embedding space before training ("start") and after each method, means over seeds.

    What token embeddings tell about frequency, and the geometry of sentence embeddings if the study asks for it.
    """
    found = [record for record in records(study) if "frequency_bias" in record]
    shown = {key: label for key, label in SPACE.items() if all(key[0] in record for record in found)}
    rows = []
    for name in sorted({record["method"] for record in found}, key=lambda name: (name != "start", name)):
        of_method = [record for record in found if record["method"] == name]
        cells = (f"{statistics.mean(row[part][figure] for row in of_method):.3f}" for part, figure in shown)
        rows.append([name, str(len(of_method)), *cells])
    return markdown_table(("method", "seeds", *shown.values()), rows)


def phrases_table(study: str, seed: int = 0, width: int = 32) -> str:
    """Show ten phrases and what the decoder of each PaSeR method wrote in their place, cut to ``width`` characters."""
    written = {
        record["method"]: record["reconstructed"]
        for record in records(study)
        if record["seed"] == seed and record.get("settings", {}).get("masking") == {"top_k": 3}
    }
    rows = []
    for phrases in zip(*written.values(), strict=True):
        cells = [row["reconstructed"] for row in phrases]
        shown = [cell if len(cell) <= width else f"{cell[:width].rstrip()} ..." for cell in cells]
        rows.append([phrases[0]["phrase"], *shown])
    return markdown_table(("phrase", *written), rows, left=range(len(written) + 1))
