"""A short training with every loss, for every_loss_worker.py in two processes and for the test in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from st_extras.losses import (
    AdCSELoss,
    ConSERTLoss,
    DCLRLoss,
    FrequencyAdversarialLoss,
    IncompleteSentenceFilteringLoss,
    PaSeRLoss,
    SimCSELoss,
    SLTFAILoss,
)
from st_extras.random_source import RandomSource
from st_extras.text.frequency import FrequencyTable
from st_extras.training import LossStateCallback, TrainingRun, train_encoder
from tests.conftest import SENTENCES
from tests.helpers import generator

_WORDS = ["cat", "dog", "birds", "man", "woman", "children", "train", "soup"]
TEXTS = [f"{sentence.rsplit(' ', 1)[0]} {word}" for word in _WORDS[:3] for sentence in SENTENCES]
ROWS = {
    1: {"sentence": TEXTS},
    2: {"sentence": TEXTS, "positive": [f"the {text} ." for text in TEXTS]},
    3: {
        "sentence": TEXTS,
        "masked": [f"{text.rsplit(' ', 1)[0]} [MASK]" for text in TEXTS],
        "phrase": [text.rsplit(" ", 1)[1] for text in TEXTS],  # of one token: both halves of a batch have as many
    },
}
"""Data sets of 24 rows, by their number of columns."""


@dataclass(frozen=True)
class Case:
    """A loss, and what one process must do to come to the result of two.

    Attributes:
        make: (model, whether this is the one process) -> the loss.
        columns: number of columns of its data.
        draws: whether it draws: then one process takes the two halves of a batch one after the other, each with the
            random numbers of its rank; else it takes the whole batch at once.
    """

    make: Callable[[SentenceTransformer, bool], nn.Module]
    columns: int = 2
    draws: bool = False


def _table(model: SentenceTransformer) -> FrequencyTable:
    return FrequencyTable.count(TEXTS, model.tokenizer)


def _guide(model: SentenceTransformer) -> SentenceTransformer:
    return SentenceTransformer(cast(str, model.guide_path), device="cpu").double()


_ADVERSARIES: dict[str, Any] = {"num_adversaries": 6, "adversary_learning_rate": 0.1, "momentum": 0.5}
_ALL = {"gather_across_devices": True}
_MASKED = {"low_frequency_ratio": 0.9, "mask_ratio": 1 - 1e-12}
"""Every sentence has a low-frequency token, and each is masked, whatever the draw."""

CASES = {
    "simcse": Case(lambda model, alone: SimCSELoss(model, **_ALL)),
    "simcse, own negatives": Case(lambda model, alone: SimCSELoss(model), draws=True),
    "simcse, head": Case(lambda model, alone: SimCSELoss(model, projection=True, **_ALL)),
    "simcse, mini-batches": Case(
        lambda model, alone: SimCSELoss(model, projection=True, mini_batch_size=None if alone else 3, **_ALL)
    ),
    "consert": Case(lambda model, alone: ConSERTLoss(model, augmentations=("dropout", "dropout"), **_ALL)),
    "consert, cutoff": Case(lambda model, alone: ConSERTLoss(model), draws=True),
    "consert, shuffle": Case(lambda model, alone: ConSERTLoss(model, augmentations=("shuffle", "none")), draws=True),
    "consert, mini-batches": Case(
        lambda model, alone: ConSERTLoss(
            model, augmentations=("dropout", "dropout"), mini_batch_size=None if alone else 3, **_ALL
        )
    ),
    "dclr": Case(lambda model, alone: DCLRLoss(model, noise_ratio=0, projection=True, **_ALL)),
    "dclr, mini-batches": Case(
        lambda model, alone: DCLRLoss(
            model, noise_ratio=0, projection=True, mini_batch_size=None if alone else 3, **_ALL
        )
    ),
    "dclr, guide": Case(
        lambda model, alone: DCLRLoss(model, noise_ratio=0, complementary_model=_guide(model), threshold=0.8, **_ALL)
    ),
    "dclr, share, mini-batches": Case(
        lambda model, alone: DCLRLoss(
            model,
            noise_ratio=0,
            complementary_model="start",
            masked_share=0.3,
            mini_batch_size=None if alone else 3,
            **_ALL,
        )
    ),
    "dclr, noise of one generator": Case(
        lambda model, alone: DCLRLoss(
            model, noise_ratio=1 if alone else 2, noise_steps=0, generator=generator(3), **_ALL
        )
    ),
    "dclr, noise of each rank": Case(
        lambda model, alone: DCLRLoss(model, noise_step_size=0.5, complementary_model=_guide(model), threshold=0.8),
        draws=True,
    ),
    "adcse": Case(lambda model, alone: AdCSELoss(model, **_ADVERSARIES, **_ALL)),
    "adcse, mini-batches": Case(
        lambda model, alone: AdCSELoss(model, mini_batch_size=None if alone else 3, **_ADVERSARIES, **_ALL)
    ),
    "adcse, tied": Case(lambda model, alone: AdCSELoss(model, tied=True, symmetric=True, **_ADVERSARIES, **_ALL)),
    "frequency": Case(lambda model, alone: FrequencyAdversarialLoss(model, frequency_table=_table(model)), columns=1),
    "frequency, balanced confusion": Case(
        lambda model, alone: FrequencyAdversarialLoss(
            model, frequency_table=_table(model), adversary="confusion", balanced=True
        ),
        columns=1,
    ),
    "incomplete": Case(
        lambda model, alone: IncompleteSentenceFilteringLoss(model, frequency_table=_table(model), **_MASKED), columns=1
    ),
    "incomplete, drawn": Case(
        lambda model, alone: IncompleteSentenceFilteringLoss(model, frequency_table=_table(model)),
        columns=1,
        draws=True,
    ),
    "slt-fai": Case(
        lambda model, alone: SLTFAILoss(
            model, frequency_table=_table(model), base_loss=SimCSELoss(model, **_ALL), **_MASKED
        )
    ),
    "slt-fai over adcse": Case(
        lambda model, alone: SLTFAILoss(
            model, frequency_table=_table(model), base_loss=AdCSELoss(model, **_ADVERSARIES, **_ALL), **_MASKED
        )
    ),
    "paser": Case(
        lambda model, alone: PaSeRLoss(model, num_decoder_layers=1, decoder_dropout=0, mlm_weight=0), columns=3
    ),
    "paser, own output, warmed up": Case(
        lambda model, alone: PaSeRLoss(
            model,
            num_decoder_layers=1,
            decoder_dropout=0,
            mlm_weight=0,
            decoder_output="own",
            decoder_warmup_steps=1,
        ),
        columns=3,
    ),
    "paser, masked words": Case(
        lambda model, alone: PaSeRLoss(model, num_decoder_layers=1, decoder_dropout=0), columns=3, draws=True
    ),
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


def _made(case: Case, model: SentenceTransformer, ranks: Sequence[int]) -> nn.Module:
    torch.manual_seed(ranks[0])  # heads, decoders, discriminators and adversaries start apart on two ranks
    loss = case.make(model, len(ranks) > 1).double()
    if case.draws:
        Streams(loss, ranks)
    return loss


def _encoder(folder: str, guide: str) -> SentenceTransformer:
    model = SentenceTransformer(folder, device="cpu").double()
    model.guide_path = guide  # type: ignore[assignment]
    return model


def short_training(case: Case, encoder: str, guide: str, output: Path, ranks: Sequence[int]) -> TrainingRun:
    """Take three steps of SGD in float64: two ranks, or the one process, which stands for both."""
    repeated = len(ranks) if case.draws else 1
    return train_encoder(
        _encoder(encoder, guide),
        lambda model: _made(case, model, ranks),
        Dataset.from_dict(ROWS[case.columns]),
        output,
        batch_size=4 * len(ranks) // repeated,
        gradient_accumulation_steps=repeated,
        learning_rate=0.1,
        max_steps=3,
        no_duplicates=False,
        show_progress_bar=False,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0,
    )


def weights(run: TrainingRun) -> dict[str, Tensor]:
    """What is trained or changed by training, by name."""
    state = run.trainer.loss.state_dict()  # type: ignore[union-attr]
    tensors = {name.replace("model.module.", "model."): value for name, value in state.items()}
    return {name: value.detach().clone() for name, value in tensors.items() if not name.endswith("_extra_state")}


def owned(run: TrainingRun) -> set[str]:
    """The names of the parameters that belong to the loss."""
    state = LossStateCallback(run.trainer)._state()
    return {name.removeprefix("loss.") for name, value in state.items() if isinstance(value, nn.Parameter)}


def gradients(
    case: Case, encoder: str, guide: str, ranks: Sequence[int], *, sharded: bool = False
) -> dict[str, Tensor]:
    """The gradients of one batch, the halves of which two ranks take, in shards of FSDP 2, or the one process."""
    model = _encoder(encoder, guide)
    loss = _made(case, model, ranks)
    halves = [slice(4 * rank, 4 * rank + 4) for rank in ranks]
    batches = halves if case.draws else [slice(halves[0].start, halves[-1].stop)]
    features = [[model.preprocess(column[rows]) for column in ROWS[case.columns].values()] for rows in batches]
    if sharded:
        mesh = init_device_mesh("cpu", (2,))
        for layer in model[0].auto_model.encoder.layer:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    for batch in features:
        (loss(batch) / len(batches)).backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {name: cast(Any, value).full_tensor() if sharded else value for name, value in found.items()}
