"""Texts with labels: a reader, and an evaluator of whether texts with the same label are near each other."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import shown
from st_extras.encoders.forward import without_dropout
from st_extras.evaluation.label_scores import NEIGHBORS, SEEDS, check_label, check_labels, label_numbers, scores_of_rows
from st_extras.evaluation.reporting import ReportingEvaluator, check_embeddings, check_sentences
from st_extras.text.corpus import check_string
from st_extras.text.files import file_kind
from st_extras.text.tables import TEXT_COLUMNS, Column, open_file

_TABLES = (".tsv", ".csv", ".jsonl", ".parquet", ".json")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabeledTexts:
    """Texts and their labels, such as the intent of a question or the topic of a title.

    Attributes:
        texts: N texts.
        labels: N labels.
    """

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)


def load_labeled_texts(
    path: str | PathLike[str], *, text_column: str | None = None, label_column: str = "label"
) -> LabeledTexts:
    """Read labelled texts from a .tsv, .csv, .jsonl, .json or .parquet file; the first three also with .gz.

    The first row of a .tsv or .csv file names the columns. Texts and labels are stripped; a label that is a whole
    number becomes text.

    Args:
        path: the file.
        text_column: the texts' column. None: the first of sentence, text, sentence1, content that exists.
        label_column: the labels' column.

    Raises:
        ValueError: if there is no such file or column, the file is of another kind, empty or damaged, a text is no
            string or empty, or a label is neither a string nor a whole number, or empty. The message names the file
            with its line or row.

    Example:
        >>> from pathlib import Path
        >>> from st_extras.evaluation import load_labeled_texts
        >>> _ = Path("intents.tsv").write_text("label\\ttext\\nlost\\tWhere is my card?\\npin\\tI forgot my PIN.\\n")
        >>> load_labeled_texts("intents.tsv").labels
        ['lost', 'pin']
    """
    file = Path(path)
    if file.is_dir() or not file.exists():
        raise ValueError(f"There is no file of labelled texts {str(file)!r}.")
    if file_kind(file)[0] not in _TABLES:
        raise ValueError(f"path must be a file whose name ends in {', '.join(_TABLES)}, got {str(file)!r}.")
    texts: list[str] = []
    labels: list[str] = []
    columns = {
        "text": Column(TEXT_COLUMNS, text_column, "text_column (--text-column) can name another"),
        "label": Column((), label_column, "label_column (--label-column) can name another"),
    }
    for where, row in open_file(file, columns).rows():
        text, label = row["text"], row["label"]
        if not check_string(text, where).strip():
            raise ValueError(f"{where}: a text must not be empty, got {shown(text)}: leave its row out.")
        texts.append(text.strip())
        labels.append(check_label(label, where).strip())
    if not texts:
        raise ValueError(f"{str(file)!r} holds no labelled text.")
    return LabeledTexts(texts, labels)


def without_labeled(texts: Sequence[str], labeled: Iterable[str]) -> list[str]:
    """Return the texts without a label, so that nothing is fitted on texts that choose or score it.

    Args:
        texts: N texts of a corpus.
        labeled: texts that have labels; spaces do not count.

    Returns:
        The other texts, in order; the log has their number.

    Raises:
        ValueError: if most of the texts have labels.
    """
    known = {" ".join(text.split()) for text in labeled}
    others = [text for text in texts if " ".join(text.split()) not in known]
    found = len(texts) - len(others)
    if 2 * found > len(texts):
        raise ValueError(
            f"labelled texts must be apart from those to fit on, got a label for {found} of {len(texts)}: give other "
            "texts, or labels for a small part of these."
        )
    if found:
        logger.warning("Texts that have a label are not fitted on: %d of %d.", found, len(texts))
    return others


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
