"""What the weights of a training depend on: recorded beside its checkpoints, and compared when it is resumed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import nn

from st_extras.encoders.dropout import dropout_rates
from st_extras.files import digest
from st_extras.training.settings import TrainingSettings

_ROWS = 1000  # hashed at a time


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
        model: the encoder; its modules, their settings, dropout, chat template and dtype count, in one digest; its
            weights do not, as a checkpoint holds them.
        loss: the loss; its class and ``get_config_dict`` count.
        dataset: the rows, which are hashed; an IterableDataset is neither read nor compared.
        evaluator: the evaluator that chooses the weights, None without one; its class, name and ``get_config_dict``
            count.
        settings: how it is trained.
        checkpoints: the folder of the checkpoints, which name each other by their whole paths: it must not be moved.
    """
    tokenizer, parameters = getattr(model, "tokenizer", None), sum(p.numel() for p in model.parameters())
    encoder = {
        "modules": [[type(module).__name__, _config(module)] for module in model],
        "dtypes": sorted({str(parameter.dtype) for parameter in model.parameters()}),
        "dropout": dropout_rates(model),
        "template": getattr(tokenizer, "chat_template", None),
    }
    record = settings.recorded() | {
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
