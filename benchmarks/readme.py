"""Write the tables of the result files into the pages, between their markers.

    python -m benchmarks.readme [--check]

A table named X stands between ``<!-- table: X -->`` and ``<!-- end -->``. X is an entry of ``TABLES``, ``pairs-STUDY``
(``benchmarks/tables/pair_intervals.py``), or else the name of a study. A whole table stands once, most of them in
RESULTS.md; ``<!-- table: X | row | row || column -->`` shows these rows of it, by their first cell, and besides that
cell these columns (all, if none is named).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial

from benchmarks import selection
from benchmarks.names import NAMED
from benchmarks.records import ROOT, records
from benchmarks.tables.analyses import eigenvalue_table, frequency_table, importance_table, redundancy_table
from benchmarks.tables.beyond import beyond_table
from benchmarks.tables.combinations import both_encoders_table, claims_table, ranked_table
from benchmarks.tables.cost import preparation_table, speed_table, sweep_table
from benchmarks.tables.coverage import unrun_table
from benchmarks.tables.decoder_training import decoder_training_table
from benchmarks.tables.decoders import (
    decoder_adapt_table,
    decoder_baselines_table,
    decoder_repal_table,
    decoders_table,
)
from benchmarks.tables.domains import adapted_table, domains_table, language_models_table
from benchmarks.tables.floors import floors_table, overlap_table
from benchmarks.tables.inspection import phrases_table, space_table
from benchmarks.tables.judge import acceptance_table, judge_table
from benchmarks.tables.markdown import markdown_table
from benchmarks.tables.mechanisms import exact_repal_table, mechanism_table
from benchmarks.tables.methods import CASES, METHODS, cost_table, method_table
from benchmarks.tables.overview import headline, overview_table
from benchmarks.tables.pair_intervals import pairs_table
from benchmarks.tables.papers import costs_table, papers_table
from benchmarks.tables.post_processing import refined_table, repal_table, whitening_table, without_dev_table
from benchmarks.tables.pretraining import pretraining_table
from benchmarks.tables.quality import Rows, combined_rows, main_table, study_rows, study_table
from benchmarks.tables.questions import QUESTIONS
from benchmarks.tables.retrieval import ADAPTED, BASELINES, regret_table, search_table
from benchmarks.tables.scale import large_batches_table, memory_table, processes_table
from benchmarks.tables.time_to_quality import ENCODERS, curve_table, time_table
from benchmarks.tables.trained_spaces import level_table, trained_space_table
from benchmarks.tables.trainings import trainings_table
from benchmarks.tables.verdict import same_step_table, verdict_table, weights_table
from st_extras.evaluation.selection import SIGNAL

PAGES = (
    ROOT.parent / "README.md",
    ROOT / "RESULTS.md",
    *(
        path
        for path in sorted((ROOT.parent / "docs").rglob("*.md"))
        if "<!-- table: " in path.read_text(encoding="utf8")
    ),
)
BLOCK = re.compile(r"(<!-- table: (\S+)( \| .+?)? -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def selection_table() -> str:
    """Tabulate the study of choosing checkpoints without labels, over all records that have signals."""
    return selection.table(selection.recorded_curves())


def short_selection_table() -> str:
    """Compare the evaluator's signal with the last checkpoint and the lowest training loss, as in the whole table."""
    curves = selection.recorded_curves()
    selectors = selection.selectors(curves)
    rows = []
    for name in (SIGNAL, selection.LAST, selection.LOSS):
        mean, worst = selection.mean_regret(curves, selectors[name]), selection.worst_regret(curves, selectors[name])
        rows.append([name, f"{mean:.2f}", f"{worst:.2f}", str(len(curves))])
    return markdown_table(("picked by", "mean regret", "worst run", "runs"), rows)


def for_study(make: Callable[[Rows, str], str], study: str) -> str:
    """Make a table of the methods for another study."""
    return make(study_rows(study), study)


def once_run(make: Callable[[str], str], study: str) -> str:
    """Make a table of a study that may have no record yet."""
    return make(study) if records(study) else "Not run yet."


