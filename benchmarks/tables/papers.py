"""The papers' tables, from the records of the studies ``papers`` and ``papers_zh``: the paper's figure beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.paper_settings import SETTINGS, TABLES, PaperTable, Row
from benchmarks.records import records
from benchmarks.statistics import EVERY, mean_interval, paired_differences
from benchmarks.studies import SENTENCES, cell_steps, named_study, study_cells
from benchmarks.tables.cost import GPU_RUNS
from benchmarks.tables.render import Table, Text, of_texts, write_interval, write_spread

STUDIES = ("papers", "papers_zh")
NOT_RUN = (
    "There are no records yet. `python -m benchmarks run papers` makes them: by the [step times of a "
    "GPU](measured.md#what-a-step-costs), {hours:.0f} hours of training steps for three seeds."
)
STEP_OF = {
    "SimCSELoss": "simcse",
    "DCLRLoss": "dclr",
    "AdCSELoss": "adcse",
    "ConSERTLoss": "consert",
    "SLTFAILoss": "slt-fai",
    "PaSeRLoss": "paser",
}
"""The measured step of each loss."""
Scores = dict[int, float]
"""A figure by seed; ``EVERY`` for what is not trained."""


def scores(row: Row, found: list[dict[str, Any]], *, without_dev: bool = False) -> Scores:
    """Return the mean over the sets of each record of a row.

    Args:
        row: the row.
        found: the study's records.
        without_dev: leave out the pairs that the development set holds too; none after a post-processing.
    """
    values: Scores = {}
    for record in found:
        if record["method"] != row.method:
            continue
        part = record.get("post_processing", {}).get(row.after, {}) if row.after else record
        if without_dev:
            part = part.get("without_dev", {})
        value = part.get("average_wmean" if row.setting == "wmean" else "average")
        if value is not None:
            values[record["seed"] if record["steps"] else EVERY] = value
    return values


def papers_tables(root: Path | None = None) -> Text:
    """Return the papers' tables under their headings, or one line on how to make them if there are no records.

    Args:
        root: folder of all records; None: that of the repository.
    """
    parts = []
    for table in TABLES.values():
        found = records(table.study, root=root)
        by_label = {label: scores(row, found) for label, row in table.rows.items()}
        if any(by_label.values()):
            parts += [f"## {table.title}", paper_table(table, found, by_label).written()]
    return Text("\n\n".join(parts) or NOT_RUN.format(hours=estimated_hours(named_study(STUDIES[0]))))


def paper_table(table: PaperTable, found: list[dict[str, Any]], by_label: Mapping[str, Scores]) -> Table:
    """Return a paper's table, with its verdicts under it.

    Args:
        table: what the paper reports.
        found: the study's records.
        by_label: our figures of each row.
    """
    rows = {}
    for label, row in table.rows.items():
        ours, paper = by_label[label], row.average
        rows[label] = {
            "the paper": "" if paper is None else f"{paper:.2f}",
            "here (seeds)": f"{write_spread(list(ours.values()))} ({len(ours)})" if ours else "",
            "here - paper": "" if paper is None else write_interval([value - paper for value in ours.values()]),
            "here, without dev's pairs": write_spread(list(scores(row, found, without_dev=True).values())),
        }
    notes = [table.note, *(verdict(table, claim, by_label) for claim in table.claims), failures(table, found)]
    columns = of_texts("", rows).columns
    return Table("mean of the sets", {label: {} for label in rows}, columns, note="\n\n".join(filter(None, notes)))


def estimated_hours(study: dict[str, Any]) -> float:
    """Return the hours of all training steps of a study on the GPU whose steps were measured, between batches of 64 and
    1,024 linearly; PaSeR as if each sentence had all its phrases. Evaluations come on top.
    """
    few, many = (records("speed", run)[0]["cases"] for run in GPU_RUNS.values())
    total = 0.0
    for name, seeds in study_cells(study).items():
        method = study["training"] | study["methods"][name]
        if "loss" not in method:
            continue
        case = "dclr, model" if "guide" in method else STEP_OF[method["loss"]]
        low, high = (cases[case]["median_ms"] for cases in (few, many))
        step = low + max(method["batch_size"] - 64, 0) / (1024 - 64) * (high - low)
        rows = SENTENCES[method["corpus"]] * method.get("masking", {}).get("top_k", 1)
        total += len(seeds) * cell_steps(method, rows) * step
    return total / 3.6e6


def verdict(table: PaperTable, claim: tuple[str, str], by_label: Mapping[str, Scores]) -> str:
    """Return a sentence on whether a paper's gain is there, from the interval over seeds; empty without records."""
    better, worse = claim
    gains = list(paired_differences(by_label[better], by_label[worse]).values())
    if not gains:
        return ""
    reported, baseline = (table.rows[label].average for label in claim)
    paper = "" if reported is None or baseline is None else f"; the paper: {reported - baseline:+.2f}"
    name = f"**{better} over {worse}**: {write_interval(gains)}{paper}"
    if len(gains) < 2:
        return f"{name}. One seed, so no verdict."
    _, low, high = mean_interval(gains)
    if low <= 0 <= high:
        return f"{name}. The interval covers 0: no gain is shown."
    if high < 0:
        return f"{name}. The gain does not hold: it is a loss."
    if not paper:
        return f"{name}. A gain."
    assert reported is not None
    assert baseline is not None
    size = reported - baseline
    if low <= size <= high:
        return f"{name}. The gain holds, at the paper's size."
    return f"{name}. The gain holds, but is {'smaller' if high < size else 'larger'} than in the paper."


def failures(table: PaperTable, found: list[dict[str, Any]]) -> str:
    """Return a sentence on the cells that failed and have no record since."""
    done = {record["run"] for record in found if "failed" not in record}
    methods = {row.method for row in table.rows.values()}
    failed = {
        f"{record['method']}, seed {record['seed']} ({record['failed'].partition(':')[0]})": None
        for record in found
        if "failed" in record and record["method"] in methods and f"{record['method']}-{record['seed']}" not in done
    }
    return f"Failed: {'; '.join(failed)}." if failed else ""


def settings_table() -> Table:
    """Return the papers' settings and their places; of a loss's later rows, those that differ from its first."""
    rows, first = {}, {}
    for method, settings in SETTINGS.items():
        loss = settings["loss"][0] + str(settings.get("base.loss", ("",))[0])
        shared = first.setdefault(loss, settings)
        own = {name: value for name, value in settings.items() if settings is shared or shared.get(name) != value}
        values = [f"{name.rpartition('.')[2]} {value}" for name, (value, _) in own.items()]
        parts = {name.partition(".")[0] for name in settings}
        missing = [name.rpartition(".") for name in shared if name not in settings]
        values += dict.fromkeys(f"without {last if part in parts else part}" for part, _, last in missing)
        rows[f"`{method}`"] = {
            "settings": "; ".join(values),
            "place": "; ".join(dict.fromkeys(place for _, place in own.values())),
        }
    return of_texts("method", rows, left=3)


def page(root: Path) -> str:
    """Return all tables of the records in a folder, as one page."""
    return f"# The papers' tables\n\nSpearman x 100, from the records in {root}.\n\n{papers_tables(root).written()}\n"
