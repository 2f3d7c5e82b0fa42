"""DCLR: debiased contrastive learning with instance weights and gradient-refined noise negatives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from os import PathLike
from typing import Any, Literal

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_bool, check_temperature
from st_extras.encoders.distributed import gather_rows
from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.heads import apply_head, projection_head
from st_extras.encoders.rows import Features, check_columns
from st_extras.encoders.structure import embedding_dimension
from st_extras.functional import cosine_scores, unit_rows, unit_scores, weighted_info_nce
from st_extras.losses.parts.dropout_views import warn_if_same_views
from st_extras.losses.parts.gradient_cache import (
    GradientCache,
    check_head_size,
    check_mini_batch_size,
    mean_over_mini_batches,
)
from st_extras.losses.parts.guide import Similarities, describe_similarities
from st_extras.losses.parts.instance_weights import InstanceWeights, count_negatives
from st_extras.losses.parts.negatives import warn_without_negatives
from st_extras.losses.parts.noise import NoiseNegatives
from st_extras.losses.parts.views import TwoViews
from st_extras.losses.parts.wrapping import is_repeated


class DCLRLoss(nn.Module):
    """Contrast two views of a sentence without false negatives, and with noise that seeks the gaps of the space.

    A frozen guide encoder decides which sentences of the batch are too similar to be negatives (instance weights);
    noise vectors, moved towards the anchors, are further negatives and even out the space. Use it where similar
    sentences meet in a batch and a guide can tell. Without a guide (the default) no negative is left out, and a
    warning says so.

    Paper: DCLR, Zhou et al., 2022, https://aclanthology.org/2022.acl-long.423.
    Code: https://github.com/RUCAIBox/DCLR.

    For the views h_i, h_i^+ of B sentences and K noise vectors n_k, s = cos/tau (eq. 6)::

        loss = mean_i -log( e^{s(h_i,h_i^+)} / ( sum_{j != i} alpha_ij e^{s(h_i,h_j^+)} + sum_k e^{s(h_i,n_k)} ) )
        alpha_ij = 0 if sim_C(x_i, x_j) >= phi, else 1           (eq. 5; C the guide, a frozen complementary model)
        n_k ~ N(0, sigma^2), then t steps of n_k += beta g_k/|g_k|, g the gradient of -log softmax (eq. 2-4)

    As in the paper, the positive is not in the denominator, so the loss can be negative. With ``noise_ratio=0`` and
    without a guide, that is all that is left: SimCSE without the positive in the denominator, which is decoupled
    contrast (Yeh et al., 2022, https://arxiv.org/abs/2110.06848).

    Args:
        model: the SentenceTransformer to train.
        complementary_model: C, the guide: a SentenceTransformer, its path or hub id (the paper: a SimCSE checkpoint);
            "start" for a frozen copy of the model as it is when the loss is made (to resume, make the loss from the
            same start); or "self" for the trained model's own detached scores (the paper's self-weighting). It is
            frozen and in evaluation mode, and sees each sentence as it would see it alone (own prompt, padding side
            and special tokens); a guide with another tokenizer gets the decoded texts. None: no weighting.
        complementary_table: an :class:`~st_extras.encoders.EmbeddingTable` of C's embeddings of the training
            sentences, so that no step pays C's forward pass. In place of ``complementary_model``.
        threshold: phi, in (-1, 1]: pairs at least this similar are not used as negatives. None: 0.9, as in the paper,
            unless ``masked_share`` is given.
        masked_share: in place of ``threshold``, the share of the negatives to leave out, in (0, 1): phi is the mean,
            over the training batches so far, of the cosine that this share of a batch's pairs i != j reach. A share
            carries over from one text or guide to another; a threshold does not. It is met in batches of 16 or more
            of a shuffled text; smaller ones leave out more, and those of fewer than three sentences do not count. If
            all sentences are alike, all are left out.
        noise_ratio: k, noise vectors per sentence of the batch: K = round(k B). 0: none; at most 1000.
        noise_std: sigma of the Gaussian.
        noise_steps: t, gradient-ascent steps. 0: random noise; at most 1000.
        noise_step_size: beta, the length of a step. At the paper's settings (vectors of norm about sqrt(D), steps of
            1e-3) the direction hardly changes: see ``noise_angle``.
        noise_norm: "gaussian": as drawn; "unit": on the unit sphere, also after every step, where a step of 0.1 or 1
            turns a vector visibly (our reading of the paper's projection Pi). Then ``noise_std`` must stay 1.
        temperature: tau.
        noise_temperature: tau_u of the ascent. None: ``temperature``.
        include_positive: keep the positive in the denominator, as usual InfoNCE does.
        augmentations: how each of the two views is made: "dropout", "none", "shuffle", "token_cutoff", "span_cutoff"
            or "feature_cutoff", explained in :class:`~st_extras.losses.parts.views.TwoViews`.
        cutoff_rate: share of the tokens or features that a cutoff zeroes, in (0, 1).
        projection: train with a head, Linear(D, D) + tanh, that belongs to the loss and is dropped at evaluation.
        gather_across_devices: use the sentences of all processes as negatives.
        mini_batch_size: number of sentences that the encoder sees at a time (gradient caching). Memory no longer grows
            with the batch's activations, and a step takes about 4/3 of the time. None: the whole batch at once.
        generator: torch.Generator of the noise, on the model's device. None: one is made from torch's seed.

    Attributes (0-dim tensors, of the last training step):
        noise_angle: mean angle in degrees by which the ascent turned the noise.
        masked_negatives: share of the in-batch negatives with weight 0; NaN if the batch has none.
        threshold: phi, given or, with ``masked_share``, found so far; NaN before the first step.
        instruments: ``noise_angle`` and ``masked_negatives``, and ``threshold`` with ``masked_share``, for the
            trainer's log.
        anchors_without_negatives: number of anchors that contributed 0 because every negative was masked
            (possible only without noise, as with noise_ratio=0).

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
    Refuses: the trained model itself as its guide, sentences that the table lacks; flattened (unpadded) features and
    StaticEmbedding with one column or ``mini_batch_size``; AdaptiveLayerLoss together with ``mini_batch_size``.

    Differs from the paper: noise always has weight 1 (a Gaussian vector is not a sentence that another encoder could
    compare); no projection Pi by default (cosine ignores the norm).
    Differs from the authors' code: they apply elementwise binary cross-entropy to the softmax, multiply the logit by
    the weight, mask at > instead of >=, count in-batch terms in L_U, keep dropout in the complementary model and train
    with a head.
    Paper (BERT base): batch 256, learning rate 3e-5, 3 epochs of a million Wikipedia sentences, [CLS],
    STS-B dev every 150 steps; threshold 0.9, ratio 1, 4 ascent steps. Script: batch 128, max length 32.

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

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        complementary_model: SentenceTransformer | str | PathLike[str] | None = None,
        complementary_table: EmbeddingTable | None = None,
        threshold: float | None = None,
        masked_share: float | None = None,
        noise_ratio: float = 1.0,
        noise_std: float = 1.0,
        noise_steps: int = 4,
        noise_step_size: float = 1e-3,
        noise_norm: Literal["gaussian", "unit"] = "gaussian",
        temperature: float = 0.05,
        noise_temperature: float | None = None,
        include_positive: bool = False,
        augmentations: Sequence[str] = ("dropout", "dropout"),
        cutoff_rate: float = 0.2,
        projection: bool = False,
        gather_across_devices: bool = False,
        mini_batch_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = check_temperature("temperature", temperature)
        self.noise = NoiseNegatives(
            noise_ratio=noise_ratio,
            noise_std=noise_std,
            noise_steps=noise_steps,
            noise_step_size=noise_step_size,
            noise_norm=noise_norm,
            noise_temperature=temperature if noise_temperature is None else noise_temperature,
            generator=generator,
        )
        self.include_positive = check_bool("include_positive", include_positive)
        self.two_views = TwoViews(model, augmentations, cutoff_rate=cutoff_rate)
        self.dropout = self.two_views.dropout
        self.projection_head = (
            projection_head(embedding_dimension(model)) if check_bool("projection", projection) else None
        )
        self.gather_across_devices = check_bool("gather_across_devices", gather_across_devices)
        self.mini_batch_size = check_mini_batch_size(model, mini_batch_size)
        self.uses_gradient_cache = self.mini_batch_size is not None
        self.instance_weights = InstanceWeights(
            model,
            complementary_model,
            complementary_table,
            threshold=threshold,
            masked_share=masked_share,
            gather_across_devices=self.gather_across_devices,
        )

    def views(self, sentence_features: Sequence[Features]) -> tuple[Features, int]:
        """Return the rows that the encoder must see, for a loss that wraps this one: (2B rows, 2)."""
        return self.two_views.rows(self.model, check_columns(sentence_features, "DCLRLoss")), 2

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        columns = check_columns(sentence_features, "DCLRLoss")
        if self.uses_gradient_cache:
            cache = GradientCache(self, columns, two_views=self.two_views, head=self.projection_head)
            return cache.value(sentence_features=columns, runs=count())
        embeddings = self.two_views.encode(self.model, columns)
        return self.compute_loss_from_embeddings(embeddings, sentence_features=columns)

    def compute_loss_from_embeddings(
        self,
        embeddings: Sequence[Tensor],
        labels: Tensor | None = None,
        *,
        sentence_features: Sequence[Features] | None = None,
    ) -> Tensor:
        """Return eq. 6 on [anchors, positives], each (B, D), before the projection head.

        ``sentence_features``, the untouched columns, are needed only for a complementary model or table.
        """
        if self.dropout:
            warn_if_same_views(self, *embeddings)
        anchors, positives = apply_head(self.projection_head, embeddings)
        candidates, offset = gather_rows(positives, self.gather_across_devices)
        scores = cosine_scores(anchors, candidates, self.temperature)  # (B, world * B)
        cosines, first = scores.detach() * self.temperature, not is_repeated(self.model)
        weights = self.instance_weights.of_batch(cosines, sentence_features, first=first)
        noise: Tensor = self.noise(anchors)  # (K, D)
        warn_without_negatives(self, len(candidates) - 1 + len(noise))
        if weights is not None and torch.is_grad_enabled():
            self._measure(count_negatives(weights, offset), len(candidates), len(noise))
        return self._contrast(anchors, scores, weights, unit_rows(noise), offset)

    def calculate_loss(
        self,
        reps: list[list[Tensor]],
        labels: Tensor | None = None,
        *,
        with_backward: bool = False,
        sentence_features: Sequence[Features] | None = None,
        runs: Iterator[int] | None = None,
    ) -> Tensor:
        """Return eq. 6 on both views' mini-batches, (b, D) each, after the head: see ``mini_batch_size``.

        ``runs`` counts the runs on a batch, of which MatryoshkaLoss makes one for each dimension.
        """
        check_head_size(self.projection_head, reps[0][0])
        anchors, positives = (torch.cat(batches) for batches in reps)
        if self.dropout:
            warn_if_same_views(self, anchors, positives)
        candidates, offset = gather_rows(positives, self.gather_across_devices)
        size = len(reps[0][0])
        noise: Tensor = self.noise(anchors, size)
        warn_without_negatives(self, len(candidates) - 1 + len(noise))
        shared = [unit_rows(candidates), unit_rows(noise)]
        weigh = self.instance_weights.of_rows(
            anchors, shared[0], sentence_features, size, first=runs is None or next(runs) == 0
        )
        negatives: list[Tensor] = []

        def contrast(batch: Tensor, shared: Sequence[Tensor], begin: int) -> Tensor:
            scores, weights = unit_scores(unit_rows(batch), shared[0], self.temperature), None
            if weigh is not None:
                weights = weigh(scores.detach() * self.temperature, begin)
                negatives.append(count_negatives(weights, offset + begin))
            return self._contrast(batch, scores, weights, shared[1], offset + begin)

        value = mean_over_mini_batches(reps[0], shared, contrast, with_backward=with_backward)
        if negatives and torch.is_grad_enabled():
            self._measure(torch.cat(negatives), len(candidates), len(noise))
        return value

    def _contrast(self, anchors: Tensor, scores: Tensor, weights: Tensor | None, noise: Tensor, offset: int) -> Tensor:
        """Return eq. 6 of some anchors, with the noise, at length 1, as negatives of weight 1."""
        if len(noise):
            scores = torch.cat([scores, unit_scores(unit_rows(anchors), noise, self.temperature)], dim=1)
            if weights is not None:
                weights = F.pad(weights, (0, len(noise)), value=1.0)
        # by default the positive is left out of the denominator: the difference from InfoNCE
        return weighted_info_nce(scores, weights, include_positive=self.include_positive, offset=offset)

    def _measure(self, negatives: Tensor, candidates: int, noise: int) -> None:
        self.instance_weights.measure(negatives, candidates, others=noise > 0 or self.include_positive)

    @property
    def similarities(self) -> Similarities | None:
        """The guide's, which ``complementary_model`` or ``complementary_table`` gives."""
        return self.instance_weights.similarities

    @property
    def threshold(self) -> float | Tensor:
        """phi: the number given, or a 0-dim tensor, that of ``masked_share`` so far; NaN before the first step."""
        return self.instance_weights.threshold.value

    @property
    def masked_negatives(self) -> Tensor:
        """Share of the in-batch negatives with weight 0 in the last training step (0-dim)."""
        return self.instance_weights.masked_negatives

    @property
    def anchors_without_negatives(self) -> Tensor:
        """Number of anchors that contributed 0 to the last training step (0-dim)."""
        return self.instance_weights.anchors_without_negatives

    @property
    def noise_angle(self) -> Tensor:
        """Mean angle in degrees by which the ascent turned the noise of the last training step (0-dim)."""
        return self.noise.angle

    @property
    def instruments(self) -> dict[str, Tensor]:
        """The angle of the noise, phi if it is found, and the share of masked negatives; NaN before the first step."""
        found = {"noise_angle": self.noise_angle} if self.noise.ratio else {}
        found |= {"threshold": self.threshold} if isinstance(self.threshold, Tensor) else {}
        return found if self.similarities is None else found | {"masked_negatives": self.masked_negatives}

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {
            "complementary": describe_similarities(self.similarities),
            **self.instance_weights.threshold.config,
            **self.noise.config,
            "temperature": self.temperature,
            "include_positive": self.include_positive,
            **self.two_views.config,
            "projection": self.projection_head is not None,
            "gather_across_devices": self.gather_across_devices,
            "mini_batch_size": self.mini_batch_size,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the paper."""
        return """
@inproceedings{zhou2022debiased,
    title = "Debiased Contrastive Learning of Unsupervised Sentence Representations",
    author = "Zhou, Kun and Zhang, Beichen and Zhao, Wayne Xin and Wen, Ji-Rong",
    booktitle = "Proceedings of the 60th Annual Meeting of the Association for Computational Linguistics",
    year = "2022",
    url = "https://aclanthology.org/2022.acl-long.423",
}
"""
