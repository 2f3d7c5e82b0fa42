"""The pictures of the pages, from the records: functions that read, and functions that draw on Axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib as mpl

from benchmarks.pictures import costs, search, spaces
from benchmarks.records import ROOT

DOCS = ROOT.parent / "docs"
PICTURES: dict[str, Callable[[], Any]] = {
    "cosine_levels.svg": lambda: spaces.draw_levels(spaces.levels()),
    "adapted_neighbours.svg": lambda: spaces.draw_topics(spaces.topics()),
    "training_costs.svg": lambda: costs.draw_trainings(costs.trainings()),
    "adapted.svg": lambda: costs.draw_adapted(costs.adapted_scores()),
    "hybrid.svg": lambda: search.draw_gains(search.gains()),
    "domain_gains.svg": lambda: costs.draw_domains(costs.domain_gains()),
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
        figure.savefig(DOCS / name, metadata={"Date": None})
        plt.close(figure)
