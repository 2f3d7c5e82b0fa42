"""The settings that identify a training: recorded in every checkpoint, and compared when it is resumed."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import nn

from st_extras.encoders.dropout import dropout_rates
from st_extras.evaluation import STSEvaluator
from st_extras.files import digest, json_digest
from st_extras.training.checkpoints import read_marker

logger = logging.getLogger(__name__)
_ROWS = 1000  # hashed at a time
_NAMES = {
    "per_device_train_batch_size": "batch_size",
    "num_train_epochs": "epochs",
    "save_steps": "eval_steps",
    "batch_sampler": "no_duplicates (batch_sampler)",
}
_IRRELEVANT = {"disable_tqdm", "save_strategy", "save_total_limit", "logging_steps"}


def run_identity(
    model: SentenceTransformer,
    loss: nn.Module,
    dataset: Dataset | IterableDataset,
    evaluator: BaseEvaluator | None,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return everything that the trained weights depend on, as values that JSON can hold.

    Args:
        model: the encoder; its modules, their settings, dropout, chat template and the number and dtype of its
            parameters count, in one digest; its weights do not.
        loss: the loss; its class and ``get_config_dict`` count.
        dataset: the rows, which are hashed; an IterableDataset is neither read nor compared.
        evaluator: the evaluator that chooses the weights; None without one.
        settings: arguments of the trainer and of ``train_encoder`` by name.
    """
    dropped = _IRRELEVANT | (set() if evaluator is not None else {"save_steps", "patience"})
    dropped |= {"num_train_epochs"} if settings.get("max_steps", -1) != -1 else set()
    identity = {_NAMES.get(name, name): value for name, value in settings.items() if name not in dropped}
    if identity.get(_NAMES["batch_sampler"]) == BatchSamplers.NO_DUPLICATES_HASHED:
        identity[_NAMES["batch_sampler"]] = BatchSamplers.NO_DUPLICATES  # the same batches, found faster
    identity |= {"text": _text(dataset), "processes": int(os.environ.get("WORLD_SIZE", "1"))}
    parameters = list(model.parameters())
    encoder = {
        "modules": [[type(module).__name__, _config(module)] for module in model],
        "dtypes": sorted({str(parameter.dtype) for parameter in parameters}),
        "dropout": dropout_rates(model),
        "template": getattr(getattr(model, "tokenizer", None), "chat_template", None),
    }
    identity["encoder"] = f"{sum(p.numel() for p in parameters)} parameters, {json_digest(encoder, _plain)}"
    identity |= _identity_of("loss", loss)
    if evaluator is not None:
        identity |= _identity_of("evaluator", evaluator)
    if isinstance(evaluator, STSEvaluator):
        rows = [[data.sentences1, data.sentences2, list(data.scores)] for data in evaluator.datasets]
        identity["evaluator.pairs"] = json_digest(rows, _plain)
    plain: dict[str, Any] = json.loads(json.dumps(identity, default=_plain, skipkeys=True))
    return plain


def check_same_run(checkpoint: Path, identity: Mapping[str, Any], *, force: bool = False) -> None:
    """Compare a training with the one that saved a checkpoint.

    Args:
        checkpoint: a whole checkpoint.
        identity: what ``run_identity`` returned.
        force: whether to log the differences instead of raising.

    Raises:
        ValueError: if they differ, unless ``force`` is set; the message names every difference.
    """
    _, before = read_marker(checkpoint)
    names = {name for name in before.keys() | identity.keys() if before.get(name) != identity.get(name)}
    differing = [
        f"{name} is {identity.get(name)!r} and was {before.get(name)!r}"
        for name in sorted(names)
        if name.split(".")[0] == name or name.split(".")[0] not in names  # not the settings of another loss
    ]
    if differing and force:
        logger.warning("Resuming from %s though %s.", checkpoint, "; ".join(differing))
    elif differing:
        raise ValueError(
            f"resume needs the settings of the interrupted training, got others: {'; '.join(differing)}; use the "
            "earlier values, continue with the new ones by force=True, or start again with overwrite=True."
        )


def _text(dataset: Dataset | IterableDataset) -> str:
    if isinstance(dataset, IterableDataset):
        return "a stream"
    blocks = dataset.with_format(None).iter(_ROWS)  # without the user's transform, which may draw random numbers
    return f"{len(dataset)} rows, digest {digest(json.dumps(rows, default=_plain) for rows in blocks)}"


def _identity_of(role: str, thing: Any) -> dict[str, Any]:
    name = getattr(thing, "name", "")
    return {role: f"{type(thing).__name__} {name}".strip()} | {
        f"{role}.{key}": value for key, value in _config(thing).items()
    }


def _config(thing: Any) -> dict[str, Any]:
    read = getattr(thing, "get_config_dict", None)
    return {} if read is None else dict(read())


def _plain(value: Any) -> Any:
    """Return a number for a numpy or torch scalar, and the name of its class for any other object."""
    item = getattr(value, "item", None)
    try:
        return type(value).__name__ if item is None else item()
    except (RuntimeError, TypeError, ValueError):
        return type(value).__name__
