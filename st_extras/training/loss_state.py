"""The callback that saves and restores a loss's own state, and keeps it equal in all processes."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.util import get_rank, get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_extras.encoders.adapters import check_adapters
from st_extras.encoders.structure import unwrap
from st_extras.files import follow_umask, list_files, sync_files
from st_extras.training.checkpoints import is_complete
from st_extras.training.processes import check_sharding

logger = logging.getLogger(__name__)
FILE_NAME = "loss_state.safetensors"
_RANK_FILE = "loss_state_rank{}.safetensors"  # of each further process: its random generators
_EXTRA = "_extra_state"  # how torch names a module's state that is not a tensor of its own


class LossStateCallback(TrainerCallback):
    """Saves and restores a loss's own state with every checkpoint, and averages its gradients across processes.

    The trainer's checkpoints hold the model and the optimizer but not the loss: a resumed training would begin with new
    momentum encoders, adversaries, discriminators, decoders, heads, counters and random generators. With this callback
    it ends with the SAME weights as one that was never interrupted::

        trainer = SentenceTransformerTrainer(model, args=args, train_dataset=data, loss=DCLRLoss(model))
        LossStateCallback.attach(trainer)
        trainer.train(resume_from_checkpoint=True)

    Every checkpoint folder gets a ``loss_state.safetensors`` with the tensors that belong to the loss and not to the
    trained model; tensors that share memory are stored once. In a multi-process run, each further rank adds a file
    with its random generators. Last, ``st_extras_files.json`` lists the names of the checkpoint's files: resuming from
    a checkpoint without it, or in which one of the files is missing, raises ValueError.

    In a multi-process run the trainer synchronises the model only. This callback broadcasts the loss's parameters
    from rank 0 when training begins and averages their gradients before every optimizer step (a rank without a
    gradient counts as zero). A loss of this package that owns parameters refuses to train in several processes
    without this callback.

    In ``hyperparameter_search``, every trial begins with the loss's state of the first one; the trainer makes a new
    model for each trial, but no new loss.

    The callback adds the loss's ``instruments`` to every log entry with a training loss, and so to TensorBoard and all
    other callbacks, whatever their order. ``instruments`` is a property: a dict of numbers or 0-dim tensors of the last
    training step (``noise_angle`` of DCLR, ``adversary_share`` of AdCSE ...). They are read only then, so no other step
    waits for the GPU; a multi-process run logs those of the main process. For a loss that wraps another
    (MatryoshkaLoss), the inner loss's are logged; in a dict of losses, each name begins with the data set's name and an
    underscore. NaN, as before the first step, is left out.
    """

    def __init__(self, trainer: SentenceTransformerTrainer) -> None:
        self.trainer = trainer
        self._start: dict[str, Tensor] | None = None  # of the loss, for each trial of a search

    @classmethod
    def attach(cls, trainer: SentenceTransformerTrainer) -> LossStateCallback:
        """Add the callback to a trainer whose ``loss`` is a loss or a dict of losses.

        Args:
            trainer: the trainer.

        Raises:
            ValueError: if the loss has extra state that is not a tensor and cannot be saved, or the trainer shards its
                model (FSDP, DeepSpeed) and the loss does not go with that: FSDP 2 goes with losses that own no
                parameters and make no view by a cutoff.
        """
        check_adapters(unwrap(trainer.model))
        callback = cls(trainer)
        state, losses = callback._state(), callback._losses().values()
        for name, value in state.items():
            if not isinstance(value, Tensor):
                raise ValueError(f"The loss's extra state {name!r} must be a tensor, got a {type(value).__name__}.")
        owned = [name for name, value in state.items() if isinstance(value, nn.Parameter)]
        check_sharding(vars(trainer.args), losses, owned)
        # No event tells a callback that a checkpoint is loaded, nor which: the path is an argument of train() alone.
        load = trainer._load_from_checkpoint  # noqa: SLF001

        def load_with_loss_state(resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
            callback.restore(resume_from_checkpoint)
            load(resume_from_checkpoint, *args, **kwargs)

        trainer._load_from_checkpoint = load_with_loss_state  # type: ignore[method-assign, assignment]  # noqa: SLF001
        log_instruments(trainer)
        trainer.add_callback(callback)
        for module in chain.from_iterable(loss.modules() for loss in losses):
            module.synchronised_across_processes = True  # type: ignore[assignment]
        return callback

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Copy rank 0's parameters and buffers to every process; begin each trial of a search with the same loss."""
        if state.is_hyper_param_search:  # the trainer makes a new model for each trial, and keeps its loss
            if self._start is None:
                self._start = {name: value.detach().clone() for name, value in self._state().items()}
            else:
                self._load(self._start)
        if get_world_size() > 1:
            for name, tensor in self._state().items():
                if not name.endswith(_EXTRA):
                    dist.broadcast(tensor.data, src=0)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Average the gradients of the loss's own parameters; a process without a gradient counts as zero."""
        if get_world_size() > 1:
            for tensor in self._state().values():
                if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                    if tensor.grad is None:
                        tensor.grad = torch.zeros_like(tensor)
                    dist.all_reduce(tensor.grad)
                    tensor.grad /= get_world_size()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save the loss's state to the checkpoint that was just written, and list its files: it is complete."""
        run: Any = args.output_dir
        if state.is_hyper_param_search:  # no public way leads to the folder of a trial
            run = self.trainer._get_output_dir(getattr(self.trainer, "_trial", None))  # noqa: SLF001
        folder = Path(str(run)) / f"checkpoint-{state.global_step}"
        folder.mkdir(parents=True, exist_ok=True)
        rank = get_rank()
        tensors = {
            name: x.detach().cpu().contiguous().clone()
            for name, x in self._state().items()
            if rank == 0 or name.endswith(_EXTRA)
        }
        save_file(tensors, folder / (_RANK_FILE.format(rank) if rank > 0 else FILE_NAME))
        if get_world_size() > 1:
            dist.barrier()  # the list names the files of every rank
        if rank == 0:
            follow_umask(folder)
            sync_files(folder)
            list_files(folder)

    def restore(self, checkpoint: str | os.PathLike[str]) -> None:
        """Load the loss's state from a checkpoint folder, in place.

        Raises:
            ValueError: if the checkpoint is incomplete, or its loss state belongs to a loss with other settings.
        """
        self._load(_read_state(Path(checkpoint), self._state()), str(Path(checkpoint, FILE_NAME)))

    def _load(self, stored: Mapping[str, Tensor], source: str = "") -> None:
        """Set the loss's state, in place; ``source`` names the file that it is from.

        Raises:
            ValueError: if a random state of the file is none.
        """
        current = self._state()
        for prefix, loss in self._losses().items():
            for path, module in loss.named_modules(prefix=prefix):
                if (state := stored.get(f"{path}.{_EXTRA}")) is not None:
                    try:
                        module.set_extra_state(state)
                    except ValueError as error:
                        raise ValueError(f"{source}, {path}: {error}") from None
        with torch.no_grad():
            for name, value in stored.items():
                if not name.endswith(_EXTRA):
                    current[name].copy_(value)

    def _losses(self) -> dict[str, nn.Module]:
        loss = self.trainer.loss
        return dict(loss) if isinstance(loss, dict) else {"loss": loss}

    def _state(self) -> dict[str, Any]:
        """Return the losses' own tensors by name, without those of the trained model; shared ones once."""
        model = self.trainer.model
        seen = {id(tensor) for tensor in chain(model.parameters(), model.buffers())}
        state = {}
        for prefix, loss in self._losses().items():
            for name, value in loss.state_dict(prefix=f"{prefix}.", keep_vars=True).items():
                if name.endswith(_EXTRA) or id(value) not in seen:
                    state[name] = value
                    seen.add(id(value))
        return state


