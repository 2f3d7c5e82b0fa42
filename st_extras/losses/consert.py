"""ConSERT: NT-Xent between two views made on the encoder's input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_bool, check_temperature
from st_extras.citations import CITATIONS
from st_extras.functional import unit_rows, unit_scores, weighted_info_nce
from st_extras.losses.pair_loss import PairLoss, PairOptions
from st_extras.losses.parts.gradient_cache import ColumnBatches, ViewBatches

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ConSERTLoss(PairLoss):
    """Pull two augmented views of a sentence together and push the views of all other sentences away.

    The views are made by changing the encoder's input (shuffled positions, features set to zero) instead of by dropout,
    so the loss also works with encoders without dropout. Use it on a raw encoder with unlabeled sentences; not if
    similar sentences meet in a batch, as all of them are negatives.

    Paper: ConSERT, Yan et al., 2021, https://aclanthology.org/2021.acl-long.393.
    Code: https://github.com/yym6472/ConSERT.

    For the 2B views h of B sentences, h_i' the other view of h_i's sentence, s = cos/tau (eq. 9 of SLT-FAI)::

        loss = 1/(2B) sum_i -log( e^{s(h_i, h_i')} / ( [e^{s(h_i, h_i')}] + sum_k e^{s(h_i, h_k)} ) )

    with k over all views of the other sentences. ConSERT has the term in brackets; eq. 9 leaves it out.

    Args:
        model: the SentenceTransformer to train; for cutoffs it must take input embeddings in place of token ids.
        temperature: tau.
        include_positive: keep the positive in the denominator.
        augmentations: how each of the two views is made, see :class:`~st_extras.losses.pair_loss.PairLoss`.
        dropout: run the encoder with its own dropout too; always on if a view is "dropout".
        options: ``projection``, ``gather_across_devices``, ``mini_batch_size``, ``mini_batch_num_tokens`` and
            ``generator`` of :class:`~st_extras.losses.pair_loss.PairLoss`.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence                      | none   |
        +-------------------------------+--------+
        | sentence, its positive        | none   |
        +-------------------------------+--------+

    Works with: transformers, encoders as well as decoders, padded on either side; prompts, chat templates, LoRA,
    MatryoshkaLoss (without ``projection``), dictionaries of losses, several processes.
    Refuses: encoders that do not take what a view needs (cutoffs: BART and CLIP; all but "none" and "dropout", and
    ``mini_batch_size``: StaticEmbedding), a Router with several encoders, flattened (unpadded) features;
    AdaptiveLayerLoss.

    Differs from the paper: special tokens are neither shuffled nor cut as tokens.
    Differs from the authors' code: the mean of the two directions, not 0.15 times their sum (as a base of SLTFAILoss,
    ``base_weight=0.3`` gives theirs); cutoffs zero word embeddings, not their sum with position and type embeddings.
    The authors' code (BERT base): batch 96, learning rate 5e-7, max length 64, temperature 0.1, feature cutoff 0.2 and
    shuffle, dropout off, 10 epochs of the 89,192 STS sentences, average of the last two layers at evaluation. SLT-FAI's
    runs: batch 32.

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

    citation = CITATIONS["yan2021consert"]

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.1,
        include_positive: bool = True,
        augmentations: Sequence[str] = ("feature_cutoff", "shuffle"),
        dropout: bool = False,
        **options: Unpack[PairOptions],
    ) -> None:
        super().__init__(model, augmentations=augmentations, dropout=dropout, **options)
        self.temperature = check_temperature("temperature", temperature)
        self.include_positive = check_bool("include_positive", include_positive)

    def calculate_loss(
        self, view_batches: ViewBatches, *, with_backward: bool = False, columns: ColumnBatches | None = None
    ) -> Tensor:
        """Return NT-Xent of both views' mini-batches, (b, D) each, averaged over both directions (eq. 9 of SLT-FAI).

        ``columns`` are not used.
        """
        (first, offset), (second, _) = (self.gather(view) for view in self.whole(view_batches))

        def half(anchors: list[Tensor], own_view: Tensor, other_view: Tensor) -> Tensor:
            candidates = unit_rows(torch.cat([other_view, own_view]))  # (2 * world * B, D)

            def contrast(batch: Tensor, candidates: Tensor, begin: int) -> Tensor:
                scores = unit_scores(unit_rows(batch), candidates, self.temperature)  # (b, 2 * world * B)
                weights, row = torch.ones_like(scores), offset + begin
                weights.diagonal(row + len(own_view)).zero_()  # an anchor is not its own candidate
                return weighted_info_nce(scores, weights, include_positive=self.include_positive, offset=row) / 2

            return self.mean_over_mini_batches(anchors, candidates, contrast, with_backward=with_backward)

        return half(view_batches[0], first, second) + half(view_batches[1], second, first)
