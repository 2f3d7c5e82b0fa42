"""SimCSE: InfoNCE between two dropout views of a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.augmentations import Augmenter
from st_extras.encoders import (
    apply_head,
    check_augmentations,
    embedding_dimension,
    encode_pair,
    gather_rows,
    projection_head,
)
from st_extras.functional import check_positive, cosine_scores, weighted_info_nce
from st_extras.rows import Features, check_columns, merged_pair


class SimCSELoss(nn.Module):
    """Pull two dropout views of a sentence together, away from the batch's other sentences (Gao et al., 2021).

    The baseline of every table in this package. For the views h_i, h_i^+ of B sentences::

        loss = mean_i -log( e^{cos(h_i, h_i^+)/tau} / sum_j e^{cos(h_i, h_j^+)/tau} )

    It equals Sentence Transformers' ``MultipleNegativesRankingLoss(scale=1/tau)`` on the same embeddings, but
    takes a single column and encodes both views in one pass.

    Args:
        model: the SentenceTransformer to train.
        temperature: tau.
        augmentations: how each of the two views is made. "dropout": the encoder's own dropout, on in the whole
            pass; "none"; "shuffle": positions permuted; "token_cutoff", "span_cutoff", "feature_cutoff": input
            embeddings zeroed (see :class:`~st_extras.losses.ConSERTLoss`).
        cutoff_rate: share of the tokens or features that a cutoff zeroes.
        projection: train with a head Linear(D, D) + tanh that belongs to the loss and is dropped at evaluation.
        gather_across_devices: use the sentences of all processes as negatives.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence                      | none   |
        +-------------------------------+--------+
        | sentence, its positive        | none   |
        +-------------------------------+--------+

    Equal sentences in one batch are false negatives: use ``BatchSamplers.NO_DUPLICATES``.

    Differs from the authors' code: the head is off by default (their script trains with one) and mean or any
    other pooling of the model is used as it is. Script (BERT base): batch 64, learning rate 3e-5, 1 epoch of a
    million Wikipedia sentences, [CLS], STS-B dev every 125 steps.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from st_extras.losses import SimCSELoss
        >>> model = SentenceTransformer("bert-base-uncased")  # doctest: +SKIP
        >>> data = Dataset.from_dict({"sentence": ["A plane is taking off.", "A man plays a flute."]})
        >>> SentenceTransformerTrainer(model, train_dataset=data, loss=SimCSELoss(model)).train()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        augmentations: Sequence[str] = ("dropout", "dropout"),
        cutoff_rate: float = 0.2,
        projection: bool = False,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = check_positive("temperature", temperature)
        self.augmentations = check_augmentations(augmentations)
        self.augment = Augmenter(model, self.augmentations, cutoff_rate=cutoff_rate)
        self.projection_head = projection_head(embedding_dimension(model)) if projection else None
        self.gather_across_devices = gather_across_devices

    @property
    def dropout(self) -> bool:
        """Whether the encoder's pass runs with its dropout, for a loss that wraps this one."""
        return "dropout" in self.augmentations

    def views(self, sentence_features: Sequence[Features]) -> tuple[Features, int]:
        """The rows that the encoder must see, for a loss that wraps this one: (2B rows, 2)."""
        rows = merged_pair(check_columns(sentence_features, "SimCSELoss"), self.augmentations)
        return self.augment(self.model, rows, self.augmentations), 2

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch; ``labels`` are not used."""
        columns = check_columns(sentence_features, "SimCSELoss")
        return self.compute_loss_from_embeddings(
            encode_pair(self.model, columns, self.augmentations, self.augment), labels
        )

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None = None) -> Tensor:
        """The loss of [anchors, positives], each (B, D), before the projection head."""
        anchors, positives = apply_head(self.projection_head, embeddings)
        candidates, offset = gather_rows(positives, self.gather_across_devices)
        return weighted_info_nce(cosine_scores(anchors, candidates, self.temperature), offset=offset)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {
            "temperature": self.temperature,
            "augmentations": list(self.augmentations),
            "cutoff_rate": self.augment.cutoff_rate,
            "projection": self.projection_head is not None,
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the paper."""
        return """
@inproceedings{gao2021simcse,
    title = "{SimCSE}: Simple Contrastive Learning of Sentence Embeddings",
    author = "Gao, Tianyu and Yao, Xingcheng and Chen, Danqi",
    booktitle = "Proceedings of the 2021 Conference on Empirical Methods in Natural Language Processing",
    year = "2021",
    url = "https://aclanthology.org/2021.emnlp-main.552",
}
"""
