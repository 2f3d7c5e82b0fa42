"""The corpus mean of RepAL: over sentences, or of statistics that were computed before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from st_extras.modules import pipeline
from st_extras.modules.masked_pipeline import plain_modules
from st_extras.modules.statistics import CorpusStatistics, given_statistics


def mean_before(
    module: Any, sentences: Iterable[str] | None, statistics: CorpusStatistics | None, **encoding: Any
) -> tuple[Tensor, int]:
    """Return the mean (D,) of the embeddings that reach ``module``, and the number of sentences behind it.

    Args:
        module: part of a model.
        sentences: the corpus, or None.
        statistics: of the corpus, or None.
        **encoding: as for ``pipeline.mean_embedding``.

    Raises:
        ValueError: if both or neither are given, the statistics came from another encoder or hold no sentences, there
            are no sentences, or an embedding is not finite (the error names the sentence).
    """
    modules = plain_modules(pipeline.modules_before(module))
    if sentences is None or statistics is not None:
        given = given_statistics(module, modules, sentences, statistics)
        return given.mean, given.count
    return pipeline.mean_embedding(pipeline.temporary_model(module, modules), sentences, **encoding)
