"""Scores as trained: the table of a study, and every method beside SimCSE from the same start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.records import records
from benchmarks.studies import named_study
from benchmarks.tables.floors import noted, shown_floors
from benchmarks.tables.markdown import difference, markdown_table, spread

Rows = dict[str, tuple[str, float | None]]
"""By label: the records of the row as ``study/method study/method ...``, and the gain over SimCSE in the paper."""

ROWS: Rows = {
    "start": ("foundation/start", None),
    "SimCSE": ("foundation/simcse more_seeds/simcse", None),
    "SimCSE, searched: lr 1e-4": ("mechanisms_rates/simcse-1e-4 more_seeds/simcse-lr-1e-4", None),
    "DCLR": ("foundation/dclr more_seeds/dclr", 76.89 - 74.99),
    "DCLR, searched: lr 1e-4": ("mechanisms_rates/dclr-1e-4 more_seeds/dclr-lr-1e-4", None),
    "AdCSE": ("adcse/adcse more_seeds/adcse", 77.26 - 76.25),
    "AdCSE, no head": ("adcse/adcse-no-head more_seeds/adcse-no-head", None),
    "AdCSE, searched: no head, lr 1e-4": ("mechanisms_rates/adcse-1e-4 more_seeds/adcse-no-head-lr-1e-4", None),
    "AdCSE, searched: no head, adversaries from features at 0.3": ("mechanisms_adversaries/features-3e-1", None),
    "ConSERT": ("slt_fai/consert more_seeds/consert", None),
    "ConSERT, searched: temperature 0.05": ("more_seeds/consert-temperature-005", None),
    "SLT-FAI over SimCSE": ("slt_fai/slt-fai more_seeds/slt-fai", 76.18 - 74.60),
    "SLT-FAI over ConSERT": ("slt_fai/consert-slt-fai more_seeds/consert-slt-fai", None),
    "SLT-FAI over ConSERT, searched: discriminators at 1e-3": (
        "more_seeds/consert-slt-fai-discriminators-1e-3",
        None,
    ),
    "PaSeR": ("paser/paser", 76.16 - 76.25),
    "PaSeR, searched: no MLM, decoder at 1e-3": ("paser/paser-no-mlm-decoder-1e-3", None),
    "PaSeR, searched: frozen for 100 steps, at 3e-4": ("mechanisms_paser/frozen-100-3e-4", None),
}
"""The papers' gains are seven-set averages with BERT base, from table 1 of DCLR, AdCSE, SLT-FAI and PaSeR each. DCLR
and SLT-FAI ran SimCSE themselves; AdCSE and PaSeR take its 76.25 from SimCSE's paper.
"""
BASELINES = {"tsdae": "TSDAE", "tension": "Contrastive Tension", "gist": "GISTEmbed"}
"""Labels of the methods of baselines.toml and baselines_own.toml."""


def study_table(study: str, root: Path | None = None) -> str:
    """Tabulate a study: mean ± standard deviation over seeds; STS-B dev only if no test set was scored.

    Args:
        study: its name.
        root: folder of the records of all studies; None: that of the repository.
    """
    found = records(study, root=root)
    names = list(dict.fromkeys(record["method"] for record in sorted(found, key=lambda r: (r["steps"], r["method"]))))
    tested = any(record["scores"] for record in found)
    titles = ["method", "seeds", "best step", "STS-B dev", *(["STS-B test", "seven sets"] if tested else [])]
    rows = [floor_cells(label, row)[: len(titles)] for label, row in shown_floors(study, root).items()]
    for name in names:
        of_method = [record for record in found if record["method"] == name]
        steps = ", ".join(str(record["best_step"]) for record in of_method)
        cells = [name, str(len(of_method)), steps, spread([record["dev"] for record in of_method])]
        if tested:
            cells.append(spread([record["scores"]["stsb_test"] for record in of_method if record["scores"]]))
            cells.append(spread([record["average"] for record in of_method if record["scores"]]))
        rows.append(cells)
    table = markdown_table(titles, rows)
    return noted(table, root) if tested else table


def floor_cells(label: str, row: dict[str, Any]) -> list[str]:
    """Return the cells of a floor: label, seeds, best step, STS-B dev, STS-B test, seven sets."""
    return [label, "1", "", *(f"{value:.2f}" for value in (row["dev"], row["scores"]["stsb_test"], row["average"]))]


def study_rows(study: str) -> Rows:
    """Return the rows of a study; for ``recipes``, those of ROWS and the combinations."""
    if study == "recipes":
        return ROWS | combined_rows()
    methods = named_study(study)["methods"]
    labels = {"simcse": "SimCSE"} | BASELINES
    return {labels.get(name, name): (f"{study}/{name}", None) for name in ("start", *methods)}


def combined_rows() -> Rows:
    """Return the rows that ``recipes.toml`` adds to the single methods."""
    methods = named_study("recipes")["methods"]
    names = [name for name in methods if name.startswith(("dclr-", "filtering-over-", "slt-fai-over-"))]
    return {name: (f"recipes/{name}", None) for name in names}


def row_records(sources: str) -> list[dict[str, Any]]:
    """Read the records of ``study/method study/method ...``, in the order of their seeds."""
    named = [source.split("/") for source in sources.split()]
    found = [record for study, method in named for record in records(study) if record["method"] == method]
    return sorted(found, key=lambda record: record["seed"])


def averages_as_trained(sources: str) -> dict[int, float]:
    """Return the seven-set average of each seed."""
    return {record["seed"]: record["average"] for record in row_records(sources)}


def main_table(shown: Rows = ROWS, study: str = "foundation") -> str:
    """Tabulate each method: mean ± standard deviation, and the difference from SimCSE over the same seeds.

    Args:
        shown: the rows, among them "SimCSE".
        study: whose floors stand first.
    """
    titles = ("method", "seeds", "best step", "STS-B dev", "STS-B test", "seven sets")
    baseline = averages_as_trained(shown["SimCSE"][0])
    rows = [
        [*floor_cells(label, row), difference(dict.fromkeys(baseline, row["average"]), baseline), ""]
        for label, row in shown_floors(study).items()
    ]
    for label, (sources, gain) in shown.items():
        found = row_records(sources)
        if not found:
            continue
        averages = {record["seed"]: record["average"] for record in found}
        cells = [
            label,
            str(len(found)),
            ", ".join(str(record["best_step"]) for record in found),
            spread([record["dev"] for record in found]),
            spread([record["scores"]["stsb_test"] for record in found]),
            spread(list(averages.values())),
            difference(averages, baseline) if label not in ("start", "SimCSE") else "",
            "" if gain is None else f"{gain:+.2f}",
        ]
        rows.append(cells)
    return noted(markdown_table((*titles, "minus SimCSE, same seeds", "paper"), rows))
