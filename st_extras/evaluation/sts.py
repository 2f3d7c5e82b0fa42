"""One evaluator for the semantic textual similarity (STS) sets."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sentence_transformers import SentenceTransformer

from st_extras.checks import check_choice, shown
from st_extras.correlation import correlation, cosine_ranks, cosines_of_pairs
from st_extras.evaluation.reporting import ReportingEvaluator, join_name
from st_extras.evaluation.sts_data import SEVEN_STS, STSDataset, check_graded, load_sets

logger = logging.getLogger(__name__)

Setting = Literal["all", "wmean"]


class STSEvaluator(ReportingEvaluator):
    """Spearman correlation of cosine similarity with the gold scores, for one or several sets.

    The cosines are computed in float64 from the embeddings as they come, and ranked as by ``scipy.stats.spearmanr``.
    Every distinct sentence is encoded once, so pairs of the same texts are tied. Metrics, in [-1, 1]:
    ``{set}_spearman_cosine`` for each set and, for more than one, ``average_spearman_cosine``, their plain mean, which
    is then the primary metric (for ``evaluator=`` and ``load_best_model_at_end`` with
    ``metric_for_best_model=f"eval_{evaluator.primary_metric}"``).

    Args:
        datasets: the sets.
        setting: "all" correlates over all pairs of a set, as usual; "wmean" averages the correlations within its
            subsets, weighted by their sizes, as BERT-whitening and RepAL report it.
        **options: ``name`` (prefix of the metrics and part of the CSV file's name), ``batch_size`` (sentences per
            forward pass), ``show_progress_bar`` (while encoding) and ``write_csv`` (whether to append a row to
            ``sts_evaluation[_name][_wmean]_results.csv`` in the output path).

    Raises:
        ValueError: if there are no sets or one comes twice, a score is not finite, the setting is unknown, or
            "wmean" meets a set without subsets or a subset whose scores are all equal.

    Example:
        >>> from st_extras.evaluation import STSDataset, STSEvaluator
        >>> from st_extras.samples import graded_pairs
        >>> from st_extras.samples.encoder import raw_encoder
        >>> first, second, scores = graded_pairs()
        >>> evaluator = STSEvaluator([STSDataset("sample", first, second, scores)])
        >>> evaluator(raw_encoder())
        {'sample_spearman_cosine': 0...}
    """

    def __init__(self, datasets: Sequence[STSDataset], *, setting: Setting = "all", **options: Any) -> None:
        check_choice("setting", setting, ("all", "wmean"))
        if not datasets or not all(isinstance(data, STSDataset) for data in datasets):
            raise ValueError(f"datasets must hold STSDataset objects, as load_sts returns them, got {shown(datasets)}.")
        names = [data.name for data in datasets]
        if len(set(names)) < len(names):
            raise ValueError(f"datasets must hold each set once, got {', '.join(names)}.")
        for data in datasets:
            check_graded(data, data.name)
            if setting == "wmean":
                if set(data.subsets) == {data.name}:
                    raise ValueError(
                        f'setting="wmean" needs the subsets of {data.name}, which the hub copy does not contain.'
                    )
                check_graded(data, f'setting="wmean" of {data.name}', data.subsets)
        self.datasets = list(datasets)
        self.setting = setting
        first = self.datasets[0].name if len(self.datasets) == 1 else "average"
        primary = join_name(first, "spearman_cosine")
        super().__init__("sts_evaluation", primary, **options)
        if self.csv_file is not None and setting == "wmean":
            self.csv_file = join_name("sts_evaluation", self.name, "wmean_results.csv")

    def measure(self, model: SentenceTransformer) -> dict[str, float]:
        """Return the metrics by name; NaN where all similarities of a set, or of a subset, lie within 1e-9."""
        return self.metrics(self.similarities(model))

    def similarities(self, model: SentenceTransformer) -> list[NDArray[np.float64]]:
        """Return the cosines (P,) of the pairs of each set, in float64.

        Raises:
            ValueError: if an embedding is not finite.
        """
        embeddings = self.encode(model, [text for data in self.datasets for text in data.sentences1 + data.sentences2])
        found = []
        for data in self.datasets:
            first, second, embeddings = embeddings.tensor_split([len(data), 2 * len(data)])
            found.append(cosines_of_pairs(first, second))
        return found

    def metrics(self, similarities: Sequence[NDArray[np.float64]]) -> dict[str, float]:
        """Return the metrics by name, of the similarities of each set's pairs."""
        metrics = {
            f"{data.name}_spearman_cosine": self._correlation(data, found)
            for data, found in zip(self.datasets, similarities, strict=True)
        }
        if len(metrics) > 1:
            metrics["average_spearman_cosine"] = float(np.mean(list(metrics.values())))
        return metrics

    def _correlation(self, data: STSDataset, similarities: NDArray[np.float64]) -> float:
        ranks = self.ranks(data, similarities)
        rho = float(np.average([correlation(*sides) for sides in ranks], weights=[sides.shape[1] for sides in ranks]))
        if math.isnan(rho):
            logger.warning("%s: all similarities are equal, which gives no correlation with the scores.", data.name)
        return rho

    def ranks(self, data: STSDataset, similarities: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the ranks of the cosines and of the scores, (2, P) of the P pairs of each part."""
        gold = np.asarray(data.scores)
        return [np.stack([cosine_ranks(similarities[part]), rankdata(gold[part])]) for part in self.parts(data)]

    def parts(self, data: STSDataset) -> list[NDArray[np.int64]]:
        """Return the numbers of the pairs that are correlated together: those of each subset, or all."""
        if self.setting == "all":
            return [np.arange(len(data))]
        subsets = np.asarray(data.subsets)
        return [np.flatnonzero(subsets == subset) for subset in np.unique(subsets)]

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Semantic Textual Similarity"

    def get_config_dict(self) -> dict[str, Any]:
        """Settings in the model card."""
        return {"sets": [data.name for data in self.datasets], "setting": self.setting}


def sts_evaluator(
    names: str | Iterable[str] = SEVEN_STS,
    source: str | PathLike[str] | None = None,
    *,
    setting: Setting = "all",
    **options: Any,
) -> STSEvaluator:
    """Return an evaluator of STS sets given by name, for instance ``sts_evaluator(["stsb_dev"], "data/sts")``.

    Args:
        names: one name or several, see :func:`load_sts`.
        source: folder, file or hub, see :func:`load_sts`.
        setting: "all" or "wmean", see :class:`STSEvaluator`.
        **options: further arguments of :class:`STSEvaluator`.

    Raises:
        ValueError: if a set cannot be read, or ``source`` is one file but there are several names.
    """
    sets = load_sets([names] if isinstance(names, str) else list(names), source)
    return STSEvaluator(sets, setting=setting, **options)
