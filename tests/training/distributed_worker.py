"""Every loss in two gloo processes, which test_distributed.py starts, or in one; and what else the ranks share."""

import functools
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from datasets import Dataset
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from st_extras.encoders.dropout import set_dropout
from st_extras.losses import AdCSELoss, DCLRLoss, SimCSELoss
from st_extras.losses.parts import instance_weights
from st_extras.random_source import RandomSource
from st_extras.training import DivergenceError, LossStateCallback, TrainingRun, train_encoder
from tests.fixtures import SENTENCES
from tests.helpers import arguments, draw, end_process, generator
from tests.losses.cases import CASES, EVERY_TOKEN, Case, instruments, owned

WORDS = ["cat", "dog", "birds"]
TEXTS = [f"{sentence.rsplit(' ', 1)[0]} {word}" for word in WORDS for sentence in SENTENCES]
"""24 texts, the last words of which have one token: both halves of a batch have as many."""


@dataclass(frozen=True)
class Run:
    """A loss, and how one process gets the result of two.

    Attributes:
        case: the loss.
        options: settings beside the case's.
        alone: settings of the one process beside those.
        columns: number of columns of its data.
    """

    case: Case
    options: dict[str, Any] = field(default_factory=dict)
    alone: dict[str, Any] = field(default_factory=dict)
    columns: int = 2

    def make(self, model: SentenceTransformer, ranks: Sequence[int]) -> nn.Module:
        """The loss; heads, decoders, discriminators and adversaries start apart on two ranks."""
        alone = self.alone if len(ranks) > 1 else {}
        return self.case.make(model, seed=ranks[0], **self.options | alone).double()


_ALL = {"gather_across_devices": True}
_CUT: dict[str, Any] = {"options": _ALL | {"mini_batch_size": 3}, "alone": {"mini_batch_size": None}}
_DROPOUT = {"augmentations": ("dropout", "dropout")}
_one = functools.partial(Run, columns=1)


def _generator(model: SentenceTransformer) -> torch.Generator:
    return generator(3)


def _over(base: Any, **options: Any) -> Case:
    return Case(CASES["slt-fai"].kind, EVERY_TOKEN, base=functools.partial(base, **_ALL | options))


RUNS = {
    "simcse": Run(CASES["simcse"], _ALL),
    "simcse, head, mini-batches": Run(CASES["simcse, head"], **_CUT),
    "consert, mini-batches": Run(CASES["consert"], _CUT["options"] | _DROPOUT, _CUT["alone"]),
    "dclr": Run(CASES["dclr"], _ALL | {"noise_ratio": 0, "projection": True}),
    "dclr, share, mini-batches": Run(
        CASES["dclr, share of start"], _CUT["options"] | {"noise_ratio": 0}, _CUT["alone"]
    ),
    "dclr, noise of one generator": Run(
        CASES["dclr"], _ALL | {"noise_ratio": 2, "noise_steps": 0, "generator": _generator}, {"noise_ratio": 1}
    ),
    "adcse, mini-batches": Run(CASES["adcse"], **_CUT),
    "adcse, tied": Run(CASES["adcse, tied"], _ALL),
    "adcse, features": Run(CASES["adcse, features"], _ALL),
    "frequency": _one(CASES["frequency"]),
    "frequency, confusion": _one(CASES["frequency, confusion"]),
    "incomplete": _one(CASES["incomplete"], EVERY_TOKEN),
    "slt-fai, over adcse": Run(_over(AdCSELoss, num_adversaries=6, adversary_learning_rate=0.1, momentum=0.5)),
    "paser, own output": _one(CASES["paser, own output"]),
}


def load(folder: str) -> SentenceTransformer:
    return SentenceTransformer(folder, device="cpu").double()


def short_training(name: str, encoder: str, output: Path, ranks: Sequence[int]) -> TrainingRun:
    """Take two steps of SGD in float64: two ranks, or the one process, which stands for both."""
    run = RUNS[name]
    return train_encoder(
        load(encoder),
        lambda model: run.make(model, ranks),
        Dataset.from_dict(run.case.data(run.columns, TEXTS)),
        output,
        batch_size=4 * len(ranks),
        learning_rate=0.1,
        max_steps=2,
        no_duplicates=False,
        show_progress_bar=False,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0,
    )


