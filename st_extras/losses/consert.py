"""ConSERT: NT-Xent between two views made on the encoder's input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import get_world_size
from torch import Tensor, nn

from st_extras.checks import check_bool, check_temperature
from st_extras.encoders.distributed import gather_rows
from st_extras.encoders.rows import Features, check_columns
from st_extras.functional import unit_rows, unit_scores, weighted_info_nce
from st_extras.losses.parts.dropout_views import warn_if_same_views
from st_extras.losses.parts.gradient_cache import GradientCache, check_mini_batch_size, mean_over_mini_batches
from st_extras.losses.parts.negatives import warn_without_negatives
from st_extras.losses.parts.views import TwoViews, check_augmentations


def nt_xent(
    views: Sequence[Tensor], temperature: float, *, include_positive: bool = True, gather_across_devices: bool = False
) -> Tensor:
    """Compute NT-Xent of two views, each (B, D), averaged over both directions (eq. 9 of SLT-FAI).

    The candidates of an anchor are all embeddings of both views, except its own.
    """
    (first, offset), (second, _) = (gather_rows(view, gather_across_devices) for view in views)
    losses = []
    for anchors, own_view, other_view in ((views[0], first, second), (views[1], second, first)):
        candidates = unit_rows(torch.cat([other_view, own_view]))  # (2 * world * B, D)
        losses.append(_contrast(unit_rows(anchors), candidates, offset, temperature, include_positive))
    return (losses[0] + losses[1]) / 2


def _contrast(anchors: Tensor, candidates: Tensor, offset: int, temperature: float, include_positive: bool) -> Tensor:
    """Return the loss of some rows of a view, (b, D), the first of which is row ``offset`` of its candidates."""
    scores = unit_scores(anchors, candidates, temperature)  # (b, 2 * world * B)
    weights = torch.ones_like(scores)
    weights.diagonal(offset + len(candidates) // 2).zero_()  # an anchor is not its own candidate
    return weighted_info_nce(scores, weights, include_positive=include_positive, offset=offset)


class ConSERTLoss(nn.Module):
    """Pull two views of a sentence, made by changing the encoder's input, together and push all other views away.

    The views differ by shuffled positions and zeroed features instead of by dropout, so the loss also serves encoders
    without dropout. Use it on a raw encoder with unlabeled sentences; not where similar sentences meet in a batch, as
    all of them are negatives.

    Paper: ConSERT, Yan et al., 2021, https://aclanthology.org/2021.acl-long.393.
    Code: https://github.com/yym6472/ConSERT.

    For the 2B views h of B sentences, h_i' the other view of h_i's sentence, s = cos/tau (eq. 9 of SLT-FAI)::

        loss = 1/(2B) sum_i -log( e^{s(h_i, h_i')} / ( [e^{s(h_i, h_i')}] + sum_k e^{s(h_i, h_k)} ) )

    with k over all views of the other sentences. ConSERT has the term in brackets, eq. 9 leaves it out.

    Args:
        model: the SentenceTransformer to train; for cutoffs it must take input embeddings in place of token ids.
        temperature: tau.
        augmentations: how each of the two views is made: "shuffle", "token_cutoff", "span_cutoff", "feature_cutoff",
            "none" or "dropout", explained in :class:`~st_extras.losses.parts.views.TwoViews`.
        cutoff_rate: share of the tokens or features that a cutoff zeroes, in (0, 1).
        include_positive: keep the positive in the denominator.
        dropout: run the encoder with its own dropout too; always on if a view is "dropout".
        gather_across_devices: use the sentences of all processes as negatives.
        mini_batch_size: number of sentences that the encoder sees at a time (gradient caching). Memory no longer grows
            with the batch's activations, and a step takes about 4/3 of the time. None: the whole batch at once.
        generator: torch.Generator of the views, on the model's device. None: one is made from torch's seed.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence                      | none   |
        +-------------------------------+--------+
        | sentence, its positive        | none   |
        +-------------------------------+--------+

    Works with: transformers, encoders as well as decoders, padded on either side; prompts, chat templates, LoRA,
    MatryoshkaLoss, dictionaries of losses, several processes.
    Refuses: encoders that do not take what a view needs (cutoffs: BART and CLIP; all but "none" and "dropout", and
    ``mini_batch_size``: StaticEmbedding), a Router with several encoders, flattened (unpadded) features;
    AdaptiveLayerLoss together with ``mini_batch_size``.

    Differs from the paper: special tokens are neither shuffled nor cut as tokens.
    Differs from the authors' code: the mean of the two directions, not 0.15 times their sum (as a base of SLTFAILoss,
    ``base_weight=0.3`` gives theirs); cutoffs zero word embeddings, not their sum with position and type embeddings.
    Script (BERT base): batch 96, learning rate 5e-7, max length 64, temperature 0.1, feature cutoff 0.2 and shuffle,
    dropout off, 10 epochs of the 89,192 STS sentences, average of the last two layers at evaluation. SLT-FAI's runs:
    batch 32.

    Example:
        >>> from st_extras.losses import ConSERTLoss
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.training import train_encoder
        >>> model = raw_encoder()  # the packaged demo encoder; any BERT-like SentenceTransformer will do
        >>> options = {"max_steps": 1, "show_progress_bar": False}
        >>> train_encoder(model, ConSERTLoss(model), sample_sentences()[:64], "consert", **options).steps
        1
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
        mini_batch_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = check_temperature("temperature", temperature)
        if check_bool("dropout", dropout) and "none" in check_augmentations(augmentations):
            raise ValueError(
                f"dropout=True does not go with augmentations={tuple(augmentations)}: both views go through the "
                "encoder in one pass, with dropout or without. Use 'dropout' in place of 'none'."
            )
        self.two_views = TwoViews(model, augmentations, cutoff_rate=cutoff_rate, dropout=dropout, generator=generator)
        self.dropout = self.two_views.dropout
        self.include_positive = check_bool("include_positive", include_positive)
        self.gather_across_devices = check_bool("gather_across_devices", gather_across_devices)
        self.mini_batch_size = check_mini_batch_size(model, mini_batch_size)
        self.uses_gradient_cache = self.mini_batch_size is not None

    def views(self, sentence_features: Sequence[Features]) -> tuple[Features, int]:
        """Return the rows that the encoder must see, for a loss that wraps this one: (2B rows, 2)."""
        return self.two_views.rows(self.model, check_columns(sentence_features, "ConSERTLoss")), 2

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        columns = check_columns(sentence_features, "ConSERTLoss")
        if self.uses_gradient_cache:
            return GradientCache(self, columns, two_views=self.two_views, head=None).value()
        return self.compute_loss_from_embeddings(self.two_views.encode(self.model, columns))

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None = None) -> Tensor:
        """Return the loss of [first views, second views], each (B, D)."""
        self._warn(embeddings)
        return nt_xent(
            embeddings,
            self.temperature,
            include_positive=self.include_positive,
            gather_across_devices=self.gather_across_devices,
        )

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of both views' mini-batches, (b, D) each: see ``mini_batch_size``."""
        views = [torch.cat(batches) for batches in reps]
        self._warn(views)
        (first, offset), (second, _) = (gather_rows(view, self.gather_across_devices) for view in views)
        first, second = unit_rows(first), unit_rows(second)

        def contrast(batch: Tensor, shared: Sequence[Tensor], begin: int) -> Tensor:
            # mini-batches of the first view, then of the second, whose other view is the first
            is_second = begin >= len(views[0])
            candidates, row = shared[int(is_second)], begin - len(views[0]) * is_second
            return _contrast(unit_rows(batch), candidates, offset + row, self.temperature, self.include_positive)

        return mean_over_mini_batches(
            reps[0] + reps[1],
            [torch.cat([second, first]), torch.cat([first, second])],
            contrast,
            with_backward=with_backward,
        )

    def _warn(self, views: Sequence[Tensor]) -> None:
        if self.dropout:
            warn_if_same_views(self, *views)
        processes = get_world_size() if self.gather_across_devices else 1
        warn_without_negatives(self, len(views[0]) * processes - 1)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {
            "temperature": self.temperature,
            **self.two_views.config,
            "include_positive": self.include_positive,
            "dropout": self.dropout,
            "gather_across_devices": self.gather_across_devices,
            "mini_batch_size": self.mini_batch_size,
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
