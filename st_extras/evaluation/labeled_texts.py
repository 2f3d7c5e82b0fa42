"""An evaluator on labelled texts: are texts with the same label near each other?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import Tensor

from st_extras.encoders.forward import without_dropout
from st_extras.evaluation.label_scores import (
    DEFAULT_METRICS,
    check_scored,
    check_settings,
    check_train_labels,
    label_scores,
    primary_metric,
)
from st_extras.evaluation.labels import check_labels, check_together
from st_extras.evaluation.reporting import check_options, check_sentences, encode_sentences, join_name, report


class LabeledTextEvaluator(BaseEvaluator):
    """Whether a model puts texts with the same label near each other, such as questions with the same intent.

    Use it to measure what an encoder is worth on a domain, and what a training or a post-processing changed there.
    Labels that were used for training, or to choose a setting, measure too well: keep the texts of the report apart.

    Metrics, all in [0, 1], higher is better:
        knn_accuracy: share of texts whose nearest neighbour, by cosine, has their label (leave-one-out, or among the
            training texts).
        knn5_accuracy: the same for the majority of the 5 (``neighbors``) nearest; left out if ``neighbors`` is 1.
        v_measure, v_measure_std: agreement of the labels with the clusters of k-means, as many as there are labels (1:
            the clusters are the labels; equal to NMI); mean and standard deviation over ``seeds``.
        map_at_r: mean average precision at R, the number of OTHER texts with a text's label (Musgrave et al., 2020,
            https://arxiv.org/abs/2003.08505). Texts whose label stands once have no R and are left out of the mean.
        linear_probe, linear_probe_std: accuracy of a logistic regression, over the folds of 5-fold cross-validation and
            ``seeds``; with training texts it learns from them, and has no standard deviation. Only computed if
            ``metrics`` names it: it is the slowest, about a second a seed for 3,000 texts.
        mean: of knn_accuracy, v_measure and map_at_r. It is the primary metric; if ``metrics`` leaves one of the three
            out, the first metric chosen is.

    Equally near neighbours with another label come first, so an encoder that maps all texts to one point scores 0.
    Every distinct text is encoded once. A call changes neither the weights nor the mode of the model, nor the global
    random state.

    Args:
        texts: N texts, or a data set with one text column.
        labels: their N labels, strings or whole numbers, at least two different ones.
        train_texts: texts among which neighbours are looked for, and from which the probe learns; clusters and MAP@R
            remain those of ``texts``. None: neighbours are looked for among the other N - 1 texts.
        train_labels: their labels, with ``train_texts``.
        metrics: which of "knn_accuracy", "v_measure", "map_at_r" and "linear_probe" to compute.
        neighbors: k of the vote among several neighbours, 1 to 100.
        seeds: seeds of k-means and of the folds.
        name: prefix of the metrics and part of the CSV file's name.
        batch_size: texts per forward pass.
        show_progress_bar: whether to show the progress of encoding.
        write_csv: whether to append a row to ``labeled_text_evaluation[_name]_results.csv`` in the output path.

    Raises:
        ValueError: if a text is no string, the labels do not match the texts or are all the same, a label is neither a
            string nor a whole number, a setting is not allowed, or a metric cannot be computed of these labels.

    Example:
        >>> from st_extras.evaluation import LabeledTextEvaluator
        >>> from st_extras.samples.encoder import raw_encoder
        >>> texts = ["Where is my card?", "My card is not here.", "I forgot my PIN.", "What is my PIN?"]
        >>> evaluator = LabeledTextEvaluator(texts, ["lost", "lost", "pin", "pin"], name="bank")
        >>> evaluator(raw_encoder())["bank_mean"]
        0...
    """

    def __init__(
        self,
        texts: Iterable[str],
        labels: Iterable[str] | Iterable[int],
        *,
        train_texts: Iterable[str] | None = None,
        train_labels: Iterable[str] | Iterable[int] | None = None,
        metrics: Sequence[str] = DEFAULT_METRICS,
        neighbors: int = 5,
        seeds: Iterable[int] = (0, 1, 2),
        name: str = "",
        batch_size: int = 64,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        check_options(name, batch_size, show_progress_bar, write_csv)
        self.metrics, self.neighbors, self.seeds = check_settings(metrics, neighbors, seeds)
        self.texts = check_sentences("texts", texts, at_least=2)
        self.labels = check_labels("labels", labels, len(self.texts))
        check_scored(self.metrics, self.labels, is_split=train_texts is not None)
        self.train_texts: list[str] | None = None
        self.train_labels: list[str] | None = None
        check_together("train_texts", train_texts, "train_labels", train_labels)
        if train_texts is not None:
            self.train_texts = check_sentences("train_texts", train_texts, at_least=2)
            self.train_labels = check_labels("train_labels", train_labels, len(self.train_texts), "train_texts")
            check_train_labels(self.train_labels, self.labels)
        self.name = name
        self.batch_size = int(batch_size)
        self.show_progress_bar = show_progress_bar
        self.primary_metric = join_name(name, primary_metric(self.metrics))
        self.csv_file = join_name("labeled_text_evaluation", name, "results.csv") if write_csv else None

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the metrics by name, and write the CSV row.

        Raises:
            ValueError: if an embedding is zero or not finite.
        """
        train_texts = self.train_texts or []
        embeddings = self._embed(model, [*self.texts, *train_texts])
        own, train = torch.split(embeddings, [len(self.texts), len(train_texts)])
        metrics = label_scores(
            own,
            self.labels,
            train_embeddings=None if self.train_texts is None else train,
            train_labels=self.train_labels,
            metrics=self.metrics,
            neighbors=self.neighbors,
            seeds=self.seeds,
        )
        return report(self, model, metrics, output_path, epoch, steps)

    def _embed(self, model: SentenceTransformer, texts: list[str]) -> Tensor:
        """Return the (N, D) embeddings of the texts, equal ones for equal texts."""
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        with without_dropout(model):
            embeddings = encode_sentences(
                model, list(rows), batch_size=self.batch_size, show_progress_bar=self.show_progress_bar
            )
        return embeddings[[rows[text] for text in texts]]

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Labeled Texts"

    def get_config_dict(self) -> dict[str, Any]:
        """Settings in the model card."""
        return {
            "texts": len(self.texts),
            "labels": len(set(self.labels)),
            "train_texts": 0 if self.train_texts is None else len(self.train_texts),
            "neighbors": self.neighbors,
            "seeds": list(self.seeds),
        }
