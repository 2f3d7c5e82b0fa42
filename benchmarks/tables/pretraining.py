"""The curve of pre-training an encoder."""

from __future__ import annotations

from benchmarks.records import records
from benchmarks.tables.markdown import markdown_table

COLUMNS = {
    "loss": ("loss", 1),
    "STS-B dev": ("stsb_dev_spearman_cosine", 100),
    "mean cosine": ("corpus_mean_cosine", 1),
    "IsoScore": ("corpus_iso_score", 1),
}
"""By title: the figure in the record, and the factor that it is shown with."""


def pretraining_table(name: str) -> str:
    """Tabulate the curve of an encoder that ``benchmarks.pretrain_encoder`` recorded.

    Loss of masked language modelling since the row above, STS-B dev with mean pooling, and the geometry of a thousand
    sentence embeddings.
    """
    found = records("pretraining", f"{name}")
    if not found:
        return "Not run yet."
    (record,) = found
    rows = (
        [str(row["step"]), *(f"{scale * row[key]:.2f}" if key in row else "" for key, scale in COLUMNS.values())]
        for row in record["curve"]
    )
    settings = record["settings"]
    size = f"{settings['layers']} layers, {settings['width']} wide, {record['parameters']:,} parameters"
    rate = f"learning rate {settings['learning_rate']:g}"
    steps = f"{settings['steps']} steps of {settings['batch_size']} sentences, {rate}"
    if settings.get("count_words"):
        steps += ", words started from counts"
    if (first := settings.get("masking", 0.15)) != (last := settings.get("last_masking", 0.15)):
        steps += f", {first:.0%} of the tokens masked at first and {last:.0%} at last"
    table = markdown_table(("step", *COLUMNS), rows, left=())
    return "\n".join([table, "", f"{size}; {steps}; sha256 of the weights {record['sha256'][:16]}."])
