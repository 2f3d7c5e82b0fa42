"""SLT-FAI as its authors' code computes it, where that differs from the paper: to know what their numbers measured.

See https://github.com/wangbing1416/SLT-FAI. Only benchmarks use it; ``st_extras.losses.SLTFAILoss`` follows the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.encoders.forward import encode_tokens
from st_extras.encoders.rows import Features, count_rows
from st_extras.encoders.structure import unwrap
from st_extras.functional import reverse_gradient
from st_extras.losses.frequency_adversarial import label_shares, labels_entropy
from st_extras.losses.incomplete_sentence import incomplete_cross_entropy
from st_extras.losses.parts.discriminator import Discriminator
from st_extras.losses.parts.wrapping import base_mode, base_value, base_views
from st_extras.text.frequency import FrequencyTable


def authors_discriminator(dimension: int) -> Discriminator:
    """Return a discriminator without a hidden activation, whose logits end in a ReLU."""
    discriminator = Discriminator(dimension)
    discriminator.layers = nn.Sequential(nn.Linear(dimension, dimension), nn.Linear(dimension, 2), nn.ReLU())
    return discriminator


class AuthorsSLTFAILoss(nn.Module):
    """SLT-FAI with every token in AT, and frequent ones masked in ISF.

    * AT is the mean over all places, padding and special tokens among them. Neither occurs in a corpus, so they are
      labelled rare.
    * ISF masks each FREQUENT token with probability 0.5, counts every sentence, and encodes the masked one without
      the base's augmentation.
    * The discriminators are linear but for a ReLU on their logits.

    Give the encoder no length buckets: padding counts.

    Args:
        model: the SentenceTransformer to train.
        frequency_table: token counts, made with its tokenizer.
        base_loss: a loss with ``compute_loss_from_embeddings``.
        warmup_steps: number of training forward passes in which only the base acts.
        low_frequency_ratio: lambda.
        mask_ratio: probability to mask a frequent token.
    """

    steps: Tensor
    low_frequency: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        frequency_table: FrequencyTable,
        base_loss: nn.Module,
        warmup_steps: int = 0,
        low_frequency_ratio: float = 0.5,
        mask_ratio: float = 0.5,
    ) -> None:
        super().__init__()
        self.model, self.base_loss = model, base_loss
        self.warmup_steps, self.mask_ratio = warmup_steps, mask_ratio
        dimension = int(model.get_embedding_dimension() or 0)
        self.token_discriminator = authors_discriminator(dimension)
        self.sentence_discriminator = authors_discriminator(dimension)
        self.register_buffer("low_frequency", frequency_table.labels(low_frequency_ratio), persistent=False)  # (V,)
        self.register_buffer("steps", torch.tensor(0))
        self.instruments: dict[str, Tensor] = {}

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return the terms of a batch; ``labels`` go to the base loss."""
        columns = list(sentence_features)
        warming = int(self.steps) < self.warmup_steps
        self.steps += torch.is_grad_enabled()
        rows, count = base_views(self.base_loss, columns)
        size = count_rows(rows) // count
        with base_mode(self.base_loss, self.model):
            views = encode_tokens(self.model, rows)
            masked = None if warming else encode_tokens(self.model, self.masked(columns[0])).sentence
        embeddings = views.sentence.chunk(count)
        terms: dict[str, Any] = {"base": sum(base_value(self.base_loss, embeddings, labels, columns).values())}
        if masked is not None:
            original = self.sentence_discriminator(views.sentence[:size])
            every = torch.ones(size, dtype=torch.bool, device=masked.device)
            terms["incomplete"] = incomplete_cross_entropy(original, self.sentence_discriminator(masked), every)
            terms["adversarial"] = self.adversarial(views.tokens, views.input_ids)
        return terms

    def masked(self, features: Features) -> Features:
        """Return a column whose frequent tokens are masked with probability ``mask_ratio``."""
        ids = features["input_ids"]
        drawn = (self.low_frequency[ids] == 0) & (torch.rand(ids.shape, device=ids.device) < self.mask_ratio)
        return {**features, "input_ids": ids.masked_fill(drawn, unwrap(self.model).tokenizer.mask_token_id)}

    def adversarial(self, tokens: Tensor, input_ids: Tensor) -> Tensor:
        """Return the cross-entropy of token embeddings (R, L, D) with the labels of their ids (R, L), of all places."""
        labels = self.low_frequency[input_ids]
        every = torch.ones_like(labels).bool()
        logits = self.token_discriminator(reverse_gradient(tokens))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        if torch.is_grad_enabled():
            self.token_discriminator.observe(logits, labels, every)
            self.instruments = {
                "discriminator_accuracy": self.token_discriminator.accuracy,
                "balanced_accuracy": self.token_discriminator.balanced_accuracy,
                "adversarial_loss": loss.detach(),
                "labels_entropy": labels_entropy(label_shares(labels, every)),
            }
        return loss
