"""Keeps what a loss owns: across restarts, and equal in all processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from sentence_transformers import (
    SentenceTransformerTrainer,
)
from sentence_transformers.util import get_rank, get_world_size
from torch import Tensor, nn
from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

logger = logging.getLogger(__name__)
FILE_NAME = "loss_state.safetensors"
_EXTRA = "_extra_state"


class LossStateCallback(TrainerCallback):
    """Saves and restores what a loss owns with every checkpoint, and averages its gradients across processes.

    The trainer's checkpoints hold the model and the optimizer, but nothing of the loss: momentum copies,
    adversaries, discriminators, decoders, heads, counters and random generators would start anew. With this
    callback a resumed run ends with the SAME weights as one that never stopped::

        trainer = SentenceTransformerTrainer(model, args=args, train_dataset=data, loss=DCLRLoss(model))
        LossStateCallback.attach(trainer)
        trainer.train(resume_from_checkpoint=True)

    Each checkpoint folder gets a ``loss_state.safetensors`` (tensors of the trained model left out, shared tensors
    once) and, in multi-process runs, a file with the random generators of every further rank. A checkpoint
    without it refuses to resume.

    In a multi-process run the trainer wraps the model alone: parameters of the loss are broadcast from rank 0 by
    this callback when training begins, and their gradients averaged before every optimizer step (a rank without
    a gradient counts as zero). A loss of this package that owns parameters refuses such a run without it.
    """

    def __init__(self, trainer: SentenceTransformerTrainer) -> None:
        self.trainer = trainer

    @classmethod
    def attach(cls, trainer: SentenceTransformerTrainer) -> LossStateCallback:
        """Add the callback to a trainer, whose ``loss`` is a loss or a dict of losses.

        Raises:
            ValueError: the loss holds extra state that is no tensor and so cannot be saved.
        """
        callback = cls(trainer)
        for name, value in callback._state().items():
            if not isinstance(value, Tensor):
                raise ValueError(f"The loss's extra state {name!r} is a {type(value).__name__}, not a tensor.")
        load = trainer._load_from_checkpoint

        def load_with_loss_state(resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
            callback.restore(resume_from_checkpoint)
            load(resume_from_checkpoint, *args, **kwargs)

        trainer._load_from_checkpoint = load_with_loss_state  # type: ignore[method-assign, assignment]
        trainer.add_callback(callback)
        for loss in callback._losses().values():
            for module in loss.modules():
                module.synchronised_across_processes = True  # type: ignore[assignment]
        return callback

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start from rank 0's parameters and buffers in every process."""
        if get_world_size() > 1:
            for name, tensor in self._state().items():
                if not name.endswith(_EXTRA):
                    dist.broadcast(tensor.data, src=0)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Average the gradients of the loss's own parameters over the processes."""
        if get_world_size() > 1:
            for tensor in self._state().values():
                if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                    if tensor.grad is None:
                        tensor.grad = torch.zeros_like(tensor)
                    dist.all_reduce(tensor.grad)
                    tensor.grad /= get_world_size()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the loss's state into the checkpoint that was just saved."""
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        folder.mkdir(parents=True, exist_ok=True)
        rank = get_rank()
        tensors = {
            name: tensor.detach().cpu().contiguous().clone()
            for name, tensor in self._state().items()
            if rank == 0 or name.endswith(_EXTRA)
        }
        target = folder / _file_name(rank)
        partial = target.with_suffix(".partial")
        save_file(tensors, str(partial))
        os.replace(partial, target)

    def restore(self, checkpoint: str | os.PathLike[str]) -> None:
        """Load the loss's state from a checkpoint folder, in place.

        Raises:
            ValueError: the folder holds no loss state, or that of a loss with other settings.
        """
        path = Path(checkpoint) / FILE_NAME
        if not path.is_file():
            raise ValueError(
                f"{str(path)!r} does not exist: the checkpoint was written without LossStateCallback, so the state of "
                "the loss is lost and training cannot be resumed as if it had never stopped."
            )
        stored = load_file(str(path))
        current = self._state()
        if stored.keys() != current.keys() or any(
            stored[name].shape != tensor.shape for name, tensor in current.items() if not name.endswith(_EXTRA)
        ):
            differing = sorted(stored.keys() ^ current.keys()) or "the shapes"
            raise ValueError(f"{str(path)!r} belongs to a loss with other settings: {differing} differ.")
        own = Path(checkpoint) / _file_name(get_rank())
        if get_rank() > 0 and own.is_file():
            stored.update(load_file(str(own)))
        elif get_rank() > 0:
            logger.warning("%s has no random state of rank %d: starting a new stream.", checkpoint, get_rank())
            stored = {name: tensor for name, tensor in stored.items() if not name.endswith(_EXTRA)}
        with torch.no_grad():
            for name in stored.keys() - {name for name in stored if name.endswith(_EXTRA)}:
                current[name].copy_(stored[name])
        for prefix, loss in self._losses().items():
            for path_in_loss, module in loss.named_modules(prefix=prefix):
                state = stored.get(f"{path_in_loss}.{_EXTRA}")
                if state is not None:
                    module.set_extra_state(state)

    def _losses(self) -> dict[str, nn.Module]:
        loss = self.trainer.loss
        return dict(loss) if isinstance(loss, dict) else {"loss": loss}

    def _state(self) -> dict[str, Any]:
        """The tensors that the losses own, each once; none of the trained model's."""
        model = self.trainer.model
        seen = {id(tensor) for tensor in _tensors(model)}
        state = {}
        for prefix, loss in self._losses().items():
            for name, value in loss.state_dict(prefix=f"{prefix}.", keep_vars=True).items():
                if name.endswith(_EXTRA) or id(value) not in seen:
                    state[name] = value
                    seen.add(id(value))
        return state


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _file_name(rank: int) -> str:
    return FILE_NAME if rank == 0 else f"loss_state_rank{rank}.safetensors"
