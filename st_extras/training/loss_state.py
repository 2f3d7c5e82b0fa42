"""The callback that saves and restores what a loss owns, and keeps it equal in all processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.util import get_rank, get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

logger = logging.getLogger(__name__)
FILE_NAME = "loss_state.safetensors"
_EXTRA = "_extra_state"


class LossStateCallback(TrainerCallback):
    """Saves and restores what a loss owns with every checkpoint, and averages its gradients across processes.

    The trainer's checkpoints hold the model and the optimizer but not the loss: after a resume, momentum encoders,
    adversaries, discriminators, decoders, heads, counters and random generators would start afresh. With this
    callback a resumed run ends with the SAME weights as one that was never interrupted::

        trainer = SentenceTransformerTrainer(model, args=args, train_dataset=data, loss=DCLRLoss(model))
        LossStateCallback.attach(trainer)
        trainer.train(resume_from_checkpoint=True)

    Every checkpoint folder gets a ``loss_state.safetensors`` with the tensors that belong to the loss and not to the
    trained model; tensors that share memory are stored once. In a multi-process run, each further rank adds a file
    with its random generators. Resuming from a checkpoint without ``loss_state.safetensors`` raises ValueError.

    In a multi-process run the trainer synchronises the model only. This callback broadcasts the loss's parameters
    from rank 0 when training begins and averages their gradients before every optimizer step (a rank without a
    gradient counts as zero). A loss of this package that owns parameters refuses to train in several processes
    without this callback.
    """

    def __init__(self, trainer: SentenceTransformerTrainer) -> None:
        self.trainer = trainer

    @classmethod
    def attach(cls, trainer: SentenceTransformerTrainer) -> LossStateCallback:
        """Add the callback to a trainer whose ``loss`` is a loss or a dict of losses.

        Raises:
            ValueError: if the loss has extra state that is not a tensor and cannot be saved.
        """
        callback = cls(trainer)
        for name, value in callback._state().items():
            if not isinstance(value, Tensor):
                raise ValueError(f"The loss's extra state {name!r} must be a tensor, got {type(value).__name__}.")
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
        """Copy rank 0's parameters and buffers to every process."""
        if get_world_size() > 1:
            for name, tensor in self._state().items():
                if not name.endswith(_EXTRA):
                    dist.broadcast(tensor.data, src=0)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Average the gradients of the loss's own parameters across processes."""
        if get_world_size() > 1:
            for tensor in self._state().values():
                if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                    if tensor.grad is None:
                        tensor.grad = torch.zeros_like(tensor)
                    dist.all_reduce(tensor.grad)
                    tensor.grad /= get_world_size()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save the loss's state to the checkpoint that was just written."""
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
            ValueError: if the folder holds no loss state, or the state of a loss with other settings.
        """
        current = self._state()
        stored = _read(Path(checkpoint), current)
        with torch.no_grad():
            for name, value in stored.items():
                if not name.endswith(_EXTRA):
                    current[name].copy_(value)
        for prefix, loss in self._losses().items():
            for path, module in loss.named_modules(prefix=prefix):
                state = stored.get(f"{path}.{_EXTRA}")
                if state is not None:
                    module.set_extra_state(state)

    def _losses(self) -> dict[str, nn.Module]:
        loss = self.trainer.loss
        return dict(loss) if isinstance(loss, dict) else {"loss": loss}

    def _state(self) -> dict[str, Any]:
        """The tensors that the losses own, each once and without those of the trained model."""
        model = self.trainer.model
        seen = {id(tensor) for tensor in _tensors(model)}
        state = {}
        for prefix, loss in self._losses().items():
            for name, value in loss.state_dict(prefix=f"{prefix}.", keep_vars=True).items():
                if name.endswith(_EXTRA) or id(value) not in seen:
                    state[name] = value
                    seen.add(id(value))
        return state


def _read(checkpoint: Path, current: dict[str, Any]) -> dict[str, Tensor]:
    """The stored state of this rank, checked to fit the ``current`` one."""
    path = checkpoint / FILE_NAME
    if not path.is_file():
        raise ValueError(
            f"checkpoint must hold {FILE_NAME}, got {str(checkpoint)!r} without it: the checkpoint was saved without "
            "LossStateCallback and cannot be resumed."
        )
    stored = load_file(str(path))
    if stored.keys() != current.keys() or any(
        stored[name].shape != tensor.shape for name, tensor in current.items() if not name.endswith(_EXTRA)
    ):
        differing = sorted(stored.keys() ^ current.keys()) or "the shapes"
        raise ValueError(f"The loss must have the same settings as in {str(path)!r}, got others: {differing} differ.")
    rank = get_rank()
    own = checkpoint / _file_name(rank)
    if rank > 0 and own.is_file():
        stored.update(load_file(str(own)))
    elif rank > 0:
        logger.warning("%s has no random state for rank %d: starting a new one.", checkpoint, rank)
        stored = {name: tensor for name, tensor in stored.items() if not name.endswith(_EXTRA)}
    return stored


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _file_name(rank: int) -> str:
    return FILE_NAME if rank == 0 else f"loss_state_rank{rank}.safetensors"
