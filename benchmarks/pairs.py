"""Pairs of the STS sets: which of them the development set holds too.

STS-B was drawn from STS12-16, so that choosing weights on STS-B dev chooses by pairs of the test sets. The study
counts the pairs that are in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.records import run_once
from benchmarks.studies import Options
from benchmarks.texts import DEV, WORD
from st_extras.evaluation import SEVEN_STS, STSDataset, load_sts


def pair_keys(pairs: STSDataset) -> list[tuple[str, str]]:
    """Return a key for each pair that does not depend on its sentences' order, case and punctuation, (N,)."""
    sides = ([" ".join(WORD.findall(text.lower())) for text in side] for side in (pairs.sentences1, pairs.sentences2))
    return [(min(pair), max(pair)) for pair in zip(*sides, strict=True)]


def shared_pairs(pairs: STSDataset, dev: STSDataset) -> NDArray[np.bool_]:
    """Say for each pair whether ``dev`` holds it too, in either order, (N,)."""
    known = set(pair_keys(dev))
    return np.array([key in known for key in pair_keys(pairs)], dtype=bool)


def overlap_counts(dev: STSDataset, tests: Sequence[STSDataset]) -> dict[str, Any]:
    """Count the pairs that ``dev`` shares with the test sets.

    Returns:
        ``distinct``: different pairs of ``dev``; ``in_tests``: how many of them any test set holds; ``sets``: for each
        test set its ``pairs`` and how many of them are ``shared``.
    """
    own = set(pair_keys(dev))
    elsewhere = {key for pairs in tests for key in pair_keys(pairs)}
    sets = {pairs.name: {"pairs": len(pairs), "shared": int(shared_pairs(pairs, dev).sum())} for pairs in tests}
    return {"distinct": len(own), "in_tests": len(own & elsewhere), "sets": sets}


def run(study: dict[str, Any], options: Options) -> None:
    """Count the pairs that STS-B dev and the test sets share."""
    dev, *tests = [load_sts(name, options.data) for name in (DEV, *SEVEN_STS)]
    run_once(study["name"], DEV, lambda: overlap_counts(dev, tests), root=options.root)
