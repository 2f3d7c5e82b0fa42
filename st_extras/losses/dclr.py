"""DCLR: debiased contrastive learning with instance weights and gradient-refined noise negatives."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_bool, check_temperature
from st_extras.citations import CITATIONS
from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.functional import unit_rows, unit_scores, weighted_info_nce
from st_extras.losses.pair_loss import PairLoss, PairOptions
from st_extras.losses.parts.gradient_cache import ColumnBatches, ViewBatches
from st_extras.losses.parts.instance_weights import InstanceWeights
from st_extras.losses.parts.noise import NoiseNegatives

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DCLRLoss(PairLoss):
    """Contrast two views of a sentence with negatives that a guide has checked, and with noise vectors.

    The guide (``complementary_model``), a frozen encoder, decides which sentences of the batch are too similar to be
    negatives (instance weights); noise vectors, moved towards the anchors, are further negatives and even out the
    space. Without a guide (the default) no negative is left out, and a log message says so.

    Use it with a guide that knows the text better than the model; noise and weights alone added nothing in our
    measurements, and without both, ``SimCSELoss(model, include_positive=False)`` is the same loss.

    Paper: DCLR, Zhou et al., 2022, https://aclanthology.org/2022.acl-long.423.
    Code: https://github.com/RUCAIBox/DCLR.

    For the views h_i, h_i^+ of B sentences and K noise vectors n_k, s = cos/tau (eq. 6)::

        loss = mean_i -log( e^{s(h_i,h_i^+)} / ( sum_{j != i} alpha_ij e^{s(h_i,h_j^+)} + sum_k e^{s(h_i,n_k)} ) )
        alpha_ij = 0 if the guide's cosine of x_i and x_j is >= phi, else 1                (eq. 5)
        n_k ~ N(0, I), then t steps of n_k += beta g_k/|g_k|                               (eq. 2-4)
        g_k the gradient by n_k of L_U = mean_i log( sum_k e^{cos(h_i,n_k)/tau} ) + a constant: towards the anchors

    As in the paper, the positive is not in the denominator, so the loss can be negative.

    Args:
        model: the SentenceTransformer to train.
        complementary_model: the guide: a SentenceTransformer, its path or hub id (the paper: a SimCSE checkpoint);
            "start" for a frozen copy of the model, made with the loss (to resume, make the loss from the same base
            model); or "self" for the trained model's own detached scores (the paper's self-weighting). It is frozen
            and in evaluation mode, and tokenizes each sentence itself (with its prompt, padding side and special
            tokens); a guide with another tokenizer gets the decoded texts. None: no weighting.
        complementary_table: instead of ``complementary_model``, an :class:`~st_extras.encoders.EmbeddingTable` of the
            guide's embeddings of the training sentences, so that no step runs the guide.
        threshold: phi, in (-1, 1]: pairs at least this similar are not used as negatives. None: 0.9, as in the paper,
            unless ``masked_share`` is given.
        masked_share: instead of ``threshold``, the share of the negatives to leave out, in (0, 1): phi is the cosine
            that this share of the pairs i != j reaches, on average over the training batches so far. A share carries
            over from one corpus or guide to another; a threshold does not. Use batches of 16 or more of a shuffled
            corpus: smaller ones leave out more. Inside MatryoshkaLoss, "self" averages over the dimensions too. See
            :class:`~st_extras.losses.parts.instance_weights.InstanceWeights`.
        noise_ratio: k, noise vectors per sentence of the batch: K = round(k B). 0: none; at most 1000.
        noise_steps: t, gradient-ascent steps. 0: random noise; at most 1000.
        noise_norm: "gaussian": as drawn; "unit": normalized to length 1, also after every step (our
            interpretation of the paper's projection Pi). A step has the length beta = 1e-3, which hardly changes the
            direction of a vector of norm about sqrt(D), see "noise_angle".
        temperature: tau.
        include_positive: keep the positive in the denominator, as usual InfoNCE does, with weight 1.
        augmentations: how each of the two views is made, see :class:`~st_extras.losses.pair_loss.PairLoss`.
        options: ``projection``, ``gather_across_devices``, ``mini_batch_size``, ``mini_batch_num_tokens`` and
            ``generator`` (of the noise, too) of :class:`~st_extras.losses.pair_loss.PairLoss`.

    Attributes:
        instruments: 0-dim tensors of the last training step, by name, for the trainer's log. "noise_angle": mean angle
            in degrees by which the ascent turned the noise. "masked_negatives": share of the in-batch negatives with
            weight 0; NaN if the batch has none. With ``masked_share``, "threshold": the estimate of phi; NaN before the
            first step. Without noise and ``include_positive``, "anchors_without_negatives": number of anchors whose
            term was 0 because all their negatives were masked.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence                      | none   |
        +-------------------------------+--------+
        | sentence, its positive        | none   |
        +-------------------------------+--------+

    With two columns, x_i is compared with the positive x_j^+ for the weights.

    Works with: any encoder that has dropout, any guide with a tokenizer of the transformers library; prompts, LoRA,
    MatryoshkaLoss (without ``projection``), dictionaries of losses, several processes.
    Refuses: the trained model itself as its guide; sentences that the table lacks; one column or ``mini_batch_size``
    for an encoder with flattened (unpadded) features or a StaticEmbedding; AdaptiveLayerLoss.

    Differs from the paper: noise always has weight 1 (a Gaussian vector is not a sentence that another encoder could
    compare); no projection Pi by default (cosine ignores the norm); tau_u of the ascent is tau.
    Differs from the authors' code: they apply elementwise binary cross-entropy to the softmax, multiply the logit by
    the weight, mask at > instead of >=, count in-batch terms in L_U, keep dropout in the guide and train
    with a head.
    Paper (BERT base): batch 256, learning rate 3e-5, 3 epochs of a million Wikipedia sentences, [CLS],
    STS-B dev every 150 steps; threshold 0.9, ratio 1, 4 ascent steps. The authors' code: batch 128, max length 32.

    Example:
        >>> from st_extras.losses import DCLRLoss
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import packaged_minilm, raw_encoder
        >>> from st_extras.training import train_encoder
        >>> model = raw_encoder()  # the packaged demo encoder; any SentenceTransformer will do
        >>> loss = DCLRLoss(model, complementary_model=packaged_minilm(), threshold=0.5)
        >>> options = {"max_steps": 1, "show_progress_bar": False}
        >>> train_encoder(model, loss, sample_sentences()[:64], "dclr", **options).steps
        1
    """

    citation = CITATIONS["zhou2022debiased"]

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        complementary_model: SentenceTransformer | str | PathLike[str] | None = None,
        complementary_table: EmbeddingTable | None = None,
        threshold: float | None = None,
        masked_share: float | None = None,
        noise_ratio: float = 1.0,
        noise_steps: int = 4,
        noise_norm: Literal["gaussian", "unit"] = "gaussian",
        temperature: float = 0.05,
        include_positive: bool = False,
        augmentations: Sequence[str] = ("dropout", "dropout"),
        **options: Unpack[PairOptions],
    ) -> None:
        super().__init__(model, augmentations=augmentations, **options)
        self.temperature = check_temperature("temperature", temperature)
        self.include_positive = check_bool("include_positive", include_positive)
        self.noise = NoiseNegatives(
            ratio=noise_ratio,
            steps=noise_steps,
            norm=noise_norm,
            temperature=self.temperature,
            generator=options.get("generator"),
        )
        self.instance_weights = InstanceWeights(
            model,
            complementary_model,
            complementary_table,
            threshold=threshold,
            masked_share=masked_share,
            gather_across_devices=self.gather_across_devices,
        )

    def calculate_loss(
        self, view_batches: ViewBatches, *, with_backward: bool = False, columns: ColumnBatches | None = None
    ) -> Tensor:
        """Return eq. 6.

        Args:
            view_batches: the embeddings of the anchors and of the positives, after the head, in mini-batches of (b, D).
            with_backward: differentiate here, and return a value without a graph.
            columns: the tokenized columns in mini-batches, for the guide.
        """
        is_guided = self.instance_weights.guide is not None
        anchors, positives = self.whole(view_batches, other_signal=is_guided or self.noise.ratio > 0)  # (B, D) each
        noise = unit_rows(self.noise(view_batches[0]))  # (K, D), constants
        gathered, offset = self.gather(positives, other_negatives=len(noise))
        candidates = unit_rows(gathered)  # (world * B, D), anchor i's own positive in row offset + i
        weights_of = self.instance_weights(anchors, candidates, columns) if is_guided else None
        negatives: list[Tensor] = []  # (b,) of each mini-batch: how many in-batch negatives of an anchor have weight 1

        def contrast(batch: Tensor, others: Tensor, begin: int) -> Tensor:
            """Return eq. 6 for a mini-batch of anchors, the first of which is the batch's anchor ``begin``.

            ``others`` are the candidates, detached if gradients are collected here.
            """
            parts = [unit_scores(unit_rows(batch), rows, self.temperature) for rows in (others, noise)]
            scores, weights = torch.cat(parts, dim=1), None  # (b, world * B + K)
            if weights_of is not None:
                weights = weights_of(begin, begin + len(batch))  # alpha, (b, world * B)
                negatives.append(weights.sum(dim=1) - weights.diagonal(offset + begin))
                weights = F.pad(weights, (0, len(noise)), value=1.0)  # (b, world * B + K): noise always has weight 1
            # by default the positive is left out of the denominator: the difference from InfoNCE
            return weighted_info_nce(scores, weights, include_positive=self.include_positive, offset=offset + begin)

        value = self.mean_over_mini_batches(view_batches[0], candidates, contrast, with_backward=with_backward)
        if is_guided and torch.is_grad_enabled():
            self.instance_weights.record(torch.cat(negatives), len(candidates))
        return value

    @property
    def instruments(self) -> dict[str, Tensor]:
        """Measurements of the last training step; NaN before the first."""
        measured = self.noise.instruments | self.instance_weights.instruments
        if "masked_negatives" in measured and not (self.noise.ratio or self.include_positive):
            measured["anchors_without_negatives"] = self.instance_weights.anchors_without_negatives
        return measured

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return self.instance_weights.config | self.noise.config | super().get_config_dict()
