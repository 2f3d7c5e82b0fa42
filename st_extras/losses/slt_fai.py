"""SLT-FAI: any unsupervised loss plus frequency-adversarial tuning and incomplete sentence filtering."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.base_loss import base_mode, base_value, base_views, check_base_loss
from st_extras.discriminator import SLT_FAI_CITATION
from st_extras.encoders import check_terms, encode
from st_extras.functional import check_count, check_not_negative
from st_extras.losses.frequency_adversarial import FrequencyAdversarialLoss
from st_extras.losses.incomplete_sentence import IncompleteSentenceFilteringLoss
from st_extras.losses.simcse import SimCSELoss
from st_extras.rows import Features, count_rows, first_rows, stack_rows
from st_extras.text.frequency import FrequencyTable


def epochs_to_steps(epochs: float, num_sentences: int, batch_size: int, num_processes: int = 1) -> int:
    """Training forwards in ``epochs`` epochs, for ``warmup_steps`` (the paper warms up for 0.1 or 0.5 epochs).

    Args:
        epochs: any number >= 0.
        num_sentences: rows of the training set.
        batch_size: of one process and one forward, whatever gradients are accumulated.
        num_processes: of the training.
    """
    check_not_negative("epochs", epochs)
    return round(epochs * math.ceil(num_sentences / (batch_size * num_processes)))


class SLTFAILoss(nn.Module):
    """Frequency-invariant tokens and sentences that need their rare words, over any base (Wang et al., 2023).

    ::

        loss = base_weight R_USRL + alpha L_AT + beta L_ISF    (eq. 2)

    with L_AT of :class:`~st_extras.losses.FrequencyAdversarialLoss` on the tokens of the base's views and L_ISF of
    :class:`~st_extras.losses.IncompleteSentenceFilteringLoss` on its first view and the incomplete sentences, which
    are made with that view's augmentation. The encoder sees everything in ONE pass: [the base's views, incomplete],
    3B rows over SimCSE, ConSERT, DCLR and MultipleNegativesRankingLoss, 2B over AdCSE; without the incomplete rows
    during the warm-up.

    Args:
        model: the SentenceTransformer to train.
        frequency_table: the token counts of the encoder's pre-training corpus, counted with its tokenizer.
        base_loss: R_USRL, a loss over the same model with ``compute_loss_from_embeddings``. None: SimCSELoss.
            A loss of Sentence Transformers gets two dropout views of a single column.
        base_weight: weight of the base loss.
        adversarial_weight: alpha. 0: the paper's "w/o AT".
        incomplete_weight: beta. 0: the paper's "w/o ISF".
        warmup_steps: during so many training forwards only the base acts (see :func:`epochs_to_steps`).
        low_frequency_ratio: lambda, in (0, 1).
        mask_ratio: epsilon, in (0, 1).
        always_mask_one: see IncompleteSentenceFilteringLoss.
        reversal_strength: see FrequencyAdversarialLoss.
        reversal_steps: see FrequencyAdversarialLoss.
        generator: the masking's own torch.Generator, on the model's device. None: made from torch's seed.

    Attributes:
        adversarial: the FrequencyAdversarialLoss, with ``discriminator.accuracy`` and ``.balanced_accuracy``.
        incomplete: the IncompleteSentenceFilteringLoss, with ``discriminator.accuracy`` and ``left_out``.
        steps: training steps so far (0-dim tensor).

    Inputs: those of the base loss; one column, the sentence, in unsupervised training.

    Returns a dict of weighted terms, "base", "adversarial" and "incomplete", which the trainer sums and logs.

    Differs from the authors' code: see the two terms; also, one pass instead of one for each view.

    Paper (BERT base): batch 32, alpha = beta = 1, lambda 0.5, epsilon 0.2; over ConSERT on the 89,192 STS sentences
    with 0.5 epochs of warm-up, over SimCSE on a million Wikipedia sentences with 0.1 epochs.

    Example:
        >>> from st_extras.losses import ConSERTLoss, SLTFAILoss
        >>> from st_extras.text.frequency import FrequencyTable
        >>> table = FrequencyTable.from_file("bookcorpus.tsv", model.tokenizer)  # doctest: +SKIP
        >>> loss = SLTFAILoss(  # doctest: +SKIP
        ...     model, frequency_table=table, base_loss=ConSERTLoss(model), warmup_steps=epochs_to_steps(0.5, 89192, 32)
        ... )
    """

    base_loss: Any
    steps: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        frequency_table: FrequencyTable,
        base_loss: nn.Module | None = None,
        base_weight: float = 1.0,
        adversarial_weight: float = 1.0,
        incomplete_weight: float = 1.0,
        warmup_steps: int = 0,
        low_frequency_ratio: float = 0.5,
        mask_ratio: float = 0.2,
        always_mask_one: bool = False,
        reversal_strength: float = 1.0,
        reversal_steps: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.base_loss = SimCSELoss(model) if base_loss is None else check_base_loss(base_loss, model)
        self.weights = {
            "base": check_not_negative("base_weight", base_weight),
            "adversarial": check_not_negative("adversarial_weight", adversarial_weight),
            "incomplete": check_not_negative("incomplete_weight", incomplete_weight),
        }
        if not any(self.weights.values()):
            raise ValueError("base_weight, adversarial_weight and incomplete_weight are all 0: nothing is left.")
        self.warmup_steps = check_count("warmup_steps", warmup_steps)
        if self.warmup_steps and not base_weight:
            raise ValueError(f"warmup_steps={warmup_steps} with base_weight=0: nothing would be trained during them.")
        self.adversarial: FrequencyAdversarialLoss | None = None
        self.incomplete: IncompleteSentenceFilteringLoss | None = None
        if adversarial_weight:
            self.adversarial = FrequencyAdversarialLoss(
                model,
                frequency_table=frequency_table,
                low_frequency_ratio=low_frequency_ratio,
                reversal_strength=reversal_strength,
                reversal_steps=reversal_steps,
            )
        if incomplete_weight:
            self.incomplete = IncompleteSentenceFilteringLoss(
                model,
                frequency_table=frequency_table,
                low_frequency_ratio=low_frequency_ratio,
                mask_ratio=mask_ratio,
                always_mask_one=always_mask_one,
                generator=generator,
            )
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> dict[str, Tensor]:
        """The weighted terms of a batch; ``labels`` go to the base loss."""
        check_terms(self.model, "wrap the base loss alone in a training of its own")
        columns = list(sentence_features)
        warming_up = int(self.steps) < self.warmup_steps
        if torch.is_grad_enabled():
            self.steps += 1
        rows, count = base_views(self.base_loss, columns)
        size = count_rows(rows) // count
        blocks = [rows]
        kept = None
        if self.incomplete is not None and not warming_up:
            masked, kept = self.incomplete.incomplete(columns[0])
            blocks.append(first_rows(base_views(self.base_loss, [masked, *columns[1:]])[0], size))
        with base_mode(self.base_loss, self.model):
            encoded = encode(self.model, stack_rows(blocks))
        seen = count * size  # rows of the base's views
        views = list(encoded.sentence[:seen].chunk(count))  # count x (B, D)
        base = base_value(self.base_loss, views, labels, columns)
        base = torch.stack(list(base.values())).sum() if isinstance(base, dict) else base
        terms = {"base": base, "adversarial": base.new_zeros(()), "incomplete": base.new_zeros(())}
        if self.adversarial is not None and not warming_up:
            terms["adversarial"] = self.adversarial.compute_loss_from_tokens(
                encoded.tokens[:seen], encoded.input_ids[:seen], encoded.content_mask[:seen]
            )
        if self.incomplete is not None and kept is not None:
            embeddings = [views[0], encoded.sentence[seen:]]
            terms["incomplete"] = self.incomplete.compute_loss_from_embeddings(embeddings, kept=kept)
        return {name: weight * terms[name] for name, weight in self.weights.items() if weight}

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        base = self.base_loss
        config = {
            "base_loss": type(base).__name__,
            "base_loss_config": base.get_config_dict() if hasattr(base, "get_config_dict") else {},
            "warmup_steps": self.warmup_steps,
        }
        config |= {f"{name}_weight": weight for name, weight in self.weights.items()}
        for term in (self.adversarial, self.incomplete):
            config |= {} if term is None else term.get_config_dict()
        return config

    @property
    def citation(self) -> str:
        """BibTeX of the paper, and of the base loss's."""
        return SLT_FAI_CITATION + getattr(self.base_loss, "citation", "")
