"""Several processes: the rank of this one, and no shards of a model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch.distributed as dist
from sentence_transformers.util import get_rank
from torch import nn

from st_extras.losses.parts.views import CUTOFFS, ViewMaker


def launched_rank() -> int:
    """Return the rank of this process, also before the process group exists; 0 in a single process."""
    if dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return int(get_rank())
    return int(os.environ.get("RANK", "0"))


def refuse_sharding(settings: Mapping[str, Any]) -> None:
    """Refuse FSDP and DeepSpeed, which give each process a shard of the model, for ``train_encoder``.

    Args:
        settings: the trainer's arguments that were given.

    Raises:
        ValueError: if the arguments or ``accelerate launch`` ask for one of them.
    """
    if (kind := sharder(settings)) is not None:
        raise ValueError(
            f"train_encoder needs the whole model in every process, to score and save it, got {kind}: train without "
            "it (a large encoder with lora=16), or use SentenceTransformerTrainer with a loss that has no parameters."
        )


def check_sharding(settings: Mapping[str, Any], losses: Iterable[nn.Module], owned: Collection[str]) -> None:
    """Check that a trainer that shards its model can compute and save these losses.

    Args:
        settings: the trainer's arguments.
        losses: the losses.
        owned: names of the parameters that belong to the losses.

    Raises:
        ValueError: if the model is sharded and the losses own parameters or read the model's, or if it is sharded by
            anything but FSDP 2.
    """
    kind = sharder(settings)
    if kind is None:
        return
    if owned:
        raise ValueError(
            f"A loss with its own parameters ({next(iter(owned))!r} and others) must be trained without {kind}, "
            "which shards and trains only the model's: use torchrun or accelerate launch without it."
        )
    if kind != "FSDP 2":
        raise ValueError(
            f"LossStateCallback goes with DistributedDataParallel and FSDP 2, got {kind}, which replaces the model's "
            'parameters: use fsdp=True with fsdp_config={"version": 2}.'
        )
    views = [module for loss in losses for module in loss.modules() if isinstance(module, ViewMaker)]
    if cutoffs := [name for view in views for name in view.augmentations if name in CUTOFFS]:
        raise ValueError(
            f"augmentations must be 'shuffle', 'dropout' or 'none' with {kind}, got {cutoffs[0]!r}: it reads the word "
            f"embeddings outside of the encoder's pass, where they are sharded; or train without {kind}."
        )


def sharder(settings: Mapping[str, Any]) -> str | None:
    """Return "FSDP 1", "FSDP 2" or "DeepSpeed" if the arguments or ``accelerate launch`` ask for it, else None."""
    if settings.get("deepspeed") or _is_set("ACCELERATE_USE_DEEPSPEED"):
        return "DeepSpeed"
    if settings.get("fsdp"):
        config = settings.get("fsdp_config")
        config = config if isinstance(config, Mapping) else {}
        return f"FSDP {config.get('version', config.get('fsdp_version', 2))}"
    return f"FSDP {os.environ.get('FSDP_VERSION', '1')}" if _is_set("ACCELERATE_USE_FSDP") else None


def _is_set(name: str) -> bool:
    return os.environ.get(name, "false").lower() in {"1", "true", "yes"}