def weights(run: TrainingRun) -> dict[str, Tensor]:
    """All that training changes, by name, and the loss's instruments."""
    loss = cast(nn.Module, run.trainer.loss)
    tensors = {name.replace("model.module.", "model."): value for name, value in loss.state_dict().items()}
    found = {name: value.detach().clone() for name, value in tensors.items() if not name.endswith("_extra_state")}
    return found | {f"instruments.{name}": torch.tensor(value) for name, value in instruments(loss).items()}


def gradients(name: str, encoder: str, ranks: Sequence[int], *, sharded: bool = False) -> dict[str, Tensor]:
    """The gradients of one batch, the halves of which two ranks take, in shards of FSDP 2, or the one process."""
    model, run = load(encoder), RUNS[name]
    loss = run.make(model, ranks)
    features = run.case.features(model, run.columns, TEXTS[4 * ranks[0] : 4 * ranks[-1] + 4])
    if sharded:
        mesh = init_device_mesh("cpu", (2,))
        for layer in model[0].auto_model.encoder.layer:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    loss(features).backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {name: cast(Any, value).full_tensor() if sharded else value for name, value in found.items()}


# --- in two processes ---

SHARDED = ("simcse", "consert, mini-batches", "dclr, noise of one generator")
"""Runs whose losses own no parameters and need none of the model's."""


class BrokenOnOneRank(SimCSELoss):
    """Its second value is NaN on rank 1, without a trace in the gradients."""

    calls = 0

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        value = super().forward(sentence_features, labels)
        self.calls += 1
        return value * float("nan") if self.calls == 2 and os.environ["RANK"] == "1" else value


def divergence(encoder: str, output: Path) -> str:
    """The error of a training one rank of which gets a NaN at step 2; weights are checked at step 4."""
    model = SentenceTransformer(encoder, device="cpu")
    set_dropout(model, 0.1)  # equal views would end it
    settings: dict[str, Any] = {"batch_size": 4, "max_steps": 6, "eval_steps": 4}
    try:
        train_encoder(model, BrokenOnOneRank, TEXTS, output, show_progress_bar=False, **settings)
    except DivergenceError as error:
        return str(error)
    return "no error"


def attached(loss: Any, folder: Path) -> tuple[LossStateCallback, tuple[Any, ...]]:
    """The callback of a trainer, and what its events are called with."""
    trainer = SentenceTransformerTrainer(loss.model, args=arguments(folder, ddp_backend="gloo"), loss=loss)
    return LossStateCallback.attach(trainer), (trainer.args, trainer.state, trainer.control)


def averaged_gradient(model: SentenceTransformer, folder: Path, rank: int) -> Tensor:
    """The gradient of a head's bias, which is 1 on rank 0, and which rank 1 lacks."""
    loss = SimCSELoss(model, projection=True)
    callback, event = attached(loss, folder)
    bias = owned(loss, model)["projection_head.0.bias"]
    if rank == 0:
        bias.sum().backward()
    callback.on_pre_optimizer_step(*event)
    return torch.zeros(()) if bias.grad is None else bias.grad


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


def main(encoder: str, folder: str) -> None:
    rank, out = int(os.environ["RANK"]), Path(folder)
    for name in RUNS:
        save_file(weights(short_training(name, encoder, out / name, [rank])), str(out / f"{name}.{rank}.safetensors"))
    for name in SHARDED:
        save_file(gradients(name, encoder, [rank], sharded=True), str(out / f"{name}.{rank}.sharded.safetensors"))
    (out / f"diverged.{rank}.txt").write_text(divergence(encoder, out / "diverged"), encoding="utf8")
    model = SentenceTransformer(encoder, device="cpu")
    found = {"threshold": threshold_of_some_rows(model, rank), "gradient": averaged_gradient(model, out / "mean", rank)}
    found |= noise_after_restoring(model, out / "noise")
    save_file(found, str(out / f"shared.{rank}.safetensors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
    end_process()
