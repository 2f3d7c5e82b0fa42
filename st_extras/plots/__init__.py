"""Plots of embedding spaces and training runs: functions that draw on matplotlib Axes and return them.

They need matplotlib (``pip install "st-extras[plot]"``), which is imported at the first call. Each takes ``ax``, the
axes to draw on; None makes a new figure. They take plain arrays and choose nothing: what is drawn is up to the caller.
"""

from st_extras.plots.charts import plot_alignment_uniformity, plot_training_curves, plot_unrelated_cosines
from st_extras.plots.maps import plot_changed_neighbors, plot_embedding_map

__all__ = [
    "plot_alignment_uniformity",
    "plot_changed_neighbors",
    "plot_embedding_map",
    "plot_training_curves",
    "plot_unrelated_cosines",
]
