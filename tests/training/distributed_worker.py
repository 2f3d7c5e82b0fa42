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
        draws: whether it draws: then one process takes the two halves of a batch one after the other, each with the
            random numbers of its rank; else it takes the whole batch at once.
    """

    case: Case
    options: dict[str, Any] = field(default_factory=dict)
    alone: dict[str, Any] = field(default_factory=dict)
    columns: int = 2
    draws: bool = False

    def make(self, model: SentenceTransformer, ranks: Sequence[int]) -> nn.Module:
        """The loss; heads, decoders, discriminators and adversaries start apart on two ranks."""
        alone = self.alone if len(ranks) > 1 else {}
        loss: nn.Module = self.case.make(model, seed=ranks[0], **self.options | alone).double()
        if self.draws:
            Streams(loss, ranks)
        return loss


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
    "consert, cutoff": Run(CASES["consert"], draws=True),
    "consert, mini-batches": Run(CASES["consert"], _CUT["options"] | _DROPOUT, _CUT["alone"]),
    "dclr": Run(CASES["dclr"], _ALL | {"noise_ratio": 0, "projection": True}),
    "dclr, share, mini-batches": Run(
        CASES["dclr, share of start"], _CUT["options"] | {"noise_ratio": 0}, _CUT["alone"]
    ),
    "dclr, noise of one generator": Run(
        CASES["dclr"], _ALL | {"noise_ratio": 2, "noise_steps": 0, "generator": _generator}, {"noise_ratio": 1}
    ),
    "dclr, noise of each rank": Run(CASES["dclr, guide"], {"noise_step_size": 0.5}, draws=True),
    "adcse, mini-batches": Run(CASES["adcse"], **_CUT),
    "adcse, tied": Run(CASES["adcse, tied"], _ALL | {"symmetric": True}),
    "adcse, features": Run(CASES["adcse, features"], _ALL),
    "frequency": _one(CASES["frequency"]),
    "frequency, confusion": _one(CASES["frequency, confusion"]),
    "incomplete": _one(CASES["incomplete"], EVERY_TOKEN),
    "slt-fai, over adcse": Run(_over(AdCSELoss, num_adversaries=6, adversary_learning_rate=0.1, momentum=0.5)),
    "paser, own output": _one(CASES["paser, own output"]),
    "paser, masked words": _one(CASES["paser"], draws=True),
}


class Streams:
    """Gives the sources of a loss the random numbers of one rank, of the next rank in the next forward pass, ..."""

    def __init__(self, loss: nn.Module, ranks: Sequence[int]) -> None:
        sources = [module for module in loss.modules() if isinstance(module, RandomSource)]
        streams = [[generator(100 + 10 * i + rank) for i in range(len(sources))] for rank in ranks]
        calls = [0]

        def before(*_: Any) -> None:
            for source, stream in zip(sources, streams[calls[0] % len(ranks)], strict=True):
                source.generator = stream
            calls[0] += 1

        loss.register_forward_pre_hook(before)


def load(folder: str) -> SentenceTransformer:
    return SentenceTransformer(folder, device="cpu").double()


def short_training(name: str, encoder: str, output: Path, ranks: Sequence[int]) -> TrainingRun:
    """Take two steps of SGD in float64: two ranks, or the one process, which stands for both."""
    run = RUNS[name]
    repeated = len(ranks) if run.draws else 1
    return train_encoder(
        load(encoder),
        lambda model: run.make(model, ranks),
        Dataset.from_dict(run.case.data(run.columns, TEXTS)),
        output,
        batch_size=4 * len(ranks) // repeated,
        gradient_accumulation_steps=repeated,
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
    halves = [slice(4 * rank, 4 * rank + 4) for rank in ranks]
    batches = halves if run.draws else [slice(halves[0].start, halves[-1].stop)]
    features = [run.case.features(model, run.columns, TEXTS[rows]) for rows in batches]
    if sharded:
        mesh = init_device_mesh("cpu", (2,))
        for layer in model[0].auto_model.encoder.layer:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    for batch in features:
        (loss(batch) / len(batches)).backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {name: cast(Any, value).full_tensor() if sharded else value for name, value in found.items()}


# --- in two processes ---

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
