"""The measures of ``geometry`` as Sentence Transformers evaluators, for ``evaluator=`` or a call on a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from sentence_transformers.util import pairwise_cos_sim

from st_extras.checks import shown
from st_extras.evaluation.geometry import (
    alignment,
    cosine_by_level,
    effective_rank,
    iso_score,
    level_separation,
    mean_cosine,
    partition_ratio,
    top_eigenvalue_share,
    uniformity,
)
from st_extras.evaluation.reporting import check_options, check_sentences, encode_sentences, join_name, report
from st_extras.modules.lambda_search import check_scores, check_text_pairs

_MEASURES = {
    "uniformity": uniformity,
    "mean_cosine": mean_cosine,
    "iso_score": iso_score,
    "partition_ratio": partition_ratio,
    "effective_rank": effective_rank,
    "top_eigenvalue_share": top_eigenvalue_share,
}
_HIGHER_IS_BETTER = {"iso_score", "partition_ratio", "effective_rank"}


class GeometryEvaluator(BaseEvaluator):
    """Uniformity, isotropy and, given positive pairs, alignment of a model's embeddings.

    The metrics are those of ``st_extras.evaluation.geometry``: ``uniformity``, ``mean_cosine``, ``iso_score``,
    ``partition_ratio``, ``effective_rank``, ``top_eigenvalue_share`` and ``alignment``. None of them alone shows that a
    model is good: a random map of sentences onto the sphere is perfectly isotropic.

    Args:
        sentences: the sentences to measure, or a data set with one text column; repeats count once (a repeat has
            cosine 1 with itself).
        positives: pairs of sentences with the same meaning (SimCSE and PaSeR take the STS-B pairs with a score of 4 or
            more); None leaves alignment out.
        primary: name of the metric that becomes ``primary_metric``; it also sets ``greater_is_better``.
        name: prefix of the metrics and part of the CSV file's name.
        batch_size: sentences per forward pass.
        show_progress_bar: whether to show the progress of encoding.
        write_csv: whether to append a row to ``geometry_evaluation[_name]_results.csv`` in the output path.

    Raises:
        ValueError: if there are fewer than two distinct sentences, ``positives`` does not hold pairs of strings, or
            ``primary`` is unknown.

    Example:
        >>> from st_extras.evaluation import GeometryEvaluator
        >>> evaluator = GeometryEvaluator(["a cat sat", "a dog ran", "birds sing"], name="toy")
        >>> evaluator.primary_metric, evaluator.greater_is_better
        ('toy_uniformity', False)
    """

    def __init__(
        self,
        sentences: Iterable[str],
        positives: Sequence[tuple[str, str]] | None = None,
        *,
        primary: str = "uniformity",
        name: str = "",
        batch_size: int = 32,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        check_options(name, batch_size, show_progress_bar, write_csv)
        self.sentences = list(dict.fromkeys(check_sentences("sentences", sentences, at_least=2)))
        if len(self.sentences) < 2:
            raise ValueError(f"sentences must hold at least 2 distinct sentences, got only {self.sentences[0]!r}.")
        self.positives = None if positives is None else check_text_pairs("positives", positives)
        if self.positives is not None and not self.positives:
            raise ValueError("positives must hold at least one pair, got []: give None to leave alignment out.")
        allowed = (*_MEASURES, *(() if self.positives is None else ("alignment",)))
        if not isinstance(primary, str) or primary not in allowed:
            hint = " (alignment needs positives)" if isinstance(primary, str) and primary == "alignment" else ""
            raise ValueError(f"primary must be one of {', '.join(allowed)}, got {shown(primary)}{hint}.")
        self.primary_metric = join_name(name, primary)
        self.greater_is_better = primary in _HIGHER_IS_BETTER
        self.name = name
        self.batch_size = int(batch_size)
        self.show_progress_bar = show_progress_bar
        self.csv_file = join_name("geometry_evaluation", name, "results.csv") if write_csv else None

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the metrics by name, and write the CSV row.

        Raises:
            ValueError: if an embedding is zero or not finite.
        """
        encode = partial(encode_sentences, model, batch_size=self.batch_size, show_progress_bar=self.show_progress_bar)
        cloud = encode(self.sentences)
        metrics = {name: measure(cloud) for name, measure in _MEASURES.items()}
        if self.positives is not None:
            sides = encode([text for pair in self.positives for text in pair])
            metrics["alignment"] = alignment(sides[0::2], sides[1::2])
        return report(self, model, metrics, output_path, epoch, steps)

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Embedding Geometry"


class CosineLevelEvaluator(BaseEvaluator):
    """Mean and variance of the cosines in each level of the gold score (PaSeR, table 10).

    Metrics: ``separation`` (the primary one: share of the cosines' variance that lies between the levels, 0 to 1,
    higher is better), and ``mean_<low>-<high>`` and ``variance_<low>-<high>`` for each level that has pairs.

    Args:
        sentences1: N first sentences.
        sentences2: N second sentences.
        scores: N gold scores.
        levels: number of levels of equal width (5 in the paper).
        score_range: lowest and highest possible score.
        name: prefix of the metrics and part of the CSV file's name.
        batch_size: sentences per forward pass.
        show_progress_bar: whether to show the progress of encoding.
        write_csv: whether to append a row to ``cosine_level_evaluation[_name]_results.csv`` in the output path.

    Raises:
        ValueError: if the lengths differ, a score lies outside the range, or all scores are equal.
    """

    def __init__(
        self,
        sentences1: Iterable[str],
        sentences2: Iterable[str],
        scores: Sequence[float],
        *,
        levels: int = 5,
        score_range: tuple[float, float] = (0.0, 5.0),
        name: str = "",
        batch_size: int = 32,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        check_options(name, batch_size, show_progress_bar, write_csv)
        self.sentences1 = check_sentences("sentences1", sentences1, at_least=2)
        self.sentences2 = check_sentences("sentences2", sentences2, at_least=2)
        self.scores = check_scores(scores)
        if not len(self.sentences1) == len(self.sentences2) == len(self.scores):
            raise ValueError(
                f"sentences1, sentences2 and scores must have the same length, got {len(self.sentences1)}, "
                f"{len(self.sentences2)} and {len(self.scores)}."
            )
        cosine_by_level([0.0] * len(self.scores), self.scores, levels=levels, score_range=score_range)
        self.levels = int(levels)
        self.score_range = score_range
        self.primary_metric = join_name(name, "separation")
        self.name = name
        self.batch_size = int(batch_size)
        self.show_progress_bar = show_progress_bar
        self.csv_file = join_name("cosine_level_evaluation", name, "results.csv") if write_csv else None

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the metrics by name, and write the CSV row."""
        embeddings = encode_sentences(
            model,
            self.sentences1 + self.sentences2,
            batch_size=self.batch_size,
            show_progress_bar=self.show_progress_bar,
        )
        first, second = embeddings.float().chunk(2)
        cosines = pairwise_cos_sim(first, second)
        table = cosine_by_level(cosines, self.scores, levels=self.levels, score_range=self.score_range)
        metrics = {"separation": level_separation(table)}
        for level in table:
            if level.count:
                metrics[f"mean_{level.low:g}-{level.high:g}"] = level.mean
                metrics[f"variance_{level.low:g}-{level.high:g}"] = level.variance
        return report(self, model, metrics, output_path, epoch, steps)

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Cosine by Gold-Score Level"

    def get_config_dict(self) -> dict[str, Any]:
        """Settings in the model card."""
        return {"levels": self.levels, "score_range": list(self.score_range)}
