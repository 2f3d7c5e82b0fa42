"""Run by test_gradient_cache.py in two gloo processes: each has one half of a batch, and encodes it in mini-batches."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from torch.nn.parallel import DistributedDataParallel

from tests.helpers import end_process
from tests.losses.parts.test_gradient_cache import LOSSES, many_sentences, state_and_gradients, still_loss


def main(path: str) -> None:
    dist.init_process_group("gloo")
    folder, rank = Path(path), int(os.environ["RANK"])
    texts = many_sentences(16)[8 * rank : 8 * (rank + 1)]
    for number, name in enumerate(LOSSES):
        model = SentenceTransformer(str(folder / "model"), device="cpu").train()
        loss = still_loss(name, model.double(), mini_batch_size=3).double()
        for module in loss.modules():
            module.synchronised_across_processes = True  # type: ignore[assignment]
        for tensor in [*loss.parameters(), *loss.buffers()]:
            dist.broadcast(tensor.data, src=0)  # each process draws adversaries of its own
        batch = [model.preprocess(texts)]
        loss.model = DistributedDataParallel(model, find_unused_parameters=True)  # type: ignore[assignment]
        for _ in range(2):
            model.zero_grad()
            loss.zero_grad()
            value = loss(batch)
            value.backward()
        loss.model = model
        found = state_and_gradients(loss, value)
        for key, tensor in found.items():
            if key == "value" or "projection_head" in key:  # DDP has averaged the encoder's gradients
                dist.all_reduce(tensor)
                found[key] = tensor / 2
        save_file(found, str(folder / f"{number}-{rank}.safetensors"))
    end_process()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
