"""An evaluator of whether texts with the same label are near each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.encoders.forward import without_dropout
from st_extras.evaluation.label_metrics import NEIGHBORS, SEEDS, check_labels, label_numbers, scores_of_rows
from st_extras.evaluation.reporting import ReportingEvaluator, check_embeddings, check_sentences


class LabeledTextEvaluator(ReportingEvaluator):
    """Whether a model puts texts with the same label near each other, such as questions with the same intent.

    Use it to measure what an encoder is worth on a domain, and what a training or a post-processing changed there.
    Labels that were used for training, or to choose a setting, measure too well: keep the texts of the report apart.

    Metrics, all in [0, 1], higher is better:
        knn_accuracy: share of texts whose nearest neighbour, by cosine, has their label (leave-one-out).
        knn5_accuracy: the same for the majority of the 5 nearest.
        v_measure, v_measure_std: agreement of the labels with the clusters of k-means, as many as there are labels (1:
            the clusters are the labels; equal to NMI); mean and standard deviation over three seeds.
        map_at_r: mean average precision at R, the number of OTHER texts with a text's label (Musgrave et al., 2020,
            https://arxiv.org/abs/2003.08505). Texts whose label stands once have no R and are left out of the mean.
        mean: of knn_accuracy, v_measure and map_at_r; the primary metric.

    Equally near neighbours with another label come first, so an encoder that maps all texts to one point scores 0.
    Every distinct text is encoded once. A call changes neither the weights nor the mode of the model, nor the global
    random state.

    Args:
        texts: N texts, or a data set with one text column.
        labels: their N labels, strings or whole numbers, at least two different ones, one of them twice.
        **options: ``name`` (prefix of the metrics and part of the CSV file's name), ``batch_size`` (texts per
            forward pass), ``show_progress_bar`` (while encoding) and ``write_csv`` (whether to append a row to
            ``labeled_text_evaluation[_name]_results.csv`` in the output path).

    Raises:
        ValueError: if a text is no string, the labels do not match the texts or are all the same or all different, a
            label is neither a string nor a whole number, or an option is not allowed.

    Example:
        >>> from st_extras.evaluation import LabeledTextEvaluator
        >>> from st_extras.samples.encoder import raw_encoder
        >>> texts = ["Where is my card?", "My card is not here.", "I forgot my PIN.", "What is my PIN?"]
        >>> evaluator = LabeledTextEvaluator(texts, ["lost", "lost", "pin", "pin"], name="bank")
        >>> evaluator(raw_encoder())["bank_mean"]
        0...
    """

    def __init__(self, texts: Iterable[str], labels: Iterable[str] | Iterable[int], **options: Any) -> None:
        self.texts = check_sentences("texts", texts, at_least=2)
        self.labels = check_labels("labels", labels, len(self.texts))
        super().__init__("labeled_text_evaluation", "mean", **options)

    def measure(self, model: SentenceTransformer) -> dict[str, float]:
        """Return the metrics by name."""
        return scores_of_rows(self.unit_rows(model), label_numbers(self.labels))

    def unit_rows(self, model: SentenceTransformer) -> Tensor:
        """Return the (N, D) unit rows of the texts."""
        with without_dropout(model):
            return check_embeddings("embeddings", self.encode(model, self.texts))

    def get_config_dict(self) -> dict[str, Any]:
        """Settings in the model card."""
        sizes = {"texts": len(self.texts), "labels": len(set(self.labels))}
        return sizes | {"neighbors": NEIGHBORS, "seeds": list(SEEDS)}
