"""A short training with every loss, for distributed_worker.py in two processes and for the test in one."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from st_extras.losses import AdCSELoss
from st_extras.random_source import RandomSource
from st_extras.training import TrainingRun, train_encoder
from tests.fixtures import SENTENCES
from tests.helpers import generator
from tests.losses.cases import CASES, EVERY_TOKEN, Case, instruments

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
