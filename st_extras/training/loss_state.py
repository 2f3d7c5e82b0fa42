"""The callback that saves and restores what a loss owns, and keeps it equal in all processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.util import get_rank, get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_extras.training.marker import fault, mark_complete

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
    with its random generators. At last a ``complete.json`` lists the checkpoint's files with their sizes. Resuming
    from a checkpoint without these two, or with a file missing or cut short, raises ValueError.

    In a multi-process run the trainer synchronises the model only. This callback broadcasts the loss's parameters
    from rank 0 when training begins and averages their gradients before every optimizer step (a rank without a
    gradient counts as zero). A loss of this package that owns parameters refuses to train in several processes
    without this callback.
    """

    def __init__(self, trainer: SentenceTransformerTrainer, run: Mapping[str, Any] | None = None) -> None:
        self.trainer = trainer
        self.run = run or {}

    @classmethod
    def attach(cls, trainer: SentenceTransformerTrainer, run: Mapping[str, Any] | None = None) -> LossStateCallback:
        """Add the callback to a trainer whose ``loss`` is a loss or a dict of losses.

        Args:
            trainer: the trainer.
            run: settings to write into every checkpoint's ``complete.json``, as values that JSON knows.

        Raises:
            ValueError: if the loss has extra state that is not a tensor and cannot be saved.
        """
        callback = cls(trainer, run)
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
        """Save the loss's state to the checkpoint that was just written, and mark it as complete."""
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
        if get_world_size() > 1:
            dist.barrier()  # the marker lists the files of every rank
        if rank == 0:
            mark_complete(folder, self.run)

    def restore(self, checkpoint: str | os.PathLike[str]) -> None:
        """Load the loss's state from a checkpoint folder, in place.

        Raises:
            ValueError: if the checkpoint is incomplete, or its loss state is broken, holds a NaN or an infinite
                value, or belongs to a loss with other settings.
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
                    _set_extra_state(module, state, f"{path}.{_EXTRA}", checkpoint)

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


def _set_extra_state(module: nn.Module, state: Tensor, name: str, checkpoint: str | os.PathLike[str]) -> None:
    try:
        module.set_extra_state(state)
    except (RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{name} of the loss state in {str(checkpoint)!r} cannot be restored: {reason}.") from None


def _read(checkpoint: Path, current: dict[str, Any]) -> dict[str, Tensor]:
    """The stored state of this rank, checked to fit the ``current`` one."""
    path = checkpoint / FILE_NAME
    if not path.is_file():
        raise ValueError(
            f"checkpoint must hold {FILE_NAME}, got {str(checkpoint)!r} without it: the checkpoint was saved without "
            "LossStateCallback and cannot be resumed."
        )
    if (reason := fault(checkpoint)) is not None:
        raise ValueError(f"checkpoint must be complete, got {str(checkpoint)!r}, where {reason}: take an earlier one.")
    stored = _load(path)
    if differing := sorted(stored.keys() ^ current.keys()):
        raise ValueError(f"The loss must have the same settings as in {str(path)!r}, got others: {differing} differ.")
    for name, tensor in stored.items():
        _check_tensor(path, name, tensor, current[name])
    rank = get_rank()
    own = checkpoint / _file_name(rank)
    if rank > 0 and own.is_file():
        more = _load(own)
        if differing := sorted(more.keys() - current.keys()):
            raise ValueError(f"{str(own)!r} must hold the state of this loss, got {differing} of another one.")
        for name, tensor in more.items():
            _check_tensor(own, name, tensor, current[name])
        stored.update(more)
    elif rank > 0:
        logger.warning("%s has no random state for rank %d: starting a new one.", checkpoint, rank)
        stored = {name: tensor for name, tensor in stored.items() if not name.endswith(_EXTRA)}
    return stored


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(str(path))
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{str(path)!r} must be a safetensors file, got a broken one ({reason}).") from None


def _check_tensor(path: Path, name: str, stored: Tensor, current: Tensor) -> None:
    """Compare dtype and shape (of extra state, which may be empty, the dtype) and check that all values are finite."""
    wanted, found = (
        f"{tensor.dtype}" if name.endswith(_EXTRA) else f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        for tensor in (current, stored)
    )
    if wanted != found:
        raise ValueError(
            f"The loss must have the same settings as in {str(path)!r}, got others: {name} is {wanted} in the loss and "
            f"{found} in the file."
        )
    if not bool(stored.isfinite().all()):
        raise ValueError(f"{name} in {str(path)!r} must be finite, got NaN or an infinite value.")


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _file_name(rank: int) -> str:
    return FILE_NAME if rank == 0 else f"loss_state_rank{rank}.safetensors"
