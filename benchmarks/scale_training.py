"""Run by ``benchmarks.scale_speed`` in one or more processes: train SimCSE once over the lines of a file.

python -m benchmarks.scale_training FILE
python -m torch.distributed.run --nproc-per-node 2 -m benchmarks.scale_training FILE

The batch is that of one process; the trained model is thrown away.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from transformers.utils import logging

from benchmarks.scale_corpus import trained_encoder
from st_extras.losses import SimCSELoss
from st_extras.text import read_sentences
from st_extras.training import train_encoder

BATCH = 64
"""Sentences per step and process."""


def main(file: str) -> None:
    logging.set_verbosity_error()
    sentences = read_sentences(Path(file))
    options: dict[str, Any] = {"batch_size": BATCH, "show_progress_bar": False, "save_strategy": "no"}
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        options["ddp_backend"] = "gloo"
    with tempfile.TemporaryDirectory() as folder:
        train_encoder(trained_encoder(), SimCSELoss, sentences, Path(folder) / "trained", **options)


if __name__ == "__main__":
    main(sys.argv[1])
