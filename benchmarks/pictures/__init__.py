"""The pictures of the pages, from the records: functions that read, and functions that draw on Axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib as mpl

from benchmarks.pictures import costs, curves, search, spaces
from benchmarks.records import ROOT

DOCS = ROOT.parent / "docs"
PICTURES: dict[str, Callable[[], Any]] = {
    "training_curves.png": lambda: curves.draw_families(curves.mean_curves(), "step"),
    "training_seconds.svg": lambda: curves.draw_families(
        curves.timed_curves(), "seconds of training steps", xscale="log"
    ),
    "label_free_selection.png": lambda: curves.draw_picked(*curves.picked_curves()),
    "cosine_levels.svg": lambda: spaces.draw_levels(spaces.levels()),
    "neighborhoods.png": lambda: spaces.draw_neighborhoods(spaces.neighborhoods()),
    "adapted_neighbours.svg": lambda: spaces.draw_topics(spaces.topics()),
    "training_costs.svg": lambda: costs.draw_trainings(costs.trainings()),
    "adapted.svg": lambda: costs.draw_adapted(costs.adapted_scores()),
    "hybrid.svg": lambda: search.draw_gains(search.gains()),
    "domain_costs.svg": lambda: costs.draw_domains(costs.domain_gains(), costs.domain_seconds()),
}
"""File name -> figure. Backgrounds are white, so that they are read on a dark page too."""


def draw() -> None:
    """Draw every picture."""
    mpl.use("agg")
    from matplotlib import pyplot as plt

    DOCS.mkdir(exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "st_extras"  # the same file at every run
    for name, make in PICTURES.items():
        figure = make()
        same = {"Date": None} if name.endswith(".svg") else {"Software": None}
        figure.savefig(DOCS / name, dpi=110, metadata=same)
        plt.close(figure)
