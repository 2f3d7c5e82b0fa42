"""Checkpoints with damaged files: resuming is refused, or ends with the weights of the whole training."""

import functools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from st_extras import losses, training
from st_extras.encoders import load_encoder
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.classify import ACCEPT, EITHER, REFUSE, Case
from tests.fuzz.damage import bytes_changes


@functools.cache
def _checkpointed() -> tuple[Path, dict[str, torch.Tensor]]:
    """A training of 4 steps that kept checkpoints 2 and 4, and its last weights."""
    output = world.root() / "trained"
    model = load_encoder(world.encoder_folder())
    _train(model, output)
    return output, {name: value.clone() for name, value in model.state_dict().items()}


def _train(model: SentenceTransformer, output: Path, **options: Any) -> None:
    settings = {"batch_size": 4, "max_steps": 4, "eval_steps": 2, "learning_rate": 1e-3, "show_progress_bar": False}
    make_loss = functools.partial(losses.AdCSELoss, num_adversaries=3)
    training.train_encoder(model, make_loss, SENTENCES, output, **settings, **options)


def _resumed(damage: Callable[[Path], None]) -> str | None:
    """Resume from a damaged folder: the last weights must be those of the whole training."""
    source, weights = _checkpointed()
    copy = world.new_folder() / "copy"
    shutil.copytree(source, copy)
    try:
        shutil.rmtree(copy / "checkpoints" / "checkpoint-4")  # as if it had been stopped after step 2
        damage(copy)
        model = load_encoder(world.encoder_folder())
        _train(model, copy, resume=True)
    finally:
        shutil.rmtree(copy)
    return None if all(torch.equal(weights[k], v) for k, v in model.state_dict().items()) else "other weights"


def cases(generator: random.Random) -> list[Case]:
    """Resuming from a checkpoint with one file removed or damaged."""
    checkpoint = _checkpointed()[0] / "checkpoints" / "checkpoint-2"
    made = [Case("resume, nothing", lambda: _resumed(lambda folder: None), ACCEPT, verify=lambda wrong: wrong)]
    for file in sorted(path.relative_to(checkpoint) for path in checkpoint.rglob("*") if path.is_file()):
        for what, (_, change) in [("removed", (REFUSE, None)), *bytes_changes(generator).items()]:
            if what in ("flip", "nothing", "text", "noise"):
                continue  # a marker holds sizes, not sums: only a broken format is noticed, by another library

            def damage(folder: Path, file: Path = file, change: Any = change) -> None:
                target = folder / "checkpoints" / "checkpoint-2" / file
                target.unlink() if change is None else target.write_bytes(change(target.read_bytes()))

            run = functools.partial(_resumed, damage)
            made.append(Case(f"resume, {file} {what}", run, EITHER, ("copy",), (), lambda wrong: wrong))
    return made
