"""Floors in the tables, and what STS-B dev shares with the test sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import studies
from benchmarks.names import PRETRAINED
from benchmarks.records import records
from benchmarks.tables.markdown import markdown_table

KINDS = {
    "words": "TF-IDF of words",
    "characters": "TF-IDF of characters 3-5",
    "mean": "mean of input embeddings",
    "sif": "SIF of input embeddings",
    "sif_removed": "SIF of input embeddings, first direction removed",
}
"""Labels of the kinds of ``benchmarks.floors``."""
SHOWN = ("characters", "sif_removed")
"""The kinds that stand in every table; all are in a table of their own."""
TEXTS = {"": "", "wiki": "Wikipedia", "sts": "STS"}
ENCODERS = {"": "", "minilm": "all-MiniLM-L6-v2", "own": "BERT-small trained here", "better": "better BERT-small"}


def floor(kind: str, encoder: str, text: str, root: Path | None = None) -> dict[str, Any] | None:
    """Return the record of a floor; None if it has none. TF-IDF is the same for every encoder."""
    of_encoder = "" if kind in ("words", "characters") else encoder
    wanted = (kind, of_encoder, "" if kind == "mean" else text)
    found = (r for r in records("floors", root=root) if (r["kind"], r["encoder"], r["text"]) == wanted)
    return next(found, None)


def shown_floors(study: str, root: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the floors of a study by label: on its encoder's input embeddings, fitted on the text that it trains on.

    Args:
        study: its name; one without a configuration has none, nor has one that scores some pairs of each set.
        root: folder of all results; None: those of the repository.
    """
    if not (studies.CONFIGS / f"{study}.toml").is_file():
        return {}
    settings = studies.named_study(study)
    if "pairs" in settings["training"]:
        return {}
    path = settings["encoder"].get("path", "")
    names = {"": "minilm"} | {folder: name for name, folder in PRETRAINED.items()}
    encoder = names.get(path, path)  # others have no record
    text = "wiki" if "wiki" in settings["training"]["corpus"] else "sts"
    found = {f"floor: {KINDS[kind]}": floor(kind, encoder, text, root) for kind in SHOWN}
    return {label: row for label, row in found.items() if row is not None}


def floors_table() -> str:
    """Tabulate every floor: STS-B dev, the seven sets, and the average without the pairs of STS-B dev."""
    rows = []
    order = {kind: number for number, kind in enumerate(KINDS)}
    found = sorted(records("floors"), key=lambda row: (row["encoder"], order[row["kind"]], row["text"]))
    if not found:
        return "Not run yet."
    sets = list(found[0]["scores"])
    for row in found:
        scores = (row["dev"], *(row["scores"][name] for name in sets), row["average"], row["without_dev"]["average"])
        names = (KINDS[row["kind"]], ENCODERS[row["encoder"]], TEXTS[row["text"]])
        rows.append([*names, *(f"{value:.2f}" for value in scores)])
    titles = ("floor", "input embeddings of", "fitted on", "STS-B dev", *sets, "seven sets", "without pairs of dev")
    return markdown_table(titles, rows, left=(0, 1, 2))


def overlap_table() -> str:
    """Tabulate how many pairs of each test set STS-B dev holds too."""
    found = records("pairs", "stsb_dev")
    if not found:
        return "Not counted yet."
    rows = [
        [name, f"{row['pairs']:,}", f"{row['shared']:,}", f"{100 * row['shared'] / row['pairs']:.0f} %"]
        for name, row in found[0]["sets"].items()
    ]
    return markdown_table(("test set", "pairs", "in STS-B dev", "share"), rows)


def noted(table: str, root: Path | None = None) -> str:
    """Return a table with a line beneath it that says how much of STS-B dev, which chose, is in the test sets."""
    found = records("pairs", "stsb_dev", root=root)
    if not found:
        return table
    shared, distinct = found[0]["in_tests"], found[0]["distinct"]
    line = f"STS-B dev chose here; {shared:,} of its {distinct:,} distinct pairs are in the seven sets too."
    return f"{table}\n\n{line}"
