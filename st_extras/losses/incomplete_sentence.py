"""SLT-FAI's incomplete sentence filtering (ISF): sentence embeddings that show when rare tokens are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_fraction
from st_extras.citations import CITATIONS
from st_extras.encoders import structure
from st_extras.encoders.forward import encode_tokens
from st_extras.encoders.rows import Features, content_mask, stack_columns, stack_rows
from st_extras.functional import full_precision
from st_extras.losses.parts.discriminator import Discriminator, check_frequency_table
from st_extras.losses.parts.wrapping import refuse_matryoshka
from st_extras.random_source import RandomSource
from st_extras.text.frequency import FrequencyTable


def incomplete_cross_entropy(original: Tensor, incomplete: Tensor, kept: Tensor) -> Tensor:
    """Compute eq. 6: CE(incomplete, 1) + CE(original, 0), the mean over the sentences kept.

    Args:
        original: (B, 2) logits of the information discriminator for the sentences.
        incomplete: (B, 2) logits for their incomplete versions.
        kept: (B,) bool, the sentences in which something was masked.

    Returns:
        (); 0 if no sentence is kept.
    """
    zeros = torch.zeros(len(kept), dtype=torch.long, device=kept.device)
    losses = F.cross_entropy(full_precision(incomplete), zeros + 1, reduction="none")
    losses = losses + F.cross_entropy(full_precision(original), zeros, reduction="none")  # (B,)
    return losses.masked_fill(~kept, 0.0).sum() / kept.sum().clamp(min=1)


def delete_tokens(model: nn.Module, features: Features, deleted: Tensor) -> Features:
    """Return copies of the rows without the deleted tokens, in the same width: padding replaces them.

    The result is what the tokenizer makes of the shorter sentences: the remaining tokens move together, and the padding
    is on the tokenizer's side. Position ids stay in place.

    Args:
        model: the encoder, whose tokenizer has the padding side and token.
        features: a tokenized column of B sentences.
        deleted: (B, L) bool, tokens that are present.
    """
    tokenizer = structure.unwrap(model).tokenizer
    present = features["attention_mask"].bool()
    before = ~present & (present.cumsum(dim=1) == 0)
    place = torch.where(present, 2, torch.where(before, 0, 4))
    place = torch.where(deleted, 1 if tokenizer.padding_side == "left" else 3, place)
    order = place.argsort(dim=1, stable=True)  # (B, L)
    emptied = deleted.gather(1, order)
    shorter = dict(features)
    for key, value in features.items():
        if isinstance(value, Tensor) and value.shape == deleted.shape and key != "position_ids":
            shorter[key] = value.gather(1, order)
    shorter["input_ids"] = shorter["input_ids"].masked_fill(emptied, tokenizer.pad_token_id or 0)
    shorter["attention_mask"] = shorter["attention_mask"].masked_fill(emptied, 0)
    return shorter


class IncompleteSentenceFilteringLoss(nn.Module):
    """Train sentence embeddings that show when informative, rare words are missing from the sentence.

    A discriminator learns to distinguish a sentence from a copy in which some low-frequency tokens are masked, and the
    encoder helps it. Use it inside :class:`~st_extras.losses.SLTFAILoss` or beside a contrastive loss: alone it does
    not compare sentences with each other.

    Paper: SLT-FAI, Wang et al., 2023, https://arxiv.org/abs/2305.08655.
    Code: https://github.com/wangbing1416/SLT-FAI.

    For the embedding h_i of a sentence and that of its incomplete version, ^h_i (eq. 6 and 7)::

        L_ISF = 1/N sum_i CE( G(^h_i), 1 ) + CE( G(h_i), 0 )

    which the encoder and the information discriminator G both descend. In the incomplete version, each low-frequency
    token is replaced by [MASK] with probability ``mask_ratio``. A sentence in which nothing was masked does not
    count: labeling it as incomplete would teach noise.

    Args:
        model: the SentenceTransformer to train.
        frequency_table: token counts, ideally from the encoder's pre-training corpus, made with its tokenizer.
        low_frequency_ratio: lambda, in (0, 1): share of the vocabulary types seen that counts as low-frequency.
        mask_ratio: epsilon, in (0, 1): probability to mask a low-frequency token.
        on_missing_mask: what to do if the tokenizer has no mask token: "error", or "delete" to delete the tokens
            instead; a sentence that would lose all its content is kept whole and does not count.
        generator: torch.Generator of the masking, on the model's device. None: one is made from torch's seed.

    Attributes:
        discriminator: G; ``discriminator.accuracy`` is a running figure (0-dim tensor).
        mask_token_id: id that replaces a masked token; None: such tokens are deleted.
        left_out: number of sentences of the last training batch that did not count (0-dim tensor).
        instruments: the figures to log, by name.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence, any number of times | none   |
        +-------------------------------+--------+

    Works with: transformers whose vocabulary is the table's (decoders, which have no mask token, with
    ``on_missing_mask="delete"``); prompts, LoRA, several processes (with
    :class:`~st_extras.training.LossStateCallback` attached); MatryoshkaLoss around the whole
    :class:`~st_extras.losses.SLTFAILoss`.
    Refuses: a table of another vocabulary, StaticEmbedding, a Router with several encoders, flattened (unpadded)
    features, MatryoshkaLoss around this term alone, AdaptiveLayerLoss.

    Differs from the paper: sentences without a masked token are left out; ``on_missing_mask="delete"`` is ours.
    Differs from the authors' code: they mask HIGH-frequency tokens, with probability 0.5, count every sentence, and
    their discriminator has a ReLU on its logits and no hidden one. We follow the paper's text and equations.
    Paper: lambda 0.5, epsilon 0.2.

    Example:
        >>> from sentence_transformers.util import batch_to_device
        >>> from st_extras.losses import IncompleteSentenceFilteringLoss
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.text.frequency import FrequencyTable
        >>> model = raw_encoder()  # the packaged demo encoder; any transformer with a mask token will do
        >>> table = FrequencyTable.count(sample_sentences(), model.tokenizer)
        >>> loss = IncompleteSentenceFilteringLoss(model, frequency_table=table)
        >>> features = batch_to_device(model.preprocess(sample_sentences()[:8]), model.device)
        >>> loss([features]).shape
        torch.Size([])
    """

    citation = CITATIONS["wang2023unsupervised"]
    low_frequency: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        frequency_table: FrequencyTable,
        low_frequency_ratio: float = 0.5,
        mask_ratio: float = 0.2,
        on_missing_mask: Literal["error", "delete"] = "error",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        structure.fix_padding_side(model)
        structure.token_embedding_dimension(model)
        check_frequency_table(frequency_table, model)
        alternatives = "or use incomplete_weight=0 in SLTFAILoss"
        self.on_missing_mask = structure.check_mask_token(model, on_missing_mask, "rare tokens", alternatives)
        self.low_frequency_ratio = check_fraction("low_frequency_ratio", low_frequency_ratio)
        self.mask_ratio = check_fraction("mask_ratio", mask_ratio)
        self.mask_token_id: int | None = model.tokenizer.mask_token_id
        self.discriminator = Discriminator(structure.embedding_dimension(model))
        self.mask_source = RandomSource(generator, salt=2)
        low_frequency = frequency_table.labels(self.low_frequency_ratio).bool()
        self.register_buffer("low_frequency", low_frequency, persistent=False)  # (V,)
        self.left_out = torch.tensor(0)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        refuse_matryoshka(self.model, "IncompleteSentenceFilteringLoss", "wrap the whole SLTFAILoss instead")
        original = stack_columns(list(sentence_features), views=1)
        incomplete, kept = self.make_incomplete(original)
        encoded = encode_tokens(self.model, stack_rows([original, incomplete]))
        return self.compute_loss_from_embeddings(encoded.sentence.chunk(2), kept=kept)

    def make_incomplete(self, features: Features) -> tuple[Features, Tensor]:
        """Return incomplete copies of a column's B sentences, and which of them lack a token, (B,) bool."""
        mask_id = self.mask_token_id
        ids = features["input_ids"]
        content = content_mask(structure.unwrap(self.model), features)
        maskable = self.low_frequency[ids] & content
        if mask_id is not None:
            maskable &= ids != mask_id
        generator = self.mask_source.on(ids.device)
        draws = torch.rand(ids.T.shape, generator=generator, device=ids.device).T  # padding changes no draw
        masked = maskable & (draws < self.mask_ratio)
        if mask_id is not None:
            return {**features, "input_ids": ids.masked_fill(masked, mask_id)}, masked.any(dim=1)
        deleted = masked & (content & ~masked).any(dim=1, keepdim=True)  # no sentence may lose all its content
        return delete_tokens(self.model, features, deleted), deleted.any(dim=1)

    def compute_loss_from_embeddings(
        self, embeddings: Sequence[Tensor], labels: Tensor | None = None, *, kept: Tensor
    ) -> Tensor:
        """Return eq. 6 on [originals, incompletes], each (B, D); ``kept``, (B,) bool, are the sentences that count."""
        logits = self.discriminator(torch.cat(list(embeddings)))  # (2B, 2)
        answers = torch.arange(2, device=kept.device).repeat_interleave(len(kept))
        self.discriminator.observe(logits, answers, kept.repeat(2))
        if torch.is_grad_enabled():
            self.left_out = (~kept).sum()
        original, incomplete = logits.chunk(2)
        return incomplete_cross_entropy(original, incomplete, kept)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        names = "low_frequency_ratio", "mask_ratio", "on_missing_mask"
        return {name: getattr(self, name) for name in names}

    @property
    def instruments(self) -> dict[str, Tensor]:
        """The discriminator's running accuracy, and how many sentences of the last training batch did not count."""
        return {"discriminator_accuracy": self.discriminator.accuracy, "left_out": self.left_out}
