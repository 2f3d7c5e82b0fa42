"""Training x post-processing: all combinations in the order of STS-B dev, and what came of the papers' claims."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.names import FITTED, UNSEEN
from benchmarks.tables.floors import noted, shown_floors
from benchmarks.tables.markdown import difference, markdown_table, spread
from benchmarks.tables.post_processing import (
    BOTH_TERMS,
    BY_GENRE,
    SENTENCE_TERM,
    WHITENED,
    averages,
    fitted_on_text,
    refined,
)
from benchmarks.tables.quality import ROWS, Rows, averages_as_trained, study_rows

Scores = dict[int, dict[str, Any]]
"""Scores by seed."""

SEEDS = 3
"""The fewest seeds that a trained row must have to be ranked."""

OWN = {
    "DCLR": "dclr",
    "AdCSE": "adcse",
    "AdCSE, no head": "adcse-no-head",
    "ConSERT": "consert",
    "SLT-FAI over SimCSE": "slt-fai",
    "SLT-FAI over ConSERT": "consert-slt-fai",
    "PaSeR, searched: no MLM, decoder at 1e-3": "paser",
}
"""The rows of ROWS whose settings own_encoder.toml repeats, and their names there."""

CLAIMS = {label: (ROWS[label][0], method) for label, method in OWN.items()} | {
    "DCLR, no guide": ("dclr_ablations/dclr-no-weighting", "dclr-no-guide")
}
"""The rows to compare with SimCSE: their records on the first three layers, and their name in own_encoder.toml."""

OWN_STUDIES = {
    "BERT-small trained here": "own_encoder",
    "BERT-small trained here, Wikipedia's sentences": "own_encoder_wiki",
    "better BERT-small": "own_encoder_better",
}
"""The studies on encoders of one's own, by the title of their column."""
OVER_CONSERT = 73.29 - 71.98
"""What SLT-FAI adds to ConSERT in its table 1."""


def combinations(shown: Rows) -> dict[tuple[str, str], Scores]:
    """Return the scores of each (training, post-processing) that has STS-B dev by genre too."""
    found: dict[tuple[str, str], Scores] = {}
    variants = ("plain", SENTENCE_TERM, BOTH_TERMS, BY_GENRE, WHITENED, *FITTED.values(), *UNSEEN.values())
    for label, (sources, _) in shown.items():
        for rows in (refined(sources), fitted_on_text(sources)):
            for variant in variants:
                scores = {seed: row[variant] for seed, row in rows.items() if "dev_by_genre" in row.get(variant, {})}
                if scores:
                    found[label, variant] = found.get((label, variant), {}) | scores
    return found


def enough(training: str, scores: Scores) -> bool:
    """Say whether a row may be ranked: it has SEEDS seeds, or was not trained, so that one run is all there is."""
    return training == "start" or len(scores) >= SEEDS


def ranked_table(study: str, top: int = 16) -> str:
    """Rank training x post-processing by STS-B dev (mean over its genres), with the gain over SimCSE as trained."""
    shown = study_rows(study)
    baseline = averages_as_trained(shown["SimCSE"][0])
    rows, few = [], []
    for names, scores in combinations(shown).items():
        if not enough(names[0], scores):
            few.append((names, len(scores)))
            continue
        genres, dev, sets = (_figures(scores, key) for key in ("dev_by_genre", "stsb_dev", "average"))
        gain = _gain_over(baseline, names[0], scores)
        rows.append((statistics.mean(genres), [*names, str(len(scores)), *map(spread, (genres, dev, sets)), gain]))
    floors = []
    for label, row in shown_floors(study).items():
        scores = (row["dev_by_genre"], row["dev"], row["average"])
        gain = difference(dict.fromkeys(baseline, row["average"]), baseline)
        floors.append([label, "", "1", *(f"{score:.2f}" for score in scores), gain])
    titles = ("seeds", "STS-B dev, its genres", "STS-B dev", "seven sets", "minus SimCSE, same seeds")
    return _ranking(titles, floors, rows, top) + _unranked(few)


def both_encoders_table(top: int = 12) -> str:
    """Rank training x post-processing by mean STS-B dev on both encoders (mean over its genres).

    Beside it the gain on the seven sets over SimCSE as trained, with the same seeds.
    """
    layers = combinations(study_rows("recipes"))
    labels = {method: label for label, method in OWN.items()}
    labels["dclr"] = "DCLR, searched: lr 1e-4"  # own_encoder.toml has searched learning rates
    own = {
        (labels.get(method, method), variant): scores
        for (method, variant), scores in combinations(study_rows("own_encoder")).items()
    }
    baselines = averages_as_trained(ROWS["SimCSE"][0]), averages_as_trained("own_encoder/simcse")
    rows, few = [], []
    for names in sorted(layers.keys() & own.keys()):
        found = (layers[names], own[names])
        if not all(enough(names[0], scores) for scores in found):
            few.append((names, min(map(len, found))))
            continue
        devs = [statistics.mean(_figures(scores, "dev_by_genre")) for scores in found]
        cells = [f"{dev:.2f} ({len(scores)})" for dev, scores in zip(devs, found, strict=True)]
        gains = [_gain_over(baseline, names[0], scores) for baseline, scores in zip(baselines, found, strict=True)]
        mean = statistics.mean(devs)
        rows.append((mean, [*names, *cells, f"{mean:.2f}", *gains]))
    floors = []
    of_layers, of_own = shown_floors("recipes"), shown_floors("own_encoder")
    for label in [label for label in of_layers if label in of_own]:
        pair = (of_layers[label], of_own[label])
        devs = [row["dev_by_genre"] for row in pair]
        gains = [
            difference(dict.fromkeys(baseline, row["average"]), baseline)
            for baseline, row in zip(baselines, pair, strict=True)
        ]
        cells = [f"{dev:.2f} (1)" for dev in devs]
        floors.append([label, "", *cells, f"{statistics.mean(devs):.2f}", *gains])
    titles = ("first three layers, dev (seeds)", "BERT-small trained here, dev (seeds)", "mean")
    gained = ("first three layers, minus SimCSE", "BERT-small trained here, minus SimCSE")
    return _ranking((*titles, *gained), floors, rows, top) + _unranked(few)


