"""SLT-FAI: an unsupervised loss plus frequency-adversarial tuning and incomplete sentence filtering."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_extras.checks import check_bool, check_count, check_interval, check_weight
from st_extras.citations import CITATIONS
from st_extras.encoders.forward import encode_tokens
from st_extras.encoders.rows import Features, count_rows, split_rows, stack_rows
from st_extras.losses.frequency_adversarial import FrequencyAdversarialLoss
from st_extras.losses.incomplete_sentence import IncompleteSentenceFilteringLoss
from st_extras.losses.parts import wrapping
from st_extras.losses.parts.batch_checks import BatchChecks
from st_extras.losses.simcse import SimCSELoss
from st_extras.text.frequency import FrequencyTable


class SLTFAILoss(nn.Module):
    """Add two terms to a contrastive loss, so that rare words count: SLT-FAI.

    One term removes frequency information from token embeddings: the encoder is trained to fool a discriminator that
    distinguishes rare from frequent tokens (AT). The other makes sentence embeddings sensitive to missing rare words:
    the encoder helps a second discriminator to distinguish a sentence from a copy in which some are masked (ISF). Use
    it if frequent words dominate the embeddings of a raw encoder and you have token counts of its pre-training corpus;
    not on an encoder whose similarities you want to keep, as the usual base losses treat all sentences of a batch as
    negatives.

    Paper: SLT-FAI, Wang et al., 2023, https://arxiv.org/abs/2305.08655.
    Code: https://github.com/wangbing1416/SLT-FAI.

    The loss (eq. 2)::

        loss = base_weight R_USRL + alpha L_AT + beta L_ISF

    with L_AT of :class:`~st_extras.losses.FrequencyAdversarialLoss` on the tokens of the base's views, and L_ISF of
    :class:`~st_extras.losses.IncompleteSentenceFilteringLoss` on its first view and the incomplete sentences, which
    are made with that view's augmentation. The encoder sees everything in ONE pass, [the base's views, incomplete]:
    3B rows over SimCSE, ConSERT, DCLR and MultipleNegativesRankingLoss, 2B over AdCSE; the incomplete rows are left
    out during the warm-up.

    Args:
        model: the SentenceTransformer to train.
        frequency_table: token counts, ideally from the encoder's pre-training corpus, made with its tokenizer.
        base_loss: R_USRL, a loss on the same model with ``compute_loss_from_embeddings``. None: SimCSELoss.
            A loss of Sentence Transformers gets two dropout views of a single column.
        base_weight: weight of the base loss.
        adversarial_weight: alpha. 0: the paper's "w/o AT".
        incomplete_weight: beta. 0: the paper's "w/o ISF".
        warmup_steps: number of training forward passes in which only the base loss trains the encoder (see
            :func:`~st_extras.losses.epochs_to_steps`).
        warmup_discriminators: train the discriminators during the warm-up, on detached embeddings, so that they are
            trained when they first act on the encoder. A warm-up step then encodes as many rows as any other.
        low_frequency_ratio: lambda, in (0, 1): share of the vocabulary types seen that counts as low-frequency.
        mask_ratio: epsilon, in (0, 1): probability to mask a low-frequency token.
        on_missing_mask: see IncompleteSentenceFilteringLoss: "error", or "delete" for decoders.
        adversary: see FrequencyAdversarialLoss.
        balanced: see FrequencyAdversarialLoss.
        generator: torch.Generator of the masking, on the model's device. None: one is made from torch's seed.

    Attributes:
        adversarial: the FrequencyAdversarialLoss, with ``discriminator.accuracy`` and ``.balanced_accuracy``.
        incomplete: the IncompleteSentenceFilteringLoss, with ``discriminator.accuracy`` and ``left_out``.
        steps: training forward passes so far (0-dim tensor).
        instruments: the figures to log, by name: those of both terms and of the base.

    Inputs:
        +------------------------------------------+----------------+
        | Columns                                  | Labels         |
        +==========================================+================+
        | those of the base loss: usually sentence | the base's     |
        +------------------------------------------+----------------+

    Returns a dict of weighted terms, "base", "adversarial" and "incomplete", which the trainer sums and logs; inside
    MatryoshkaLoss, their sum.

    Works with: transformers whose vocabulary is the table's (decoders, which have no mask token, with
    ``on_missing_mask="delete"`` or ``incomplete_weight=0``); prompts, LoRA, dictionaries of losses, several processes
    (with :class:`~st_extras.training.LossStateCallback` attached); MatryoshkaLoss over a base that it can wrap: the
    base runs at every dimension, AT and ISF once a step, with the weight of the largest.
    Refuses: columns that cannot share a pass, a base on another model, AdaptiveLayerLoss.

    Differs from the paper: what the two term losses list; ``warmup_discriminators=True`` is ours.
    Differs from the authors' code: what the two term losses list; also, one pass instead of one for each view.
    Paper (BERT base): batch 32, alpha = beta = 1, lambda 0.5, epsilon 0.2; over ConSERT on the 89,192 STS sentences
    with 0.5 epochs of warm-up, over SimCSE on a million Wikipedia sentences with 0.1 epochs.

    Example:
        >>> from st_extras.losses import ConSERTLoss, SLTFAILoss, epochs_to_steps
        >>> from st_extras.samples import sample_sentences
        >>> from st_extras.samples.encoder import raw_encoder
        >>> from st_extras.text.frequency import FrequencyTable
        >>> from st_extras.training import train_encoder
        >>> model = raw_encoder()  # the packaged demo encoder; any transformer with a mask token will do
        >>> table = FrequencyTable.count(sample_sentences(), model.tokenizer)
        >>> warmup = epochs_to_steps(0.5, len(sample_sentences()), batch_size=64)
        >>> loss = SLTFAILoss(model, frequency_table=table, base_loss=ConSERTLoss(model), warmup_steps=warmup)
        >>> options = {"max_steps": 1, "show_progress_bar": False}
        >>> train_encoder(model, loss, sample_sentences()[:64], "slt-fai", **options).steps
        1
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
        warmup_discriminators: bool = False,
        low_frequency_ratio: float = 0.5,
        mask_ratio: float = 0.2,
        on_missing_mask: Literal["error", "delete"] = "error",
        adversary: Literal["reversal", "confusion"] = "reversal",
        balanced: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.base_loss = SimCSELoss(model) if base_loss is None else wrapping.check_base_loss(base_loss, model)
        self.base_checks = BatchChecks(type(self.base_loss).__name__)
        self.weights = {
            "base": check_weight("base_weight", base_weight),
            "adversarial": check_weight("adversarial_weight", adversarial_weight),
            "incomplete": check_weight("incomplete_weight", incomplete_weight),
        }
        if not any(self.weights.values()):
            raise ValueError("base_weight must be > 0 if adversarial_weight and incomplete_weight are 0, got 0.")
        self.warmup_steps = check_count("warmup_steps", warmup_steps)
        if self.warmup_steps and not base_weight:
            raise ValueError(
                f"warmup_steps must be 0 with base_weight=0, got {warmup_steps!r}: nothing would train the encoder."
            )
        self.warmup_discriminators = check_bool("warmup_discriminators", warmup_discriminators)
        if self.warmup_discriminators and not self.warmup_steps:
            raise ValueError("warmup_discriminators must be False with warmup_steps=0, got True: set warmup_steps.")
        shared: dict[str, Any] = {"frequency_table": frequency_table, "low_frequency_ratio": low_frequency_ratio}
        self.adversarial = self.incomplete = None
        if adversarial_weight:
            self.adversarial = FrequencyAdversarialLoss(model, adversary=adversary, balanced=balanced, **shared)
        if incomplete_weight:
            self.incomplete = IncompleteSentenceFilteringLoss(
                model, mask_ratio=mask_ratio, on_missing_mask=on_missing_mask, generator=generator, **shared
            )
        self.register_buffer("steps", torch.tensor(0))

    def forward(
        self, sentence_features: Iterable[Features], labels: Tensor | None = None
    ) -> Tensor | dict[str, Tensor]:
        """Return the weighted terms of a batch, or inside MatryoshkaLoss their sum; ``labels`` go to the base loss."""
        columns = list(sentence_features)
        repeated = wrapping.is_repeated(self.model)
        warming = self.warmup_steps > 0 and int(self.steps) < self.warmup_steps
        only_base = repeated or (warming and not self.warmup_discriminators)
        if torch.is_grad_enabled() and not repeated:
            self.steps += 1
        view_rows, count = wrapping.base_views(self.base_loss, columns)
        size = count_rows(view_rows) // count  # B
        incomplete_rows, kept = [], None  # kept: the sentences that lost a token, (B,) bool
        if self.incomplete is not None and not only_base:
            masked, kept = self.incomplete.make_incomplete(columns[0])
            masked_views, _ = wrapping.base_views(self.base_loss, [masked, *columns[1:]])
            incomplete_rows = [split_rows(masked_views, count)[0]]  # with the augmentation of the first view
        with wrapping.base_mode(self.base_loss, self.model):
            encoded = encode_tokens(self.model, stack_rows([view_rows, *incomplete_rows]))
        views, incomplete = encoded[: count * size], encoded[count * size :]
        embeddings = views.sentence.chunk(count)  # count x (B, D)
        base_terms = wrapping.base_value(self.base_loss, embeddings, labels, columns, self.base_checks)
        base = torch.stack(list(base_terms.values())).sum()
        terms = {"base": base, "adversarial": base.new_zeros(()), "incomplete": base.new_zeros(())}
        if self.adversarial is not None and not only_base:
            rows = (views.tokens, views.input_ids, views.content_mask)
            terms["adversarial"] = self.adversarial.compute_loss_from_tokens(*rows, warmup=warming)
        if self.incomplete is not None and kept is not None:
            pair = [embeddings[0], incomplete.sentence]
            if wrapping.is_truncated(self.model):  # zeros for the dimensions that MatryoshkaLoss has cut off
                dimension = self.incomplete.discriminator.dimension
                pair = [F.pad(side, (0, dimension - side.size(-1))) for side in pair]
            pair = [side.detach() for side in pair] if warming else pair
            terms["incomplete"] = self.incomplete.compute_loss_from_embeddings(pair, kept=kept)
        weighted = {name: weight * terms[name] for name, weight in self.weights.items() if weight}
        return wrapping.sum_if_truncated(self.model, weighted)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        base = self.base_loss
        config = {
            "base_loss": type(base).__name__,
            "base_loss_config": base.get_config_dict() if hasattr(base, "get_config_dict") else {},
            "warmup_steps": self.warmup_steps,
            "warmup_discriminators": self.warmup_discriminators,
        }
        config |= {f"{name}_weight": weight for name, weight in self.weights.items()}
        for term in (self.adversarial, self.incomplete):
            config |= {} if term is None else term.get_config_dict()
        return config

    @property
    def instruments(self) -> dict[str, Tensor]:
        """The figures of both terms and of the base loss in the last training step."""
        return wrapping.gather_instruments(
            adversarial=self.adversarial, incomplete=self.incomplete, base=self.base_loss
        )

    @property
    def citation(self) -> str:
        """BibTeX of the paper and of the base loss's paper."""
        return CITATIONS["wang2023unsupervised"] + "\n\n" + getattr(self.base_loss, "citation", "")


def epochs_to_steps(epochs: float, num_sentences: int, batch_size: int, num_processes: int = 1) -> int:
    """Return the number of training forward passes in ``epochs`` epochs, for ``warmup_steps``.

    The paper warms up for 0.1 or 0.5 epochs.

    Args:
        epochs: a number >= 0, not necessarily whole.
        num_sentences: rows of the training set.
        batch_size: sentences of one process in one forward, whether or not gradients are accumulated.
        num_processes: processes that train.

    Raises:
        ValueError: if ``epochs`` is not between 0 and 1e6, or another number is not a whole one >= 1.
    """
    epochs = check_interval("epochs", epochs, 0, 1e6)
    num_sentences = check_count("num_sentences", num_sentences, at_least=1)
    batch_size = check_count("batch_size", batch_size, at_least=1)
    num_processes = check_count("num_processes", num_processes, at_least=1)
    return round(epochs * math.ceil(num_sentences / (batch_size * num_processes)))
