"""Several processes: what a loss does differently in a run of them."""

from __future__ import annotations

import atexit
import functools

import torch
import torch.distributed as dist
from sentence_transformers.util import all_gather_with_grad, get_rank, get_world_size
from torch import Tensor, nn


@functools.cache
def leave_processes_at_exit() -> None:
    """Close the process group when the interpreter ends; to be called where nothing is left to exchange.

    While the interpreter is taken apart, threads of a group that is still open may release tensors, which ends the
    process with an abort (pytorch/pytorch issue 190489). After a failure, closing could wait for the others for ever.
    """
    atexit.register(_leave_processes)


def _leave_processes() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def gather_rows(x: Tensor, across_devices: bool) -> tuple[Tensor, int]:
    """Gather the rows of all processes, with gradients.

    Returns:
        The rows, and the index of this process's first row among them. Without ``across_devices``, or in a single
        process: ``x`` and 0.
    """
    if not across_devices or get_world_size() == 1:
        return x, 0
    gathered: Tensor = all_gather_with_grad(x.contiguous())
    return gathered, get_rank() * x.size(0)


def sum_over_processes(x: Tensor) -> Tensor:
    """Add up a tensor without gradients over all processes, in place, and return it."""
    if get_world_size() > 1:
        dist.all_reduce(x)
    return x


def require_synchronised(owned: nn.Module) -> None:
    """Refuse to train a loss's own parameters in several processes if nothing keeps them equal.

    Raises:
        ValueError: if LossStateCallback is not attached to the trainer of a multi-process run.
    """
    if get_world_size() > 1 and torch.is_grad_enabled() and not getattr(owned, "synchronised_across_processes", False):
        raise ValueError(
            "This loss owns parameters, which the trainer does not keep equal across processes: call "
            "st_extras.training.LossStateCallback.attach(trainer) before training."
        )