def claims_table() -> str:
    """Compare each paper's gain over SimCSE with ours on every encoder, over the seeds that both sides have.

    Before them the floors and SimCSE itself over the encoder before training; the last rows are SLT-FAI over ConSERT
    and RepAL.
    """
    titles = ("the paper, BERT base", "first three layers", *OWN_STUDIES)
    own = OWN_STUDIES.values()
    rows = _floor_claims()
    rows.append(["SimCSE, minus start", "", _gain_of_simcse(ROWS["SimCSE"][0], ROWS["start"][0])])
    rows[-1] += [_gain_of_simcse(f"{study}/simcse", f"{study}/start") for study in own]
    for label, (sources, method) in sorted(CLAIMS.items()):
        claimed = ROWS[label.partition(",")[0]][1]
        cells = [f"{label}, minus SimCSE", "" if claimed is None else f"{claimed:+.2f}"]
        cells.append(_gain(sources, ROWS["SimCSE"][0]))
        cells += [_gain(f"{study}/{method}", f"{study}/simcse") for study in own]
        rows.append(cells)
    rows.append([
        "SLT-FAI over ConSERT, minus ConSERT",
        f"{OVER_CONSERT:+.2f}",
        _gain(ROWS["SLT-FAI over ConSERT"][0], ROWS["ConSERT"][0]),
        *(_gain(f"{study}/consert-slt-fai", f"{study}/consert") for study in own),
    ])  # fmt: skip
    for label, method, claimed in (("start", "start", 3.01), ("SimCSE", "simcse", 0.33), ("ConSERT", "consert", 0.42)):
        cells = [f"RepAL pooled after {label}, minus plain", f"{claimed:+.2f}"]  # table 2 of the paper: two passes
        cells += [_gain_of_repal(ROWS[label][0]), *(_gain_of_repal(f"{study}/{method}") for study in own)]
        rows.append(cells)
    return noted(markdown_table(("seven sets (seeds)", *titles), rows))


def _floor_claims() -> list[list[str]]:
    """Return the rows of the floors minus SimCSE."""
    columns = [(shown_floors("foundation"), averages_as_trained(ROWS["SimCSE"][0]))]
    columns += [(shown_floors(study), averages_as_trained(f"{study}/simcse")) for study in OWN_STUDIES.values()]
    rows = []
    for label in dict.fromkeys(label for found, _ in columns for label in found):
        cells = [f"{label}, minus SimCSE", ""]
        for found, baseline in columns:
            gain = difference(dict.fromkeys(baseline, found[label]["average"]), baseline) if label in found else ""
            cells.append(f"{gain} ({len(baseline)})" if gain else "")
        rows.append(cells)
    return rows


def _gain_of_simcse(sources: str, start: str) -> str:
    ours, before = averages_as_trained(sources), averages_as_trained(start)
    return f"{difference(ours, dict.fromkeys(ours, before[0]))} ({len(ours)})" if ours and before else ""


def _gain(sources: str, baseline: str) -> str:
    ours, theirs = averages_as_trained(sources), averages_as_trained(baseline)
    seeds = len(ours.keys() & theirs.keys())
    return f"{difference(ours, theirs)} ({seeds})" if seeds else ""


def _gain_of_repal(sources: str) -> str:
    rows = refined(sources)
    ours, plain = averages(rows, BOTH_TERMS), averages(rows, "plain")
    return f"{difference(ours, plain)} ({len(ours)})" if ours else ""


def _gain_over(baseline: dict[int, float], training: str, scores: Scores) -> str:
    """Write the gain over the baseline, seed by seed; what was not trained is compared with every seed."""
    ours = {seed: row["average"] for seed, row in scores.items()}
    return difference(dict.fromkeys(baseline, ours[0]) if training == "start" else ours, baseline)


def _figures(scores: Scores, key: str) -> list[float]:
    return [row[key] for row in scores.values()]


def _ranking(titles: Sequence[str], floors: Sequence[list[str]], rows: list[tuple[float, list[str]]], top: int) -> str:
    """Tabulate the floors, then the ``top`` rows, given as (score to rank by, cells), the highest first."""
    shown = [cells for _, cells in sorted(rows, reverse=True)[:top]]
    return noted(markdown_table(("training", "then", *titles), [*floors, *shown], left=(0, 1)))


def _unranked(few: Sequence[tuple[tuple[str, str], int]]) -> str:
    """Write a line on the rows with fewer than SEEDS seeds, by training with the most seeds that any of them has."""
    if not few:
        return ""
    most: dict[str, int] = {}
    for (training, _), seeds in few:
        most[training] = max(seeds, most.get(training, 0))
    names = "; ".join(f"{training} ({seeds})" for training, seeds in sorted(most.items()))
    return f"\n\nNot ranked where there are fewer than {SEEDS} seeds (the most that they have): {names}."
