"""Run by kill_resume.py: one short training of a loss on a tiny encoder, which may kill itself at a file operation.

``python -m tests.training.killed_worker LOSS DEV OUTPUT ENCODER KILL RESUME``: DEV and RESUME are 0 or 1; KILL is
"none", "time:SECONDS" (after the training began) or "file:N" (at the Nth file operation below OUTPUT: opening a file to
write, moving, removing).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.training import train_encoder
from tests.conftest import SENTENCES
from tests.losses.cases import CASES

STEPS = 8
WRITES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


FORMS = {
    "simcse": "simcse, head",
    "dclr": "dclr",
    "adcse": "adcse",
    "slt_fai": "slt-fai over consert",
    "paser": "paser",
}
LOSSES = {name: CASES[case] for name, case in FORMS.items()}


class Operations:
    """Counts the file operations below a folder, and kills the process at one of them."""

    def __init__(self, folder: Path, last: int | None) -> None:
        self.folder, self.last, self.count = str(folder), last, 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        removing = event in {"os.remove", "os.rmdir"} and arguments[1] != -1  # by rmtree, relative to a folder
        if event not in WRITES or not (removing or str(arguments[0]).startswith(self.folder)):
            return
        if event == "open" and (arguments[1] is None or not set(str(arguments[1])) & set("wax+")):
            return
        self.count += 1
        if self.count == self.last:
            die()


def main(name: str, dev: str, output: str, encoder: str, kill: str, resume: str) -> None:
    torch.set_num_threads(1)
    kind, _, number = kill.partition(":")
    operations = Operations(Path(output), int(number) if kind == "file" else None)
    sys.addaudithook(operations)
    model = SentenceTransformer(encoder, device="cpu")
    scores = [float(value * 5 % 4) for value in range(4)]
    pairs = STSDataset("pairs", SENTENCES[:4], SENTENCES[4:], scores)
    if kind == "time":
        timer = threading.Timer(float(number), die)
        timer.daemon = True
        timer.start()
    began = time.perf_counter()
    train_encoder(
        model,
        LOSSES[name].make,
        Dataset.from_dict(LOSSES[name].data()),
        output,
        evaluator=STSEvaluator([pairs], write_csv=False) if dev == "1" else None,
        batch_size=4,
        learning_rate=5e-3,
        max_steps=STEPS,
        eval_steps=2,
        resume=resume == "1",
        overwrite=resume == "0",
        show_progress_bar=False,
    )
    sys.stdout.write(f"{operations.count} operations in {time.perf_counter() - began} s\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
