"""DCLR: debiased contrastive learning with instance weights and gradient-refined noise negatives."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.augmentations import Augmenter
from st_extras.complementary import EmbeddingTable, FrozenEncoder
from st_extras.encoders import (
    apply_head,
    check_augmentations,
    embedding_dimension,
    encode_pair,
    gather_rows,
    projection_head,
    unwrap,
)
from st_extras.functional import (
    check_not_negative,
    check_positive,
    cosine_ascent_direction,
    cosine_scores,
    weighted_info_nce,
)
from st_extras.generators import RandomSource
from st_extras.rows import Features, check_columns, merged_pair

logger = logging.getLogger(__name__)


def refine_noise(
    noise: Tensor, anchors: Tensor, *, steps: int, step_size: float, temperature: float, unit_norm: bool
) -> Tensor:
    """Normalised gradient ascent of the noise on the batch mean of L_U (eq. 2-4).

    n_j += step_size * g_j / |g_j|, g_j the gradient of mean_i logsumexp_j(cos(h_i, n_j)/tau_u) (the positive's
    term of L_U does not depend on the noise). A vector whose gradient is zero stays where it is.

    Args:
        noise: (K, D).
        anchors: (B, D), constants here.
        steps: t.
        step_size: beta, the length of each step.
        temperature: tau_u.
        unit_norm: put the noise back onto the unit sphere after each step.

    Returns:
        (K, D), without gradients.
    """
    anchors = anchors.detach()
    for _ in range(steps):
        probabilities = cosine_scores(anchors, noise, temperature).softmax(dim=1)
        noise = noise + step_size * F.normalize(cosine_ascent_direction(noise, anchors, probabilities), dim=-1)
        if unit_norm:
            noise = F.normalize(noise, dim=-1)
    return noise


class DCLRLoss(nn.Module):
    """InfoNCE without false negatives and with noise negatives that seek the gaps of the space (Zhou et al., 2022).

    For the views h_i, h_i^+ of B sentences and K noise vectors n_k, s = cos/tau (eq. 6)::

        loss = mean_i -log( e^{s(h_i,h_i^+)} / ( sum_{j != i} alpha_ij e^{s(h_i,h_j^+)} + sum_k e^{s(h_i,n_k)} ) )
        alpha_ij = 0 where sim_C(x_i, x_j) >= phi, else 1        (eq. 5; C a frozen complementary encoder)
        n_k ~ N(0, sigma^2), then t steps of n_k += beta g_k/|g_k|, g the gradient of -log softmax (eq. 2-4)

    As in the paper the positive is not in the denominator, so the loss can be negative.

    Args:
        model: the SentenceTransformer to train.
        complementary_model: C: a SentenceTransformer, its path or hub id (the paper: a SimCSE checkpoint), or
            "self" for the detached scores of the trained model (the paper's self-weighting). It is frozen, in eval
            mode; with another tokenizer it gets the decoded texts. None: no weighting.
        complementary_table: an :class:`~st_extras.complementary.EmbeddingTable` of C's embeddings of the training
            sentences, so that no step pays C's forward pass. Instead of ``complementary_model``.
        threshold: phi, in (-1, 1]: pairs at least this similar are no negatives.
        noise_ratio: k: noise vectors per sentence of the batch, K = round(k B). 0: none.
        noise_std: sigma of the Gaussian.
        noise_steps: t, gradient-ascent steps. 0: random noise.
        noise_step_size: beta, length of a step. At the paper's settings (vectors of norm about sqrt(D), steps of
            1e-3) the direction hardly changes: see ``noise_angle``.
        noise_norm: "gaussian": as drawn; "unit": on the unit sphere, also after every step, where a step of 0.1
            or 1 really turns a vector (our reading of the paper's projection Pi).
        temperature: tau.
        noise_temperature: tau_u of the ascent. None: ``temperature``.
        include_positive: keep the positive in the denominator, the usual InfoNCE.
        augmentations: how each of the two views is made. "dropout": the encoder's own dropout, on in the whole
            pass; "none"; "shuffle": positions permuted; "token_cutoff", "span_cutoff", "feature_cutoff": input
            embeddings zeroed (see :class:`~st_extras.losses.ConSERTLoss`).
        cutoff_rate: share of the tokens or features that a cutoff zeroes.
        projection: train with a head Linear(D, D) + tanh that belongs to the loss and is dropped at evaluation.
        gather_across_devices: use the sentences of all processes as negatives.
        generator: the noise's own torch.Generator, on the model's device. None: one is made from torch's seed.

    Attributes (0-dim tensors, of the last training step):
        noise_angle: mean angle in degrees by which the ascent turned the noise.
        masked_negatives: share of the in-batch negatives with weight 0; nan where a batch has none.
        anchors_without_negatives: anchors that contributed 0, every negative being masked
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

    Differs from the authors' code: it applies elementwise binary cross-entropy to the softmax, multiplies the
    logit by the weight, masks at > instead of >=, counts in-batch terms in L_U, leaves dropout on in the
    complementary model and trains with a head. Differs from the paper: noise always weighs 1 (a Gaussian vector
    is no sentence that another encoder could compare), and no projection Pi by default (cosine ignores the norm).

    Paper (BERT base): batch 256, learning rate 3e-5, 3 epochs of a million Wikipedia sentences, [CLS], STS-B dev
    every 150 steps; threshold 0.9, ratio 1, 4 ascent steps. Script: batch 128, max length 32.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from st_extras.losses import DCLRLoss
        >>> model = SentenceTransformer("bert-base-uncased")  # doctest: +SKIP
        >>> data = Dataset.from_dict({"sentence": ["A plane is taking off.", "A man plays a flute."]})
        >>> loss = DCLRLoss(model, complementary_model="my-simcse-checkpoint")  # doctest: +SKIP
        >>> SentenceTransformerTrainer(model, train_dataset=data, loss=loss).train()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        complementary_model: SentenceTransformer | str | PathLike[str] | None = None,
        complementary_table: EmbeddingTable | None = None,
        threshold: float = 0.9,
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
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        if not -1 < threshold <= 1:
            raise ValueError(f"threshold must be in (-1, 1], got {threshold!r}.")
        if noise_steps < 0 or int(noise_steps) != noise_steps:
            raise ValueError(f"noise_steps must be an integer >= 0, got {noise_steps!r}.")
        if noise_norm not in ("gaussian", "unit"):
            raise ValueError(f'noise_norm must be "gaussian" or "unit", got {noise_norm!r}.')
        if complementary_model is not None and complementary_table is not None:
            raise ValueError("Give complementary_model or complementary_table, not both.")
        self.threshold = threshold
        self.noise_ratio = check_not_negative("noise_ratio", noise_ratio)
        self.noise_std = check_positive("noise_std", noise_std)
        self.noise_steps = noise_steps
        self.noise_step_size = check_not_negative("noise_step_size", noise_step_size)
        self.noise_norm = noise_norm
        self.temperature = check_positive("temperature", temperature)
        self.noise_temperature = check_positive(
            "noise_temperature", temperature if noise_temperature is None else noise_temperature
        )
        self.include_positive = include_positive
        self.augmentations = check_augmentations(augmentations)
        self.augment = Augmenter(model, self.augmentations, cutoff_rate=cutoff_rate)
        self.projection_head = projection_head(embedding_dimension(model)) if projection else None
        self.gather_across_devices = gather_across_devices
        self.noise_source = RandomSource(generator)
        self.complementary: FrozenEncoder | EmbeddingTable | Literal["self"] | None = complementary_table
        if complementary_model == "self":
            self.complementary = "self"
        elif complementary_model is not None:
            self.complementary = FrozenEncoder(cast("SentenceTransformer | str", complementary_model), model)
        elif complementary_table is None:
            logger.info("DCLRLoss without a complementary model: no negatives are masked.")
        self.noise_angle = self.masked_negatives = torch.tensor(torch.nan)
        self.anchors_without_negatives = torch.tensor(0)

    @property
    def dropout(self) -> bool:
        """Whether the encoder's pass runs with its dropout, for a loss that wraps this one."""
        return "dropout" in self.augmentations

    def views(self, sentence_features: Sequence[Features]) -> tuple[Features, int]:
        """The rows that the encoder must see, for a loss that wraps this one: (2B rows, 2)."""
        rows = merged_pair(check_columns(sentence_features, "DCLRLoss"), self.augmentations)
        return self.augment(self.model, rows, self.augmentations), 2

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch; ``labels`` are not used."""
        columns = check_columns(sentence_features, "DCLRLoss")
        embeddings = encode_pair(self.model, columns, self.augmentations, self.augment)
        return self.compute_loss_from_embeddings(embeddings, labels, sentence_features=columns)

    def compute_loss_from_embeddings(
        self,
        embeddings: Sequence[Tensor],
        labels: Tensor | None = None,
        *,
        sentence_features: Sequence[Features] | None = None,
    ) -> Tensor:
        """Eq. 6 on [anchors, positives], each (B, D), before the projection head.

        ``sentence_features``, the untouched columns, are needed by a complementary model or table alone.
        """
        anchors, positives = apply_head(self.projection_head, embeddings)
        candidates, offset = gather_rows(positives, self.gather_across_devices)
        scores = cosine_scores(anchors, candidates, self.temperature)  # (B, world * B)
        weights = self._negative_weights(scores, sentence_features, offset)
        noise = self._noise(anchors)  # (K, D)
        if len(noise):
            scores = torch.cat([scores, cosine_scores(anchors, noise, self.temperature)], dim=1)
            if weights is not None:
                weights = F.pad(weights, (0, len(noise)), value=1.0)
        return weighted_info_nce(scores, weights, include_positive=self.include_positive, offset=offset)

    def _negative_weights(
        self, scores: Tensor, sentence_features: Sequence[Features] | None, offset: int
    ) -> Tensor | None:
        """alpha, (B, world * B) of 0 and 1; None without a complementary model."""
        if self.complementary is None:
            return None
        if self.complementary == "self":
            similarities = scores.detach() * self.temperature
        elif sentence_features is None:
            raise ValueError("sentence_features is None: the complementary model needs the tokenized columns.")
        else:
            embeddings = [self._complementary_embeddings(column) for column in sentence_features]
            candidates, _ = gather_rows(embeddings[-1], self.gather_across_devices)
            similarities = cosine_scores(embeddings[0], candidates)
        weights = (similarities < self.threshold).to(scores.dtype)
        if torch.is_grad_enabled():
            own = weights.diagonal(offset=offset)
            negatives = weights.sum(dim=1) - own
            self.masked_negatives = 1 - negatives.mean() / (weights.size(1) - 1 or torch.nan)
            if self._noise_count(scores) == 0 and not self.include_positive:
                self.anchors_without_negatives = (negatives == 0).sum()
        return weights

    def _complementary_embeddings(self, features: Features) -> Tensor:
        if isinstance(self.complementary, EmbeddingTable):
            return cast(Tensor, self.complementary(features, unwrap(self.model).tokenizer.decode))
        return cast(Tensor, cast(FrozenEncoder, self.complementary)(features))

    def _noise_count(self, rows: Tensor) -> int:
        """K for a batch of as many sentences as ``rows``."""
        return round(self.noise_ratio * rows.size(0))

    def _noise(self, anchors: Tensor) -> Tensor:
        """K = round(noise_ratio * B) refined noise negatives, (K, D), constants."""
        count = self._noise_count(anchors)
        dtype = torch.promote_types(anchors.dtype, torch.float32)
        if count == 0:
            return anchors.new_empty(0, anchors.size(1), dtype=dtype)
        generator = self.noise_source.on(anchors.device)
        start = torch.randn(count, anchors.size(1), generator=generator, device=anchors.device, dtype=dtype)
        start = F.normalize(start, dim=-1) if self.noise_norm == "unit" else start * self.noise_std
        with torch.no_grad():
            noise = refine_noise(
                start,
                anchors,
                steps=self.noise_steps,
                step_size=self.noise_step_size,
                temperature=self.noise_temperature,
                unit_norm=self.noise_norm == "unit",
            )
            chord = (F.normalize(start, dim=-1) - F.normalize(noise, dim=-1)).norm(dim=-1)
        if torch.is_grad_enabled():
            self.noise_angle = torch.rad2deg(2 * torch.asin((chord / 2).clamp(max=1))).mean()
        return noise

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {
            "complementary": type(self.complementary).__name__
            if isinstance(self.complementary, nn.Module)
            else self.complementary,
            "threshold": self.threshold,
            "noise_ratio": self.noise_ratio,
            "noise_std": self.noise_std,
            "noise_steps": self.noise_steps,
            "noise_step_size": self.noise_step_size,
            "noise_norm": self.noise_norm,
            "temperature": self.temperature,
            "noise_temperature": self.noise_temperature,
            "include_positive": self.include_positive,
            "augmentations": list(self.augmentations),
            "cutoff_rate": self.augment.cutoff_rate,
            "projection": self.projection_head is not None,
            "gather_across_devices": self.gather_across_devices,
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
