"""SLT-FAI's adversarial tuning (AT): token embeddings that do not reveal how frequent their token is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import get_world_size
from torch import Tensor, nn

from st_extras.checks import check_bool, check_choice, check_fraction
from st_extras.citations import CITATIONS
from st_extras.encoders.distributed import sum_over_processes
from st_extras.encoders.forward import encode_tokens
from st_extras.encoders.rows import Features, stack_columns
from st_extras.encoders.structure import check_token_embeddings, fix_padding_side, token_embedding_dimension
from st_extras.functional import full_precision, reverse_gradient
from st_extras.losses.parts.discriminator import Discriminator, check_frequency_table
from st_extras.losses.parts.wrapping import refuse_matryoshka
from st_extras.text.frequency import FrequencyTable


def token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of eq. 4: over the content tokens of each sentence, then over the sentences.

    Args:
        values: (R, L).
        mask: (R, L) bool, the tokens that count.

    Returns:
        (), over the sentences with a token that counts; 0 if there are none.
    """
    lengths = mask.sum(dim=1)  # (R,)
    means = values.masked_fill(~mask, 0.0).sum(dim=1) / lengths.clamp(min=1)
    return means.sum() / (lengths > 0).sum().clamp(min=1)


def label_shares(
    labels: Tensor, mask: Tensor, *, dtype: torch.dtype = torch.float32, across_processes: bool = False
) -> Tensor:
    """Return the shares of label 0 and label 1 in a batch, (2,), weighing tokens as eq. 4 does.

    Args:
        labels: (R, L) of 0 and 1.
        mask: (R, L) bool, the tokens that count. If there are none, the shares are 0.
        dtype: of the shares.
        across_processes: return the mean over the batches of all processes, each of which must then call this.
    """
    shares = torch.stack([token_mean((labels == label).to(dtype), mask) for label in (0, 1)])
    return sum_over_processes(shares) / get_world_size() if across_processes else shares


def labels_entropy(shares: Tensor) -> Tensor:
    """Return the entropy of the labels in nats.

    It is the lowest cross-entropy of a discriminator that knows the shares of the labels and nothing about the tokens:
    a higher one means that the discriminator is misled, a lower one that it has learned something.

    Args:
        shares: (2,), as :func:`label_shares` returns them; for balanced labels a half each.
    """
    return -torch.xlogy(shares, shares).sum()


def balancing_weights(labels: Tensor, shares: Tensor) -> Tensor:
    """Return a weight for each token, (R, L), so that each label has half of the weight: 1 / (2 share of its label).

    Args:
        labels: (R, L) of 0 and 1.
        shares: (2,), of the batch. If a label has no token, the other one still has half of the weight.
    """
    return torch.where(shares > 0, 0.5 / shares, 0.0)[labels]


def token_cross_entropy(logits: Tensor, labels: Tensor, content_mask: Tensor, weights: Tensor | None = None) -> Tensor:
    """Compute the cross-entropy of eq. 4, averaged by :func:`token_mean`.

    Args:
        logits: (R, L, 2) of the discriminator.
        labels: (R, L), 1 = low frequency, 0 = high.
        content_mask: (R, L) bool: neither padding nor a special token.
        weights: (R, L), a factor for each token. None: 1.
    """
    losses = F.cross_entropy(full_precision(logits).transpose(1, 2), labels, reduction="none")  # (R, L)
    return token_mean(losses if weights is None else weights * losses, content_mask)


def token_confusion(logits: Tensor, prior: Tensor, content_mask: Tensor, weights: Tensor | None = None) -> Tensor:
    """Compute the cross-entropy of the discriminator's answers with the labels' prior, averaged by :func:`token_mean`.

    It is least if every answer equals the prior.

    Args:
        logits: (R, L, 2) of the discriminator.
        prior: (2,), the shares of high- and low-frequency tokens.
        content_mask: (R, L) bool: neither padding nor a special token.
        weights: (R, L), a factor for each token. None: 1.
    """
    losses = -(prior * full_precision(logits).log_softmax(dim=-1)).sum(dim=-1)  # (R, L)
    return token_mean(losses if weights is None else weights * losses, content_mask)