def _read_state(checkpoint: Path, current: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the stored state of this process, if it fits the ``current`` one."""
    if not is_complete(checkpoint):
        raise ValueError(
            f"checkpoint must be a complete one that LossStateCallback saved, got {str(checkpoint)!r}, where a file is "
            "missing: use an earlier one."
        )
    stored = load_file(checkpoint / FILE_NAME)
    different = stored.keys() ^ current.keys() | {
        name
        for name in stored.keys() & current.keys()
        if not name.endswith(_EXTRA) and stored[name].shape != current[name].shape  # extra state may be empty
    }
    if different:
        raise ValueError(
            f"loss must be the one whose state is in {str(checkpoint / FILE_NAME)!r}, got one with another "
            f"{min(different)!r}: give it the settings that it had, or use an earlier checkpoint."
        )
    rank_file = checkpoint / _RANK_FILE.format(get_rank())
    if get_rank() > 0 and rank_file.is_file():
        stored |= load_file(rank_file)
    elif get_rank() > 0:
        logger.warning("%s has no random state for rank %d: starting a new one.", checkpoint, get_rank())
        stored = {name: tensor for name, tensor in stored.items() if not name.endswith(_EXTRA)}
    return stored


# --- instruments ---


def log_instruments(trainer: SentenceTransformerTrainer) -> None:
    """Add the losses' instruments to each entry of the trainer's log that has a training loss.

    They are read only then, so no other step waits for the GPU. NaN is left out, and a name that the entry already has
    keeps its value.
    """
    # The event on_log comes after the entry is written, and in the order of the callbacks: those before would miss it.
    log = trainer.log

    def log_with_instruments(logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        measured = _numbers(trainer.loss) if "loss" in logs else {}
        log(logs | {name: value for name, value in measured.items() if name not in logs}, *args, **kwargs)

    trainer.log = log_with_instruments  # type: ignore[method-assign]


def _numbers(losses: Any) -> dict[str, float]:
    """Return the instruments as numbers; for a dict of losses, each name begins with the data set's name."""
    named = {f"{prefix}_": loss for prefix, loss in losses.items()} if isinstance(losses, dict) else {"": losses}
    values = {
        f"{prefix}{name}": float(value) for prefix, loss in named.items() for name, value in _instruments(loss).items()
    }
    return {name: value for name, value in values.items() if not math.isnan(value)}


def _instruments(loss: nn.Module) -> dict[str, Any]:
    """Return the instruments of a loss, or of the losses that it wraps if it has no instruments itself."""
    instruments: dict[str, Any] | None = getattr(loss, "instruments", None)
    if instruments is not None or isinstance(loss, SentenceTransformer):
        return instruments or {}
    return {name: value for part in loss.children() for name, value in _instruments(part).items()}
