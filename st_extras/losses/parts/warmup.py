"""The length of a warm-up, which papers give in epochs."""

from __future__ import annotations

import math

from st_extras.checks import check_count, check_interval


def epochs_to_steps(epochs: float, num_sentences: int, batch_size: int, num_processes: int = 1) -> int:
    """Return the number of training forward passes in ``epochs`` epochs, for ``warmup_steps``.

    The paper warms up for 0.1 or 0.5 epochs.

    Args:
        epochs: a number >= 0, not necessarily whole.
        num_sentences: rows of the training set.
        batch_size: sentences of one process in one forward, whether or not gradients are accumulated.
        num_processes: processes that train.

    Raises:
        ValueError: if ``epochs`` is not between 0 and 1e6, or another number is not a whole one >= 1.
    """
    epochs = check_interval("epochs", epochs, 0, 1e6)
    num_sentences = check_count("num_sentences", num_sentences, at_least=1)
    batch_size = check_count("batch_size", batch_size, at_least=1)
    num_processes = check_count("num_processes", num_processes, at_least=1)
    return round(epochs * math.ceil(num_sentences / (batch_size * num_processes)))
