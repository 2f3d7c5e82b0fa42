"""Run by test_distributed.py in two gloo processes: a short training with every loss, and what else the ranks share."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch import Tensor

from st_extras.encoders.dropout import set_dropout
from st_extras.losses import AdCSELoss, DCLRLoss, SimCSELoss
from st_extras.losses.parts import instance_weights
from st_extras.random_source import RandomSource
from st_extras.training import DivergenceError, LossStateCallback, train_encoder
from tests.helpers import arguments, draw, end_process
from tests.losses.cases import owned
from tests.training.every_loss import RUNS, TEXTS, gradients, short_training, weights

SHARDED = ("simcse", "consert, mini-batches", "dclr, noise of each rank")
"""Runs whose losses own no parameters and need none of the model's."""
ROWS = torch.arange(8 * 16, dtype=torch.float32).reshape(8, 16).remainder(7)
"""Inputs of a head; each of two ranks takes half of them."""


class BrokenOnOneRank(SimCSELoss):
    """One of its values is NaN on rank 1, without a trace in the gradients."""

    calls, broken = 0, 2

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        value = super().forward(sentence_features, labels)
        self.calls += 1
        return value + float("nan") if self.calls == self.broken and os.environ["RANK"] == "1" else value


class BrokenAtTheEndOfAnEpoch(BrokenOnOneRank):
    """Of the three steps that two ranks need for 24 texts."""

    broken = 6


def divergence(encoder: str, kind: Any, output: Path, **options: Any) -> str:
    """The error of a training."""
    settings = {"batch_size": 4, "eval_steps": 4, "show_progress_bar": False} | options
    model = SentenceTransformer(encoder, device="cpu")
    set_dropout(model, 0.1)  # equal views would end it
    try:
        train_encoder(model, kind, TEXTS, output, **settings)
    except DivergenceError as error:
        return str(error)
    return "no error"


def attached(loss: Any, folder: Path) -> tuple[LossStateCallback, tuple[Any, ...]]:
    """The callback of a trainer, and what its events are called with."""
    trainer = SentenceTransformerTrainer(loss.model, args=arguments(folder, ddp_backend="gloo"), loss=loss)
    return LossStateCallback.attach(trainer), (trainer.args, trainer.state, trainer.control)


def set_head(head: list[Tensor]) -> None:
    with torch.no_grad():
        for value in head:
            value.fill_(0.1)


def head_value(head: list[Tensor], rows: Tensor) -> Tensor:
    return (rows @ head[0].T + head[1]).tanh().square().mean()


def owned_gradients(model: SentenceTransformer, folder: Path, rank: int) -> dict[str, Tensor]:
    """The gradients of a head after each rank saw its half of ROWS, and where rank 1 has no gradient."""
    loss, found = SimCSELoss(model, projection=True), {}
    (callback, event), head = attached(loss, folder), list(owned(loss, model).values())
    set_head(head)
    for name in ("both", "rank 0 alone"):
        loss.zero_grad()
        if name == "both" or rank == 0:
            head_value(head, ROWS[4 * rank : 4 * rank + 4]).backward()
        callback.on_pre_optimizer_step(*event)
        found[f"gradients {name}"] = torch.cat([p.grad.flatten() for p in head if p.grad is not None])
    return found


def noise_after_restoring(model: SentenceTransformer, folder: Path) -> dict[str, Tensor]:
    """What a rank draws after a checkpoint, and what it draws after restoring the checkpoint in another loss."""
    drawn = {}
    for seed, name in ((1, "saved"), (2, "restored")):
        loss = DCLRLoss(model)
        callback, event = attached(loss, folder)
        source = next(module for module in loss.modules() if isinstance(module, RandomSource))
        torch.manual_seed(seed)  # the trainer has set another
        torch.randn(3 * seed, generator=source.on(torch.device("cpu")))
        if seed == 1:
            callback.on_save(*event)
            dist.barrier()
        else:
            callback.restore(folder / "checkpoint-0")
        drawn[name] = torch.randn(3, generator=source.on(torch.device("cpu")))
    return drawn


def near_pairs() -> tuple[Tensor, Tensor]:
    """Anchors and positives next to them: an own candidate taken for a negative is the most similar one."""
    return draw(8, 16), draw(8, 16) + 0.1 * draw(8, 16, seed=1)


def threshold_of_some_rows(model: SentenceTransformer, rank: int) -> Tensor:
    """The threshold of a batch of which only the first two rows of each rank are compared, with all candidates."""
    whole, instance_weights._MOST_PAIRS = instance_weights._MOST_PAIRS, 32
    loss = DCLRLoss(model, complementary_model="self", masked_share=0.3, noise_ratio=0, gather_across_devices=True)
    mine = slice(4 * rank, 4 * rank + 4)
    anchors, positives = near_pairs()
    loss.compute_loss_from_embeddings([anchors[mine], positives[mine]])
    instance_weights._MOST_PAIRS = whole
    return loss.instruments["threshold"].double()


def refusal(loss: Any) -> str:
    """The message of a loss whose parameters nothing keeps equal in the processes."""
    try:
        loss([loss.model.preprocess(["a cat", "the dog"])])
    except ValueError as error:
        return str(error)
    return ""


def main(encoder: str, folder: str) -> None:
    rank, out = int(os.environ["RANK"]), Path(folder)
    for name in RUNS:
        save_file(weights(short_training(name, encoder, out / name, [rank])), str(out / f"{name}.{rank}.safetensors"))
    for name in SHARDED:
        save_file(gradients(name, encoder, [rank], sharded=True), str(out / f"{name}.{rank}.sharded.safetensors"))
    epochs = {"epochs": 3, "save_strategy": "epoch", "logging_strategy": "no"}
    messages = [
        divergence(encoder, BrokenOnOneRank, out / "diverged", max_steps=6, logging_steps=3),
        divergence(encoder, BrokenAtTheEndOfAnEpoch, out / "epochs", **epochs),
    ]
    (out / f"diverged.{rank}.txt").write_text("\n".join(messages), encoding="utf8")
    model = SentenceTransformer(encoder, device="cpu")
    owners = SimCSELoss(model, projection=True), AdCSELoss(model, projection=False)
    refused = ["LossStateCallback.attach(trainer)" in refusal(loss) for loss in owners]
    found = {"refused": torch.tensor(refused), "threshold": threshold_of_some_rows(model, rank)}
    found |= owned_gradients(model, out / "gradients", rank) | noise_after_restoring(model, out / "noise")
    save_file(found, str(out / f"shared.{rank}.safetensors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
    end_process()
