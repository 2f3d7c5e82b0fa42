"""Pictures of embedding spaces, from the records of ``benchmarks.spaces``."""

from __future__ import annotations

from typing import Any

from benchmarks.figures.cosine_levels import plot_cosine_density
from benchmarks.records import records
from st_extras.plots.maps import draw_moves


def levels() -> dict[str, Any]:
    """Return the record of the cosines of graded pairs."""
    return records("spaces", "cosine_levels.json")[0]


def neighborhoods() -> dict[str, Any]:
    """Return the record of texts before and after ``adapt``."""
    return records("spaces", "neighborhoods.json")[0]


def draw_levels(record: dict[str, Any]) -> Any:
    """Draw the density of the cosines in each level of the gold score, a panel for each encoder."""
    from matplotlib import pyplot as plt

    encoders = record["encoders"]
    figure, panels = plt.subplots(1, len(encoders), figsize=(10, 3.4), layout="constrained", squeeze=False, sharex=True)
    for ax, (name, found) in zip(panels.flat, encoders.items(), strict=True):
        plot_cosine_density(found["cosines"], record["scores"], ax=ax)
        ax.set_title(
            f"{name}\nseparation {found['separation']:.2f}, Spearman x 100: {found['spearman']:.1f}", fontsize="small"
        )
        ax.legend(
            title="gold score (mean / variance)", title_fontsize="x-small", fontsize="x-small", loc="upper left",
            frameon=False,
        )  # fmt: skip
        ax.set_ylim(top=1.55 * ax.get_ylim()[1])
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def draw_neighborhoods(record: dict[str, Any]) -> Any:
    """Draw texts with their nearest neighbours before and after."""
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(10, 4.8), layout="constrained")
    draw_moves(ax, [tuple(move) for move in record["moves"]], record["count"])
    return figure
