"""Random numbers for a loss, from its own generator, whose state is saved in checkpoints."""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from st_extras.checks import check_instance

logger = logging.getLogger(__name__)
_LARGEST_OTHER_STATE = 64
"""Bytes; the states of other devices' generators are small (CUDA: 16)."""
_RANK_STRIDE = 1_000_003


class RandomSource(nn.Module):
    """A torch.Generator as part of a module: made at its first use, saved in ``state_dict()``.

    It is seeded from torch's initial seed and the process's rank, so ``set_seed`` determines it and its draws do not
    change other random numbers; or it is the user's. While gradients are disabled, a copy is used, so that an
    evaluation does not change its state.

    Args:
        generator: the user's generator, on the device of the tensors to draw. None: one is made.
        salt: added to the seed, so that several sources of one loss differ.

    Raises:
        ValueError: if ``generator`` is neither a torch.Generator nor None.
    """

    def __init__(self, generator: torch.Generator | None = None, salt: int = 0) -> None:
        super().__init__()
        self.generator: torch.Generator | None = check_instance("generator", generator, torch.Generator, or_none=True)
        self._given = generator is not None
        self.salt = salt
        self._restored: Tensor | None = None

    def on(self, device: torch.device) -> torch.Generator:
        """Return the generator for tensors on ``device``; a copy while gradients are disabled.

        Raises:
            ValueError: if the user's generator is on another device.
        """
        generator = self.generator
        if generator is not None and not self._given and generator.device.type != device.type:
            logger.warning("The model has moved to another kind of device: starting a new random stream.")
            generator = None
        if generator is None:
            generator = torch.Generator(device)
            if self._restored is not None and self._restored.shape == generator.get_state().shape:
                generator.set_state(self._restored)
            else:
                if self._restored is not None:
                    logger.warning("The saved random state comes from another kind of device: starting a new stream.")
                rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
                generator.manual_seed((torch.initial_seed() + self.salt + _RANK_STRIDE * rank) % 2**63)
            if torch.is_grad_enabled():
                self.generator, self._restored = generator, None
        elif generator.device.type != device.type:
            raise ValueError(
                f"generator must be on the embeddings' device, {device}, got one on {generator.device}: use "
                f"torch.Generator({str(device)!r})."
            )
        if torch.is_grad_enabled():
            return generator
        copy = torch.Generator(device)
        copy.set_state(generator.get_state())
        return copy

    def get_extra_state(self) -> Tensor:
        """Return the state as a uint8 tensor; empty before the first use."""
        if self.generator is not None:
            return self.generator.get_state()
        return torch.empty(0, dtype=torch.uint8) if self._restored is None else self._restored

    def set_extra_state(self, state: Tensor) -> None:
        """Continue from a state that ``get_extra_state`` returned.

        Raises:
            ValueError: if it has the size of no generator's state.
        """
        state = state.detach().cpu().to(torch.uint8)
        whole = torch.get_rng_state().numel()
        if state.ndim != 1 or _LARGEST_OTHER_STATE < state.numel() != whole:
            raise ValueError(
                f"a random state must have {whole} bytes on the CPU, got shape {tuple(state.shape)}: it is damaged."
            )
        if state.numel() == 0:
            return
        if self.generator is not None and self.generator.get_state().shape == state.shape:
            self.generator.set_state(state)
        else:
            self.generator, self._restored = None, state
