"""Draw the pictures of the README from the result files, into ``docs/``.

python -m benchmarks.pictures
"""

from __future__ import annotations

import statistics

import matplotlib as mpl

from benchmarks import selection
from benchmarks.records import RESULTS, ROOT
from benchmarks.tables.quality import ROWS, row_records
from st_extras.evaluation.selection import DEFAULT_SIGNAL
from st_extras.plots import plot_training_curves

DOCS = ROOT.parent / "docs"


def mean_curves() -> dict[str, tuple[list[int], list[float]]]:
    """Return STS-B dev over the steps of every method of the main table, the mean of its seeds."""
    curves = {}
    for label, (sources, _) in ROWS.items():
        found = [dict(record["curve"]) for record in row_records(sources) if record["steps"]]
        if found:
            steps = sorted(found[0])
            curves[label] = (steps, [statistics.mean(curve[step] for curve in found) for step in steps])
    return curves


def picked_curves(
    study: str = "slt_fai", seed: int = 0
) -> tuple[dict[str, tuple[list[int], list[float]]], dict[str, int]]:
    """Return the curves of a study for one seed, and the step that the default label-free signal picks in each."""
    curves, picks = {}, {}
    for curve in selection.read_curves(sorted((RESULTS / study).glob(f"*-{seed}.json"))):
        name = curve.run.removeprefix(f"{study}/").removesuffix(f"-{seed}")
        curves[name] = ([row["step"] for row in curve.rows], [100 * row["dev_spearman"] for row in curve.rows])
        picks[name] = curve.rows[selection.by_signal(DEFAULT_SIGNAL)(curve)]["step"]
    return curves, picks


def main() -> None:
    mpl.use("agg")
    from matplotlib import pyplot as plt

    DOCS.mkdir(exist_ok=True)
    curves, picks = picked_curves()
    drawings = {
        "training_curves": {"curves": mean_curves()},
        "label_free_selection": {"curves": curves, "picked": picks},
    }
    for name, options in drawings.items():
        figure, ax = plt.subplots(figsize=(7, 4))
        plot_training_curves(**options, ylabel="STS-B dev Spearman x 100", ax=ax)  # type: ignore[arg-type]
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(DOCS / f"{name}.png", dpi=90, bbox_inches="tight", metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