class FrequencyAdversarialLoss(nn.Module):
    """Train token embeddings that do not reveal whether their token is frequent or rare.

    A discriminator learns to distinguish low- from high-frequency tokens by their embeddings, and the encoder learns to
    mislead it. This counters the known bias that a token's frequency, not its meaning, determines its embedding. Alone
    it only destroys information: use it inside :class:`~st_extras.losses.SLTFAILoss`, or beside another loss.

    Paper: SLT-FAI, Wang et al., 2023, https://arxiv.org/abs/2305.08655.
    Code: https://github.com/wangbing1416/SLT-FAI.

    For token embeddings H_ij of sentence i and frequency labels y_ij (eq. 3 and 4)::

        L_AT = 1/N sum_i 1/|s_i| sum_j CE( G(H_ij), y_ij ),    G descends it, the encoder ascends it

    through a gradient reversal layer between the two, in one backward pass. With ``adversary="confusion"`` the encoder
    descends, instead of ascending L_AT, the cross-entropy of the discriminator's answer with the labels' prior pi::

        L_confusion = 1/N sum_i 1/|s_i| sum_j sum_c -pi_c log G(H_ij)_c,    the encoder descends it, G does not see it

    Args:
        model: the SentenceTransformer to train; it must give token embeddings.
        frequency_table: token counts, ideally from the encoder's pre-training corpus, made with its tokenizer.
        low_frequency_ratio: lambda, in (0, 1): share of the vocabulary types seen that counts as low-frequency.
        adversary: how the encoder misleads the discriminator. "reversal": the paper's min-max, which has no
            equilibrium if few tokens are rare: the encoder gains most from answers that are confidently wrong.
            "confusion": it pulls every answer towards the prior, pi, so that embeddings reveal no more than how many
            tokens are rare; L_confusion is added to the value.
        balanced: weigh tokens by 1 / (2 share of their label in the batch of all processes), so that rare and frequent
            ones count the same, in the losses of both sides; pi is then (1/2, 1/2).

    Attributes:
        discriminator: G; ``discriminator.accuracy`` and ``.balanced_accuracy`` are running figures (0-dim tensors).
            A discriminator that has learned nothing has a balanced accuracy of 0.5 and, at best, an accuracy equal to
            the share of high-frequency tokens.
        instruments: the figures to log, by name: both accuracies, and ``adversarial_loss`` (L_AT, unweighted) beside
            ``labels_entropy`` of the last training batch, in nats. L_AT near the entropy means that the discriminator
            knows no more than how many tokens are rare, which is the aim; far above, that it is misled and its answers
            are confidently wrong. With ``adversary="confusion"`` also ``confusion_loss``, whose minimum is the entropy.

    Inputs:
        +-------------------------------+--------+
        | Columns                       | Labels |
        +===============================+========+
        | sentence, any number of times | none   |
        +-------------------------------+--------+

    Works with: transformers whose vocabulary is the table's; prompts, LoRA, several processes (with
    :class:`~st_extras.training.LossStateCallback` attached).
    Refuses: a table of another vocabulary, StaticEmbedding, encoders with fewer token embeddings than tokens (Funnel
    without its decoder), a Router with several encoders, flattened (unpadded) features, MatryoshkaLoss around this
    term alone (around the whole SLTFAILoss it works), AdaptiveLayerLoss.

    Differs from the paper: nothing in the loss; ``adversary="confusion"`` and ``balanced=True`` are ours.
    Differs from the authors' code: padding and special tokens never count, the average is per sentence first (eq. 4),
    and the discriminator has the paper's hidden ReLU and none on its logits. The labels come from one lookup in a
    tensor instead of a Python loop over tokens.
    Paper: lambda 0.5; figure 4 sweeps lambda over 0.1 ... 0.9.

    Example:
        >>> from sentence_transformers.util import batch_to_device
        >>> from st_extras.losses import FrequencyAdversarialLoss
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.text.frequency import FrequencyTable
        >>> model = raw_encoder()  # the packaged demo encoder; any transformer will do
        >>> table = FrequencyTable.count(sample_sentences(), model.tokenizer)
        >>> loss = FrequencyAdversarialLoss(model, frequency_table=table)
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
        adversary: Literal["reversal", "confusion"] = "reversal",
        balanced: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        fix_padding_side(model)
        dimension = token_embedding_dimension(model)
        check_frequency_table(frequency_table, model)
        self.low_frequency_ratio = check_fraction("low_frequency_ratio", low_frequency_ratio)
        self.adversary = check_choice("adversary", adversary, ("reversal", "confusion"))
        self.balanced = check_bool("balanced", balanced)
        self.discriminator = Discriminator(dimension)
        low_frequency = frequency_table.labels(self.low_frequency_ratio)
        self.register_buffer("low_frequency", low_frequency, persistent=False)  # (V,)
        self.last_loss = self.labels_entropy = self.last_confusion = torch.tensor(torch.nan)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; ``labels`` are not used."""
        refuse_matryoshka(self.model, "FrequencyAdversarialLoss", "wrap the whole SLTFAILoss instead")
        encoded = encode_tokens(self.model, stack_columns(list(sentence_features), views=1))
        return self.compute_loss_from_tokens(encoded.tokens, encoded.input_ids, encoded.content_mask)

    def compute_loss_from_tokens(
        self, tokens: Tensor, input_ids: Tensor, content_mask: Tensor, *, warmup: bool = False
    ) -> Tensor:
        """Return eq. 4 on token embeddings; with ``adversary="confusion"``, L_confusion is added.

        Args:
            tokens: (R, L, D).
            input_ids: (R, L).
            content_mask: (R, L) bool, the content tokens.
            warmup: train the discriminator alone.
        """
        check_token_embeddings(tokens, input_ids, "FrequencyAdversarialLoss", "adversarial_weight=0 in SLTFAILoss")
        labels = self.low_frequency[input_ids]
        reverses = self.adversary == "reversal" and not warmup
        seen = reverse_gradient(tokens) if reverses else tokens.detach()
        logits = self.discriminator(seen)  # (R, L, 2)
        gathered = (self.balanced or self.adversary == "confusion") and torch.is_grad_enabled()
        shares = label_shares(labels, content_mask, dtype=logits.dtype, across_processes=gathered)
        weights, prior = None, shares
        if self.balanced:
            weights, prior = balancing_weights(labels, shares), torch.full_like(shares, 0.5)
        self.discriminator.observe(logits, labels, content_mask)
        value = loss = token_cross_entropy(logits, labels, content_mask, weights)
        if self.adversary == "confusion" and not warmup:
            confusion = token_confusion(self.discriminator.frozen_logits(tokens), prior, content_mask, weights)
            value = loss + confusion  # the discriminator descends the first, the encoder the second
            self.last_confusion = confusion.detach() if torch.is_grad_enabled() else self.last_confusion
        if torch.is_grad_enabled():
            self.last_loss, self.labels_entropy = loss.detach(), labels_entropy(prior)
        return value

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        names = "low_frequency_ratio", "adversary", "balanced"
        return {name: getattr(self, name) for name in names}

    @property
    def instruments(self) -> dict[str, Tensor]:
        """The discriminator's running accuracies, and L_AT and the labels' entropy of the last training batch."""
        measured = {
            "discriminator_accuracy": self.discriminator.accuracy,
            "balanced_accuracy": self.discriminator.balanced_accuracy,
            "adversarial_loss": self.last_loss,
            "labels_entropy": self.labels_entropy,
        }
        return measured | ({"confusion_loss": self.last_confusion} if self.adversary == "confusion" else {})
