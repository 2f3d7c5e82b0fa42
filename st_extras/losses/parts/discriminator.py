"""The discriminator of SLT-FAI's two terms, and the check of their frequency table."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from st_extras.checks import check_instance
from st_extras.encoders.distributed import require_synchronised, sum_over_processes
from st_extras.encoders.structure import unwrap
from st_extras.functional import full_precision
from st_extras.text.frequency import FrequencyTable


def check_frequency_table(frequency_table: FrequencyTable, model: nn.Module) -> FrequencyTable:
    """Return the table if it counts the tokens of the model's vocabulary.

    Raises:
        ValueError: if it is not a FrequencyTable, or has another vocabulary.
    """
    check_instance("frequency_table", frequency_table, FrequencyTable)
    frequency_table.check_tokenizer(unwrap(model).tokenizer)
    return frequency_table


class Discriminator(nn.Module):
    """A discriminator of two classes, Linear(D, D), ReLU, Linear(D, 2), with a running confusion matrix.

    The matrix counts the answers of all processes.

    Args:
        dimension: D.
        memory: factor of the confusion matrix at each new batch; 0.99 remembers about a hundred batches.
    """

    confusion: Tensor

    def __init__(self, dimension: int, memory: float = 0.99) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dimension, dimension), nn.ReLU(), nn.Linear(dimension, 2))
        self.dimension = dimension
        self.memory = memory
        self.register_buffer("confusion", torch.zeros(2, 2))  # [label, answer]

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (..., 2) in float32 for embeddings (..., D).

        Raises:
            ValueError: if the embeddings have another dimension.
        """
        require_synchronised(self)
        if x.size(-1) != self.dimension:
            raise ValueError(
                f"The discriminator needs embeddings of {self.dimension} dimensions, got {x.size(-1)}: MatryoshkaLoss, "
                "which truncates them, must wrap the whole SLTFAILoss."
            )
        return full_precision(self.layers(x.to(next(self.layers.parameters()).dtype)))

    def frozen_logits(self, x: Tensor) -> Tensor:
        """Return the same logits, with gradients for the embeddings but not for the discriminator."""
        frozen = {name: parameter.detach() for name, parameter in self.named_parameters()}
        logits: Tensor = torch.func.functional_call(self, frozen, (x,))
        return logits

    def observe(self, logits: Tensor, labels: Tensor, mask: Tensor) -> None:
        """Add a batch's answers to the confusion matrix, unless gradients are disabled.

        Args:
            logits: (..., 2).
            labels: (...) of 0 and 1.
            mask: (...) bool, the entries that count.
        """
        if not torch.is_grad_enabled():
            return
        with torch.no_grad():
            present = mask.to(self.confusion.dtype)
            answer = (logits[..., 1] > logits[..., 0]).to(present.dtype)
            label = labels.to(present.dtype)
            cells = [(present * a * b).sum() for a in (1 - label, label) for b in (1 - answer, answer)]
            counted = sum_over_processes(torch.stack(cells).view(2, 2).to(self.confusion.dtype))
            self.confusion.mul_(self.memory).add_(counted)

    @property
    def accuracy(self) -> Tensor:
        """Running share of correct answers, (); NaN before the first batch."""
        return self.confusion.trace() / self.confusion.sum()

    @property
    def balanced_accuracy(self) -> Tensor:
        """Running mean of the shares of correct answers per label, (): 0.5 is chance, however unbalanced the labels."""
        return (self.confusion.diagonal() / self.confusion.sum(dim=1)).mean()
