"""Run by test_distributed.py in two processes: gather, noise streams, gradients and heads on every rank."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

from st_extras.losses import DCLRLoss, SimCSELoss
from st_extras.training import LossStateCallback
from tests.helpers import arguments, columns, end_process, train

ROWS = torch.arange(8 * 16, dtype=torch.float32).reshape(8, 16).remainder(7)
"""Embeddings of a batch; each of two ranks takes half of them."""


def owned_gradients(model: SentenceTransformer, folder: Path) -> dict[str, torch.Tensor]:
    """The gradients of a head after each rank saw its half of ROWS, and where rank 1 has no gradient."""
    loss = SimCSELoss(model, projection=True)
    trainer = SentenceTransformerTrainer(model, args=arguments(folder, ddp_backend="gloo"), loss=loss)
    callback = LossStateCallback.attach(trainer)
    head = loss.step.projection_head
    if head is None:
        raise TypeError
    with torch.no_grad():
        for value in head.parameters():
            value.fill_(0.1)
    rank, found = dist.get_rank(), {}
    for name in ("both", "rank 0 alone"):
        head.zero_grad()
        if name == "both" or rank == 0:
            head(ROWS[4 * rank : 4 * rank + 4]).square().mean().backward()
        callback.on_pre_optimizer_step(trainer.args, trainer.state, trainer.control)
        found[name] = torch.cat([p.grad.flatten() for p in head.parameters() if p.grad is not None])
    return found


def noise_after_restoring(encoder: str, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """What a rank draws after a checkpoint, and what it draws after restoring the checkpoint in another loss."""
    drawn = []
    for seed in (1, 2):
        model = SentenceTransformer(encoder, device="cpu")
        loss = DCLRLoss(model)
        trainer = SentenceTransformerTrainer(model, args=arguments(folder, ddp_backend="gloo"), loss=loss)
        callback = LossStateCallback.attach(trainer)
        torch.manual_seed(seed)  # the trainer has set another
        torch.randn(3 * seed, generator=loss.noise.source.on(torch.device("cpu")))
        if seed == 1:
            callback.on_save(trainer.args, trainer.state, trainer.control)
            dist.barrier()
        else:
            callback.restore(folder / "checkpoint-0")
        drawn.append(torch.randn(3, generator=loss.noise.source.on(torch.device("cpu"))))
    return drawn[0], drawn[1]


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

    out["gradients"] = owned_gradients(model, Path(folder) / "gradients")
    out["restored"] = noise_after_restoring(encoder, Path(folder) / "noise")

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
    out["head"] = head.step.projection_head.state_dict()  # type: ignore[union-attr]
    out["model"] = {name: p.detach().clone() for name, p in model.named_parameters()}
    torch.save(out, Path(folder) / f"rank{rank}.pt")
    end_process()


if __name__ == "__main__":
    main(*sys.argv[1:])
