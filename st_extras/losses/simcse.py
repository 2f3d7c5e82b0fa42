"""SimCSE: InfoNCE between two dropout views of a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_bool, check_temperature
from st_extras.encoders.distributed import gather_rows
from st_extras.encoders.heads import apply_head, projection_head
from st_extras.encoders.rows import Features, check_columns
from st_extras.encoders.structure import embedding_dimension
from st_extras.functional import unit_rows, unit_scores, weighted_info_nce
from st_extras.losses.parts.dropout_views import warn_if_same_views
from st_extras.losses.parts.gradient_cache import (
    GradientCache,
    check_head_size,
    check_mini_batch_size,
    mean_over_mini_batches,
)
from st_extras.losses.parts.negatives import warn_without_negatives
from st_extras.losses.parts.views import TwoViews


class SimCSELoss(nn.Module):
    """Pull two dropout views of a sentence together and push the other sentences of the batch away.

    This spreads the embeddings over the sphere. Use it on a raw encoder (one that no similarity labels have tuned)
    with unlabeled sentences, and as the baseline of any other objective. It treats every other sentence of the batch
    as a negative, also one that means the same: do not use it on an encoder that already tells such sentences well.

    Paper: SimCSE, Gao et al., 2021, https://aclanthology.org/2021.emnlp-main.552.
    Code: https://github.com/princeton-nlp/SimCSE.

    For the views h_i, h_i^+ of B sentences::

        loss = mean_i -log( e^{cos(h_i, h_i^+)/tau} / sum_j e^{cos(h_i, h_j^+)/tau} )

    On the same embeddings it equals Sentence Transformers' ``MultipleNegativesRankingLoss(scale=1/tau)``, but it
    takes a single column and encodes both views in one pass.

    Args:
        model: the SentenceTransformer to train.
        temperature: tau.
        augmentations: how each of the two views is made: "dropout", "none", "shuffle", "token_cutoff", "span_cutoff"
            or "feature_cutoff", explained in :class:`~st_extras.losses.parts.views.TwoViews`.
        cutoff_rate: share of the tokens or features that a cutoff zeroes, in (0, 1).
        projection: train with a head, Linear(D, D) + tanh, that belongs to the loss and is dropped at evaluation.
        gather_across_devices: use the sentences of all processes as negatives.
        mini_batch_size: number of sentences that the encoder sees at a time (gradient caching). Memory no longer grows
            with the batch's activations, and a step takes about 4/3 of the time. None: the whole batch at once.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence                      | none   |
        +-------------------------------+--------+
        | sentence, its positive        | none   |
        +-------------------------------+--------+

    Equal sentences in one batch are false negatives: use ``BatchSamplers.NO_DUPLICATES``.

    Works with: any encoder that has dropout, or other views ("shuffle": any transformer; cutoffs: transformers that
    take input embeddings, not BART or CLIP); prompts, chat templates, LoRA, MatryoshkaLoss (without ``projection``),
    dictionaries of losses, several processes. Dropout views without dropout in the encoder are equal: the first
    training batch says so in a warning that names the remedies.
    Refuses: a frozen encoder, StaticEmbedding with one column, flattened (unpadded) features with one column (both
    also with ``mini_batch_size``), AdaptiveLayerLoss together with ``mini_batch_size``.

    Differs from the paper: nothing in the loss.
    Differs from the authors' code: the head is off by default (their script trains with one), and the model's own
    pooling is used. Script (BERT base): batch 64, learning rate 3e-5, 1 epoch of a million Wikipedia sentences,
    [CLS], STS-B dev every 125 steps.

    Example:
        >>> from st_extras.losses import SimCSELoss
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.training import train_encoder
        >>> model = raw_encoder()  # the packaged demo encoder; any SentenceTransformer will do
        >>> options = {"max_steps": 1, "show_progress_bar": False}
        >>> train_encoder(model, SimCSELoss(model), sample_sentences()[:64], "simcse", **options).steps
        1
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
        mini_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = check_temperature("temperature", temperature)
        self.two_views = TwoViews(model, augmentations, cutoff_rate=cutoff_rate)
        self.dropout = self.two_views.dropout
        self.projection_head = (
            projection_head(embedding_dimension(model)) if check_bool("projection", projection) else None
        )
        self.gather_across_devices = check_bool("gather_across_devices", gather_across_devices)
        self.mini_batch_size = check_mini_batch_size(model, mini_batch_size)
        self.uses_gradient_cache = self.mini_batch_size is not None

    def views(self, sentence_features: Sequence[Features]) -> tuple[Features, int]:
        """Return the rows that the encoder must see, for a loss that wraps this one: (2B rows, 2)."""
        return self.two_views.rows(self.model, check_columns(sentence_features, "SimCSELoss")), 2

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        columns = check_columns(sentence_features, "SimCSELoss")
        if self.uses_gradient_cache:
            return GradientCache(self, columns, two_views=self.two_views, head=self.projection_head).value()
        return self.compute_loss_from_embeddings(self.two_views.encode(self.model, columns))

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None = None) -> Tensor:
        """Return the loss of [anchors, positives], each (B, D), before the projection head."""
        if self.dropout:
            warn_if_same_views(self, *embeddings)
        anchors, positives = apply_head(self.projection_head, embeddings)
        candidates, offset = gather_rows(positives, self.gather_across_devices)
        warn_without_negatives(self, len(candidates) - 1)
        return self._contrast(unit_rows(anchors), unit_rows(candidates), offset)

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of both views' mini-batches, (b, D) each, after the head: see ``mini_batch_size``."""
        check_head_size(self.projection_head, reps[0][0])
        anchors, positives = (torch.cat(batches) for batches in reps)
        if self.dropout:
            warn_if_same_views(self, anchors, positives)
        candidates, offset = gather_rows(positives, self.gather_across_devices)
        warn_without_negatives(self, len(candidates) - 1)
        return mean_over_mini_batches(
            reps[0],
            [unit_rows(candidates)],
            lambda batch, shared, begin: self._contrast(unit_rows(batch), shared[0], offset + begin),
            with_backward=with_backward,
        )

    def _contrast(self, anchors: Tensor, candidates: Tensor, offset: int) -> Tensor:
        return weighted_info_nce(unit_scores(anchors, candidates, self.temperature), offset=offset)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {
            "temperature": self.temperature,
            **self.two_views.config,
            "projection": self.projection_head is not None,
            "gather_across_devices": self.gather_across_devices,
            "mini_batch_size": self.mini_batch_size,
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
