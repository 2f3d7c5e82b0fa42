"""SLT-FAI's incomplete sentence filtering: sentence embeddings that show when rare tokens are missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.discriminator import SLT_FAI_CITATION, Discriminator
from st_extras.encoders import content_mask, embedding_dimension, encode, token_embedding_dimension, unwrap
from st_extras.functional import check_fraction, full_precision
from st_extras.generators import RandomSource
from st_extras.rows import Features, merged_pair, stack_rows
from st_extras.text.frequency import FrequencyTable


def incomplete_cross_entropy(original: Tensor, incomplete: Tensor, kept: Tensor) -> Tensor:
    """Eq. 6: CE(incomplete, 1) + CE(original, 0), the mean over the sentences kept.

    Args:
        original: (B, 2) logits of the information discriminator for the sentences.
        incomplete: (B, 2) logits for their incomplete versions.
        kept: (B,) bool: something was masked.

    Returns:
        (), 0 where no sentence is kept.
    """
    zeros = torch.zeros(len(kept), dtype=torch.long, device=kept.device)
    losses = F.cross_entropy(full_precision(incomplete), zeros + 1, reduction="none")
    losses = losses + F.cross_entropy(full_precision(original), zeros, reduction="none")  # (B,)
    return losses.masked_fill(~kept, 0.0).sum() / kept.sum().clamp(min=1)


def draw_masked(
    maskable: Tensor, mask_ratio: float, generator: torch.Generator, *, always_mask_one: bool = False
) -> Tensor:
    """Which of the maskable tokens to mask, each with probability ``mask_ratio``. (B, L) bool, as ``maskable``."""
    draws = torch.rand(maskable.T.shape, generator=generator, device=maskable.device).T  # padding changes no draw
    masked = maskable & (draws < mask_ratio)
    if always_mask_one:
        draws = draws.masked_fill(~maskable, 2.0)
        lowest = torch.zeros_like(maskable).scatter(1, draws.argmin(dim=1, keepdim=True), True)
        masked = masked | (lowest & maskable)  # where any is masked, so is the lowest draw
    return masked


class IncompleteSentenceFilteringLoss(nn.Module):
    """Tell a sentence from its copy without some low-frequency tokens (SLT-FAI, Wang et al., 2023).

    For the embedding h_i of a sentence and that of its incomplete version, ^h_i (eq. 6 and 7)::

        L_ISF = 1/N sum_i CE( G(^h_i), 1 ) + CE( G(h_i), 0 )

    which the encoder and the information discriminator G both descend. The incomplete version has each of its
    low-frequency tokens replaced by [MASK] with probability ``mask_ratio``. A sentence in which nothing was
    masked does not count: calling it incomplete would teach noise.

    Args:
        model: the SentenceTransformer to train; its tokenizer must have a mask token.
        frequency_table: the token counts of the encoder's pre-training corpus, counted with its tokenizer.
        low_frequency_ratio: lambda, in (0, 1): share of the vocabulary types seen that counts as low-frequency.
        mask_ratio: epsilon, in (0, 1): probability to mask a low-frequency token.
        always_mask_one: mask one token of a sentence that has low-frequency tokens and drew none, so that more
            sentences count. The effective rate is then higher than ``mask_ratio``, 1 for a single such token.
        generator: the masking's own torch.Generator, on the model's device. None: made from torch's seed.

    Attributes:
        discriminator: G; ``discriminator.accuracy`` is a running figure (0-dim tensor).
        left_out: sentences of the last training batch that did not count (0-dim tensor).

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence, any number of times | none   |
        +-------------------------------+--------+

    Differs from the authors' code, which masks HIGH-frequency tokens, with probability 0.5, counts every
    sentence, and whose discriminator has no hidden ReLU but one on its logits: the paper's text and equations win.

    Paper: lambda 0.5, epsilon 0.2.

    Example:
        >>> from st_extras.losses import IncompleteSentenceFilteringLoss
        >>> from st_extras.text.frequency import FrequencyTable
        >>> table = FrequencyTable.from_file("bookcorpus.tsv", model.tokenizer)  # doctest: +SKIP
        >>> loss = IncompleteSentenceFilteringLoss(model, frequency_table=table)  # doctest: +SKIP
    """

    low_frequency: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        frequency_table: FrequencyTable,
        low_frequency_ratio: float = 0.5,
        mask_ratio: float = 0.2,
        always_mask_one: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        token_embedding_dimension(model)
        frequency_table.check_tokenizer(model.tokenizer)
        if unwrap(model).tokenizer.mask_token_id is None:
            raise ValueError(
                "model's tokenizer has no mask token, with which incomplete sentences are made: use an encoder "
                "pre-trained by masked language modelling, or incomplete_weight=0 in SLTFAILoss."
            )
        self.low_frequency_ratio = low_frequency_ratio
        self.mask_ratio = check_fraction("mask_ratio", mask_ratio)
        self.always_mask_one = always_mask_one
        self.discriminator = Discriminator(embedding_dimension(model))
        self.mask_source = RandomSource(generator, salt=2)
        low_frequency = frequency_table.labels(low_frequency_ratio).bool()
        self.register_buffer("low_frequency", low_frequency, persistent=False)  # (V,)
        self.left_out = torch.tensor(0)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch; ``labels`` are not used."""
        rows = merged_pair(list(sentence_features), ("dropout",))
        incomplete, kept = self.incomplete(rows)
        encoded = encode(self.model, stack_rows([rows, incomplete]))
        return self.compute_loss_from_embeddings(encoded.sentence.chunk(2), kept=kept)

    def incomplete(self, features: Features) -> tuple[Features, Tensor]:
        """The incomplete copies of a column's B sentences, and which of them (B,) really are incomplete."""
        mask_id = unwrap(self.model).tokenizer.mask_token_id
        ids = features["input_ids"]
        maskable = self.low_frequency[ids] & content_mask(self.model, features) & (ids != mask_id)
        generator = self.mask_source.on(ids.device)
        masked = draw_masked(maskable, self.mask_ratio, generator, always_mask_one=self.always_mask_one)
        return {**features, "input_ids": ids.masked_fill(masked, mask_id)}, masked.any(dim=1)

    def compute_loss_from_embeddings(
        self, embeddings: tuple[Tensor, ...] | list[Tensor], labels: Tensor | None = None, *, kept: Tensor
    ) -> Tensor:
        """Eq. 6 on [originals, incompletes], each (B, D); ``kept`` (B,) bool says which sentences count."""
        logits = self.discriminator(torch.cat(list(embeddings)))  # (2B, 2)
        answers = torch.arange(2, device=kept.device).repeat_interleave(len(kept))
        self.discriminator.observe(logits, answers, kept.repeat(2))
        if torch.is_grad_enabled():
            self.left_out = (~kept).sum()
        original, incomplete = logits.chunk(2)
        return incomplete_cross_entropy(original, incomplete, kept)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {
            "low_frequency_ratio": self.low_frequency_ratio,
            "mask_ratio": self.mask_ratio,
            "always_mask_one": self.always_mask_one,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the paper."""
        return SLT_FAI_CITATION
