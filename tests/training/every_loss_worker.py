"""Run by test_every_loss.py in two gloo processes: a short training with every loss, and what sharding does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.losses import SimCSELoss
from st_extras.training import DivergenceError, train_encoder
from tests.helpers import end_process
from tests.training.every_loss import CASES, TEXTS, gradients, short_training, weights

SHARDED = ("simcse", "simcse, own negatives", "consert", "consert, shuffle", "consert, mini-batches", "dclr, guide")
SHARDED += ("dclr, noise of each rank",)
"""The cases whose losses own no parameters and need none of the model's."""


class BrokenOnOneRank(SimCSELoss):
    """Its second value is NaN on rank 1, without a trace in the gradients."""

    calls = 0

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        value = super().forward(sentence_features, labels)
        self.calls += 1
        return value + float("nan") if self.calls == 2 and os.environ["RANK"] == "1" else value


def refused(encoder: str, output: Path, **options: Any) -> str:
    """The error of a training."""
    settings = {"batch_size": 4, "max_steps": 6, "eval_steps": 4, "show_progress_bar": False} | options
    try:
        train_encoder(SentenceTransformer(encoder, device="cpu"), BrokenOnOneRank, TEXTS, output, **settings)
    except DivergenceError as error:
        return str(error)
    return "no error"


def main(encoder: str, guide: str, folder: str, launcher: str) -> None:
    rank, out = int(os.environ["RANK"]), Path(folder)
    for name, case in CASES.items():
        if launcher == "torchrun" or "," not in name:
            run = short_training(case, encoder, guide, out / name, [rank])
            save_file(weights(run), str(out / f"{name}.{rank}.safetensors"))
    if launcher == "torchrun":
        for name in SHARDED:
            found = gradients(CASES[name], encoder, guide, [rank], sharded=True)
            save_file(found, str(out / f"{name}.{rank}.sharded.safetensors"))
        (out / f"diverged.{rank}.txt").write_text(refused(encoder, out / "diverged", logging_steps=3), encoding="utf8")


if __name__ == "__main__":
    main(*sys.argv[1:])
    end_process()
