"""The settings of one training, checked once, and the record of all that its weights depend on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import nn

from st_extras.checks import check_count, check_positive, check_seed, shown
from st_extras.encoders.adapters import lora_config, lora_settings
from st_extras.encoders.dropout import dropout_rates
from st_extras.files import digest

if TYPE_CHECKING:
    from peft import LoraConfig

_ROWS = 1000
"""Rows of the text hashed at a time."""
_CHOICE = ("load_best_model_at_end", "metric_for_best_model", "greater_is_better")
"""Arguments of the trainer that train_encoder gives: with others, a score of the base model could not be compared."""
_OWN = {"output_dir": "output", "resume_from_checkpoint": "resume"}
"""Arguments of the trainer in place of which train_encoder has its own, as ``resume`` finds the checkpoints by them."""


@dataclass(frozen=True)
class TrainingSettings:
    """How an encoder is trained: arguments of :func:`~st_extras.training.train_encoder`, which explains them.

    Each of them but ``show_progress_bar`` can change the trained weights, so a run is resumed with equal ones.

    Attributes:
        arguments: further arguments of the trainer, which count before the others.

    Raises:
        ValueError: if a number is not allowed, or ``arguments`` say where checkpoints are or how the best is chosen.
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
        if "gradient_accumulation_steps" in self.arguments:
            check_count("gradient_accumulation_steps", self.arguments["gradient_accumulation_steps"], at_least=1)
        for name in ("logging_steps", "save_steps"):
            if name in self.arguments:
                check_positive(name, self.arguments[name])  # below 1 a share of all steps
        for name, own in _OWN.items():
            if name in self.arguments:
                raise ValueError(f"{name} must not be given, got {shown(self.arguments[name])}: use {own}.")
        if given := [name for name in _CHOICE if name in self.arguments]:
            raise ValueError(
                f"{given[0]} must not be given, got {self.arguments[given[0]]!r}: evaluator chooses the weights, by "
                "its primary_metric and greater_is_better; leave it out, or give no evaluator to keep the last weights."
            )


def training_record(
    model: SentenceTransformer,
    loss: nn.Module,
    dataset: Dataset | IterableDataset,
    evaluator: BaseEvaluator | None,
    settings: TrainingSettings,
    checkpoints: Path,
) -> dict[str, Any]:
    """Return everything that the trained weights depend on, as values that JSON can hold.

    Args:
        model: the encoder; its modules, also those of routes, their settings and lengths, dropout, chat template and
            dtype count, in one digest; its weights do not, as a checkpoint holds them.
        loss: the loss; its class and ``get_config_dict`` count.
        dataset: the rows, which are hashed; an IterableDataset is neither read nor compared.
        evaluator: the evaluator that chooses the weights, None without one; its class, name and ``get_config_dict``
            count.
        settings: how it is trained.
        checkpoints: the folder of the checkpoints, which name each other by their whole paths: it must not be moved.
    """
    tokenizer, parameters = getattr(model, "tokenizer", None), sum(p.numel() for p in model.parameters())
    parts = [
        part for module in model for part in module.modules() if part is module or hasattr(part, "get_config_dict")
    ]
    encoder = {
        "modules": [[type(part).__name__, _config(part), getattr(part, "max_seq_length", None)] for part in parts],
        "dtypes": sorted({str(parameter.dtype) for parameter in model.parameters()}),
        "dropout": dropout_rates(model),
        "template": getattr(tokenizer, "chat_template", None),
    }
    adapters = {} if settings.lora is None else {"lora": lora_settings(settings.lora)}  # what is not peft's default
    given = vars(settings) | adapters | dict(settings.arguments)
    record = {name: value for name, value in given.items() if name not in ("arguments", "show_progress_bar")} | {
        "checkpoints": str(checkpoints),
        "text": _text(dataset),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "encoder": f"{parameters} parameters, digest {digest([json.dumps(encoder, default=_plain, skipkeys=True)])}",
        **_class_and_config("loss", loss),
        **({} if evaluator is None else _class_and_config("evaluator", evaluator)),
    }
    plain: dict[str, Any] = json.loads(json.dumps(record, default=_plain, skipkeys=True))
    return plain


def _text(dataset: Dataset | IterableDataset) -> str:
    if isinstance(dataset, IterableDataset):
        return "a stream"
    blocks = dataset.with_format(None).iter(_ROWS)  # without the user's transform, which may draw random numbers
    return f"{len(dataset)} rows, digest {digest(json.dumps(rows, default=_plain) for rows in blocks)}"


def _class_and_config(role: str, thing: Any) -> dict[str, Any]:
    name = getattr(thing, "name", "")
    return {role: f"{type(thing).__name__} {name}".strip()} | {
        f"{role}.{key}": value for key, value in _config(thing).items()
    }


def _config(thing: Any) -> dict[str, Any]:
    read = getattr(thing, "get_config_dict", None)
    return {} if read is None else dict(read())


def _plain(value: Any) -> Any:
    """Return a number of Python for one of numpy, and the name of its class for any other object."""
    return value.item() if isinstance(value, np.generic) else type(value).__name__
