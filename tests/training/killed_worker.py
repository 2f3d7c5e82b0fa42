"""Run by kill_resume.py: one short piece of work on a tiny encoder, which may kill itself at a file operation.

``python -m tests.training.killed_worker WORK DEV OUTPUT ENCODER KILL RESUME``: WORK is of WORKS; DEV and RESUME are 0
or 1; KILL is "none", "time:SECONDS" (after the work began) or "file:N" (at the Nth file operation below OUTPUT: opening
a file to write, moving, removing).
"""

import functools
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

from st_extras.adaptation import adapt, adapt_search
from st_extras.adaptation.pseudo_relevance import PseudoRelevanceComparison
from st_extras.encoders import embedding_store, embedding_table
from st_extras.evaluation import LabeledTexts, STSDataset, STSEvaluator
from st_extras.training import train_encoder
from tests.adaptation.texts import topical
from tests.fixtures import SENTENCES
from tests.losses.cases import CASES

STEPS = 8
WRITES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


FORMS = {
    "simcse": "simcse, head", "dclr": "dclr", "adcse": "adcse", "slt_fai": "slt-fai over consert", "paser": "paser"
}  # fmt: skip
LOSSES = {name: CASES[case] for name, case in FORMS.items()}
WORKS = (*LOSSES, "adapt", "search", "table")


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


def train(name: str, model: SentenceTransformer, dev: bool, output: str, resume: bool) -> None:
    scores = [float(value * 5 % 4) for value in range(4)]
    pairs = STSDataset("pairs", SENTENCES[:4], SENTENCES[4:], scores)
    train_encoder(
        model,
        LOSSES[name].make,
        Dataset.from_dict(LOSSES[name].data()),
        output,
        evaluator=STSEvaluator([pairs], write_csv=False) if dev else None,
        batch_size=4,
        learning_rate=5e-3,
        max_steps=STEPS,
        eval_steps=2,
        resume=resume,
        overwrite=not resume,
        show_progress_bar=False,
    )


def adapt_to_text(model: SentenceTransformer, dev: bool, output: str, resume: bool) -> None:
    """Choose by labels, so that a transform is saved, or by the label-free score."""
    embedding_store.PART = 100
    data = topical(600)
    chooser = LabeledTexts(data.texts[:200], data.labels[:200]) if dev else None
    options: dict[str, Any] = {"dev": chooser, "max_general_loss": 200.0, "show_progress_bar": False}
    adapt(model, data.texts, output, resume=resume, overwrite=not resume, **options)


def adapt_to_search(model: SentenceTransformer, alone: bool, output: str, resume: bool) -> None:
    """Move queries alone, or both sides: whatever the comparison would show, a transform is saved."""
    embedding_store.PART = 100
    PseudoRelevanceComparison.compare = lambda self, *_: (0.0, 0.0)  # type: ignore[method-assign]
    texts = topical(600).texts
    options: dict[str, Any] = {"queries": [" ".join(text.split()[:3]) for text in texts], "show_progress_bar": False}
    adapt_search(model, texts, output, resume=resume, overwrite=not resume, keep_index=alone, **options)


def compute_table(model: SentenceTransformer, half: bool, output: str, resume: bool) -> None:
    """The same call resumes."""
    embedding_table.CHUNK = 64
    options: dict[str, Any] = {"folder": output, "dtype": "float16" if half else "float32", "batch_size": 4}
    embedding_table.EmbeddingTable.compute(model, model, topical(600).texts, show_progress_bar=False, **options)


def main(name: str, dev: str, output: str, encoder: str, kill: str, resume: str) -> None:
    torch.set_num_threads(1)
    kind, _, number = kill.partition(":")
    operations = Operations(Path(output), int(number) if kind == "file" else None)
    sys.addaudithook(operations)
    model = SentenceTransformer(encoder, device="cpu")
    if kind == "time":
        timer = threading.Timer(float(number), die)
        timer.daemon = True
        timer.start()
    began = time.perf_counter()
    works: dict[str, Any] = {"adapt": adapt_to_text, "search": adapt_to_search, "table": compute_table}
    work = works.get(name) or functools.partial(train, name)
    work(model, dev == "1", output, resume == "1")
    sys.stdout.write(f"{operations.count} operations in {time.perf_counter() - began} s\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