TABLES: dict[str, Callable[[], str]] = {
    "headline": headline,
    "overview": overview_table,
    "repal": repal_table,
    "main": main_table,
    "refined": refined_table,
    "repal-without-dev": without_dev_table,
    "recipes": partial(ranked_table, "recipes"),
    "recipes-refined": lambda: refined_table(combined_rows(), "recipes"),
    "whitening": whitening_table,
    "pretraining": partial(pretraining_table, "own_encoder"),
    "pretraining-better": partial(pretraining_table, "own_encoder_better"),
    "claims": claims_table,
    "verdict": verdict_table,
    "same-step": same_step_table,
    "weights": weights_table,
    "floors": floors_table,
    "dev-overlap": overlap_table,
    "own-main": partial(for_study, main_table, "own_encoder"),
    "own-refined": partial(for_study, refined_table, "own_encoder"),
    "own-recipes": partial(ranked_table, "own_encoder"),
    "wiki-main": partial(for_study, main_table, "own_encoder_wiki"),
    "wiki-refined": partial(for_study, refined_table, "own_encoder_wiki"),
    "both-encoders": both_encoders_table,
    "better-main": partial(once_run, partial(for_study, main_table), "own_encoder_better"),
    "better-refined": partial(once_run, partial(for_study, refined_table), "own_encoder_better"),
    "better-recipes": partial(once_run, partial(ranked_table, top=26), "own_encoder_better"),
    "better-trained-space": partial(trained_space_table, "own_encoder_better"),
    "better-levels": partial(level_table, "own_encoder_better"),
    "own-space": partial(space_table, "own_encoder"),
    "wiki-space": partial(space_table, "own_encoder_wiki"),
    "selection": selection_table,
    "selection-short": short_selection_table,
    "frequency-bias": partial(space_table, "slt_fai"),
    "paser-phrases": partial(phrases_table, "paser"),
    **{f"preparation-{task}": partial(preparation_table, task) for task in ("masking", "counting")},
    "unrun": unrun_table,
    **{
        f"papers-{name.lower()}": partial(papers_table, name) for name in ("DCLR", "AdCSE", "SLT-FAI", "PaSeR", "RepAL")
    },
    "papers-costs": costs_table,
    "speed": speed_table,
    **{f"{name}_search": partial(once_run, study_table, f"{name}_search") for name in ("baselines", "baselines_own")},
    **{
        f"{name}-{kind}": partial(once_run, partial(for_study, make), name)
        for name in ("baselines", "baselines_own")
        for kind, make in (("main", main_table), ("refined", refined_table))
    },
    "beyond": beyond_table,
    **{f"search-{name}": partial(search_table, name) for name in ("minilm", "layers3", "mpnet")},
    **{f"search-adapt-{name}": partial(search_table, name, ADAPTED) for name in ("minilm", "mpnet")},
    "search-regret": regret_table,
    "search-baselines": partial(search_table, "minilm", BASELINES[:3]),
    "repal-words": importance_table,
    "repal-overlap": redundancy_table,
    "repal-eigenvalues": eigenvalue_table,
    "slt-fai-frequencies": frequency_table,
    **{f"time-to-quality-{name}": partial(time_table, name) for name in ENCODERS},
    **{f"quality-over-time-{name}": partial(curve_table, name) for name in ENCODERS},
    **{f"method-{name}": partial(method_table, name) for name in METHODS},
    **{f"cost-{name}": partial(cost_table, name) for name in CASES},
    **{
        f"mechanisms-{name}{'-own' if own else ''}": partial(mechanism_table, name, own)
        for name in QUESTIONS
        for own in (False, True)
    },
    "mechanisms-repal": partial(exact_repal_table, False),
    "mechanisms-repal-own": partial(exact_repal_table, True),
    "adapted": adapted_table,
    "adapted-thin": partial(once_run, adapted_table, "domains_thin"),
    "domains-language-models": language_models_table,
    "decoder-training": decoder_training_table,
    "decoder-prompted": partial(decoder_training_table, "decoder_prompted"),
    "decoders": decoders_table,
    "decoder-adapt": decoder_adapt_table,
    "decoder-baselines": decoder_baselines_table,
    "decoder-repal": decoder_repal_table,
    **{f"domains-{name}": partial(domains_table, name) for name in NAMED},
    **{f"trainings-{name}": partial(trainings_table, name) for name in NAMED},
    "judge": judge_table,
    "acceptance": acceptance_table,
    "scale-memory": memory_table,
    "scale-processes": processes_table,
    "large-batches": large_batches_table,
    **{f"speed-{sweep}": partial(sweep_table, sweep) for sweep in ("batch", "length", "negatives")},
}


def excerpt(table: str, wanted: str) -> str:
    """Return some rows and columns of a table, with the lines after it.

    Args:
        table: in Markdown.
        wanted: `` | row | row || column``.

    Raises:
        ValueError: if the table has no such row or column.
    """
    rows, columns = (
        [name.strip() for name in part.split(" | ") if name.strip()] for part in f"{wanted}||".split("||")[:2]
    )
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    titles = [cell.strip() for cell in lines[0]]
    found = {line[0].strip() for line in lines[2:]}
    if not {*rows} <= found or not {*columns} <= {*titles}:
        raise ValueError(f"rows must be of {sorted(found)} and columns of {titles}, got {wanted!r}.")
    kept = [place for place, title in enumerate(titles) if place == 0 or not columns or title in columns]
    shown = [*lines[:2], *(line for name in rows for line in lines[2:] if line[0].strip() == name)]
    after = [line for line in table.splitlines() if not line.startswith("|")]
    return "\n".join(["|" + "|".join(line[place] for place in kept) + "|" for line in shown] + after)


def updated(text: str) -> str:
    """Return a page with every block between markers made anew."""

    def fill(match: re.Match[str]) -> str:
        name = match[2]
        if name in TABLES:
            made = TABLES[name]()
        elif name.startswith("pairs-"):
            made = pairs_table(name.removeprefix("pairs-"))
        else:
            made = study_table(name)
        return f"{match[1]}{excerpt(made, match[3]) if match[3] else made}\n{match[4]}"

    return BLOCK.sub(fill, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    only_check = parser.parse_args().check
    for page in PAGES:
        before = page.read_text(encoding="utf8")
        after = updated(before)
        if not only_check:
            page.write_text(after, encoding="utf8")
        elif before != after:
            sys.exit(f"{page.name} does not match benchmarks/results: run python -m benchmarks.readme.")


if __name__ == "__main__":
    main()
