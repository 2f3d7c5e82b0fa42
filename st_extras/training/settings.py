"""The settings of one training, checked once and handed on whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from st_extras.checks import check_count, check_positive, check_seed
from st_extras.encoders.adapters import lora_config, lora_settings

if TYPE_CHECKING:
    from peft import LoraConfig


@dataclass(frozen=True)
class TrainingSettings:
    """How an encoder is trained: the arguments of :func:`~st_extras.training.train_encoder` that have no other place.

    Each of them but ``show_progress_bar`` can change the trained weights, so a run is resumed with equal ones.

    Args:
        batch_size: see ``train_encoder``, as for all that follow.
        learning_rate: of the encoder.
        loss_learning_rate: of what the loss owns; None: ``learning_rate``.
        max_steps: -1: train for ``epochs``.
        epochs: passes over the data.
        eval_steps: steps between evaluations and between checkpoints.
        patience: evaluations in a row without improvement; None: any number.
        seed: random seed.
        bf16: whether to use bfloat16 autocast.
        lora: rank, arguments or ``peft.LoraConfig`` of adapters; None: train all weights.
        no_duplicates: whether equal rows are kept apart.
        show_progress_bar: whether to show a bar.
        arguments: further arguments of the trainer, which count before the others.

    Raises:
        ValueError: if a number is not allowed.
        ImportError: if ``lora`` is given without peft.
    """

    batch_size: int
    learning_rate: float
    loss_learning_rate: float | None
    max_steps: int
    epochs: float
    eval_steps: int
    patience: int | None
    seed: int
    bf16: bool
    lora: int | Mapping[str, Any] | LoraConfig | None
    no_duplicates: bool
    show_progress_bar: bool
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size, at_least=1)
        check_positive("learning_rate", self.learning_rate)
        if self.loss_learning_rate is not None:
            check_positive("loss_learning_rate", self.loss_learning_rate)
        if self.max_steps != -1:
            check_count("max_steps, unless it is -1,", self.max_steps, at_least=1)
        check_positive("epochs", self.epochs)
        check_count("eval_steps", self.eval_steps, at_least=1)
        if self.patience is not None:
            check_count("patience", self.patience, at_least=1)
        check_seed("seed", self.seed)
        if self.lora is not None:
            lora_config(self.lora)

    def recorded(self) -> dict[str, Any]:
        """Return what the trained weights depend on, by name; of ``lora``, what is not peft's default."""
        lora = {} if self.lora is None else {"lora": lora_settings(self.lora)}
        named = vars(self) | lora | dict(self.arguments)
        return {name: value for name, value in named.items() if name not in ("arguments", "show_progress_bar")}
