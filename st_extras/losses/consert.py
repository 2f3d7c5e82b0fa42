"""ConSERT: NT-Xent between two views made on the encoder's input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.augmentations import Augmenter
from st_extras.encoders import check_augmentations, encode_pair, gather_rows
from st_extras.functional import check_positive, cosine_scores, weighted_info_nce
from st_extras.rows import Features, check_columns, merged_pair


def nt_xent(
    views: Sequence[Tensor], temperature: float, *, include_positive: bool = True, gather_across_devices: bool = False
) -> Tensor:
    """NT-Xent of two views, each (B, D), averaged over both directions (eq. 9 of SLT-FAI).

    The candidates of an anchor are all embeddings of both views, except its own.
    """
    (first, offset), (second, _) = (gather_rows(view, gather_across_devices) for view in views)
    losses = []
    for anchors, own_view, other_view in ((views[0], first, second), (views[1], second, first)):
        scores = cosine_scores(anchors, torch.cat([other_view, own_view]), temperature)  # (B, 2 * world * B)
        weights = torch.ones_like(scores)
        weights.diagonal(offset + len(other_view)).zero_()  # an anchor is no candidate of its own
        losses.append(weighted_info_nce(scores, weights, include_positive=include_positive, offset=offset))
    return (losses[0] + losses[1]) / 2


class ConSERTLoss(nn.Module):
    """Pull two augmented views of a sentence together, away from all other views (Yan et al., 2021).

    For the 2B views h of B sentences, h_i' the other view of h_i's sentence, s = cos/tau (eq. 9 of SLT-FAI)::

        loss = 1/(2B) sum_i -log( e^{s(h_i, h_i')} / ( [e^{s(h_i, h_i')}] + sum_k e^{s(h_i, h_k)} ) )

    k over all views of the other sentences; the bracket is ConSERT's, eq. 9 leaves it out.

    Args:
        model: the SentenceTransformer to train; it must take ``inputs_embeds`` (cutoffs) and ``position_ids``
            (shuffle).
        temperature: tau.
        augmentations: how each of the two views is made. "shuffle": the position ids of the content tokens are
            permuted; "token_cutoff", "span_cutoff": the word embeddings of some tokens, or of a span of them, are
            zeroed; "feature_cutoff": the same features are zeroed in all tokens of a sentence; "none"; "dropout".
        cutoff_rate: share of the tokens or features that a cutoff zeroes, in (0, 1).
        include_positive: keep the positive in the denominator.
        dropout: run the encoder with its own dropout; also on where a view is "dropout".
        gather_across_devices: use the sentences of all processes as negatives.
        generator: the augmentations' own torch.Generator, on the model's device. None: made from torch's seed.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence                      | none   |
        +-------------------------------+--------+
        | sentence, its positive        | none   |
        +-------------------------------+--------+

    Differs from the authors' code: the mean of the two directions, not 0.15 times their sum (as a base of
    SLTFAILoss, ``base_weight=0.3`` gives theirs); cutoffs zero word embeddings, not their sum with position and type
    embeddings; special tokens are neither shuffled nor cut as tokens.

    Script (BERT base): batch 96, learning rate 5e-7, max length 64, temperature 0.1, feature cutoff 0.2 and
    shuffle, dropout off, 10 epochs of the 89,192 STS sentences, average of the last two layers at evaluation.
    SLT-FAI's runs: batch 32.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from st_extras.losses import ConSERTLoss
        >>> model = SentenceTransformer("bert-base-uncased")  # doctest: +SKIP
        >>> data = Dataset.from_dict({"sentence": ["A plane is taking off.", "A man plays a flute."]})
        >>> SentenceTransformerTrainer(model, train_dataset=data, loss=ConSERTLoss(model)).train()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.1,
        augmentations: Sequence[str] = ("feature_cutoff", "shuffle"),
        cutoff_rate: float = 0.2,
        include_positive: bool = True,
        dropout: bool = False,
        gather_across_devices: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = check_positive("temperature", temperature)
        self.augmentations = check_augmentations(augmentations)
        if dropout and "none" in self.augmentations:
            raise ValueError(
                f"dropout=True cannot be with augmentations={self.augmentations}: the pass over both views has one "
                "dropout, so that no view can be without. Use 'dropout' instead of 'none'."
            )
        self.dropout = dropout or "dropout" in self.augmentations
        self.augment = Augmenter(model, self.augmentations, cutoff_rate=cutoff_rate, generator=generator)
        self.include_positive = include_positive
        self.gather_across_devices = gather_across_devices

    def views(self, sentence_features: Sequence[Features]) -> tuple[Features, int]:
        """The rows that the encoder must see, for a loss that wraps this one: (2B rows, 2)."""
        rows = merged_pair(check_columns(sentence_features, "ConSERTLoss"), self.augmentations)
        return self.augment(self.model, rows, self.augmentations), 2

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch; ``labels`` are not used."""
        columns = check_columns(sentence_features, "ConSERTLoss")
        embeddings = encode_pair(self.model, columns, self.augmentations, self.augment, self.dropout)
        return self.compute_loss_from_embeddings(embeddings, labels)

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None = None) -> Tensor:
        """The loss of [first views, second views], each (B, D)."""
        return nt_xent(
            embeddings,
            self.temperature,
            include_positive=self.include_positive,
            gather_across_devices=self.gather_across_devices,
        )

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {
            "temperature": self.temperature,
            "augmentations": list(self.augmentations),
            "cutoff_rate": self.augment.cutoff_rate,
            "include_positive": self.include_positive,
            "dropout": self.dropout,
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the paper."""
        return """
@inproceedings{yan2021consert,
    title = "{ConSERT}: A Contrastive Framework for Self-Supervised Sentence Representation Transfer",
    author = "Yan, Yuanmeng and Li, Rumei and Wang, Sirui and Zhang, Fuzheng and Wu, Wei and Xu, Weiran",
    booktitle = "Proceedings of the 59th Annual Meeting of the Association for Computational Linguistics",
    year = "2021",
    url = "https://aclanthology.org/2021.acl-long.393",
}
"""
