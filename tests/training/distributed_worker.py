"""Run by test_distributed.py in two processes: gather, noise streams, and equal heads on every rank."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sentence_transformers import SentenceTransformer

from st_extras.losses import DCLRLoss, SimCSELoss
from tests.helpers import columns, train


def main(encoder: str, folder: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    out: dict[str, object] = {}

    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(8, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    mine = slice(4 * rank, 4 * rank + 4)
    model = SentenceTransformer(encoder, device="cpu")
    for name, loss in (
        ("simcse", SimCSELoss(model, gather_across_devices=True)),
        (
            "dclr",
            DCLRLoss(model, gather_across_devices=True, noise_ratio=0, complementary_model="self", threshold=0.2),
        ),
    ):
        x, y = a[mine].clone().requires_grad_(), b[mine].clone().requires_grad_()
        value = loss.compute_loss_from_embeddings([x, y])
        value.backward()
        out[name] = (value.detach(), x.grad, y.grad)
    source = DCLRLoss(model).noise.source
    out["noise"] = torch.randn(3, generator=source.on(torch.device("cpu")))

    drifting = SimCSELoss(model, projection=True)
    try:
        drifting([model.preprocess(["a cat", "the dog"])])
        out["refused"] = ""
    except ValueError as error:
        out["refused"] = str(error)

    torch.manual_seed(rank)  # heads that start apart
    head = SimCSELoss(model, projection=True)
    sentences = [
        f"{x} {y}" for x in ("a cat", "the dog", "two birds") for y in ("sat", "ran", "sing", "near", "the river")
    ]
    train(model, head, columns(sentences), Path(folder) / "run", ddp_find_unused_parameters=True, ddp_backend="gloo")
    out["head"] = head.projection_head.state_dict()  # type: ignore[union-attr]
    out["model"] = {name: p.detach().clone() for name, p in model.named_parameters()}
    torch.save(out, Path(folder) / f"rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
