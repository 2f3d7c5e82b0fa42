"""Run by test_discriminator.py in two gloo processes: each shows the discriminator one half of the answers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from st_extras.losses.parts.discriminator import Discriminator
from tests.helpers import draw, end_process


def batch(rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits (3, 5, 2), labels (3, 5) and which entries count (3, 5) that this process sees."""
    logits = draw(3, 5, 2, seed=rank)
    return logits, (draw(3, 5, seed=10 + rank) > 0).long(), draw(3, 5, seed=20 + rank) > -0.5


def main(folder: str) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    discriminator = Discriminator(4)
    for _ in range(2):
        discriminator.observe(*batch(rank))
    with torch.no_grad():
        discriminator.observe(*batch(rank))
    save_file({"confusion": discriminator.confusion}, str(Path(folder) / f"confusion{rank}.safetensors"))
    end_process()


if __name__ == "__main__":
    main(*sys.argv[1:])
