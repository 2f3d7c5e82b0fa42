"""Training in one call: the trainer, LossStateCallback, selection of the best weights, an output folder."""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import nn
from transformers import EarlyStoppingCallback, TrainerState, set_seed
from transformers.trainer_callback import PrinterCallback

from st_extras.training import FILE_NAME, LossStateCallback

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingRun:
    """What a training did.

    Attributes:
        trainer: the trainer, with its ``loss`` and ``state.log_history``.
        metric: name of the metric that chose the kept weights; None without an evaluator.
        curve: (step, value of the metric), step 0 being the encoder before training.
        best_step: the step whose weights were kept.
        best: the metric there.
        steps: steps trained.
        seconds: wall time, evaluations included.
    """

    trainer: SentenceTransformerTrainer
    metric: str | None
    curve: list[tuple[int, float]]
    best_step: int
    best: float | None
    steps: int
    seconds: float


def train_encoder(
    model: SentenceTransformer,
    loss: nn.Module | Callable[[SentenceTransformer], nn.Module],
    data: Sequence[str] | Dataset,
    output: str | os.PathLike[str],
    *,
    evaluator: BaseEvaluator | None = None,
    batch_size: int = 64,
    learning_rate: float = 3e-5,
    loss_learning_rate: float | None = None,
    max_steps: int = -1,
    epochs: float = 1.0,
    eval_steps: int = 125,
    patience: int | None = None,
    seed: int = 42,
    bf16: bool = False,
    no_duplicates: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    show_progress_bar: bool = True,
    **arguments: Any,
) -> TrainingRun:
    """Train a model, keep its best weights and save it: the trainer, LossStateCallback and selection in one call.

    The model is trained in place, ends with the best checkpoint's weights (by ``evaluator``; else the last) and is
    saved to ``output``, whose ``checkpoints`` folder serves ``resume``.

    Args:
        model: the SentenceTransformer to train.
        loss: a loss, or a function that makes one from the model (then its parameters follow ``seed``).
        data: sentences, or a Dataset with the loss's columns.
        output: a folder that is new, empty, or given up by ``overwrite`` or ``resume``.
        evaluator: chooses the weights that are kept, among those of every ``eval_steps`` steps and the last step. It
            also scores the encoder before training, for comparison only: a warning tells where that was better.
        batch_size: sentences a step and process.
        learning_rate: at the start; decays linearly to 0.
        loss_learning_rate: the same for what the loss owns (PaSeR's decoder, SLT-FAI's discriminators, AdCSE's head):
            it starts at random and may need 1e-3 where the encoder needs 3e-5. None: ``learning_rate``.
        max_steps: optimizer steps; -1: ``epochs`` counts.
        epochs: passes over the data.
        eval_steps: steps between evaluations and checkpoints.
        patience: stop after so many evaluations without a better one. None: never.
        seed: of data order, dropout and what the loss draws.
        bf16: bfloat16 autocast.
        no_duplicates: keep equal sentences out of a batch, where they would be false negatives.
        resume: continue from the last checkpoint in ``output``.
        overwrite: replace what an earlier training left in ``output``.
        show_progress_bar: whether to show one.
        arguments: further SentenceTransformerTrainingArguments.

    Raises:
        ValueError: data that is empty or no strings, an output folder in use, nothing to resume, a bad number, a
            learning rate for a loss that owns nothing, a training that diverged before its first evaluation.
    """
    dataset = _dataset(data)
    if max_steps != -1 and max_steps < 1:
        raise ValueError(f"max_steps must be >= 1, or -1 for epochs to count; got {max_steps!r}.")
    positive: dict[str, float | None] = {"batch_size": batch_size, "eval_steps": eval_steps}
    positive |= {"learning_rate": learning_rate, "loss_learning_rate": loss_learning_rate}
    if max_steps == -1:
        positive["epochs"] = epochs
    for name, value in positive.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be > 0, got {value!r}.")
    if patience is not None and (patience < 1 or evaluator is None):
        raise ValueError(f"patience must be >= 1 and needs an evaluator, got {patience!r}.")
    checkpoints, last = check_output(output, resume=resume, overwrite=overwrite)
    set_seed(seed)
    if not isinstance(loss, nn.Module):
        loss = loss(model)  # before the trainer makes a folder: a refused option leaves nothing behind
    if loss_learning_rate is not None:
        own = {_own_parameters(loss, model): loss_learning_rate}
        arguments["learning_rate_mapping"] = own | arguments.get("learning_rate_mapping", {})
    curve: list[tuple[int, float]] = []
    if evaluator is not None:
        started = evaluator(model)
        curve.append((0, started[str(evaluator.primary_metric)] if isinstance(started, dict) else started))
    selection = _selection(evaluator, eval_steps)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": batch_size,
        "learning_rate": learning_rate,
        "max_steps": max_steps,
        "num_train_epochs": epochs,
        "save_strategy": "steps",
        "save_steps": eval_steps,
        "save_total_limit": 2,
        "logging_steps": eval_steps,
        "seed": seed,
        "bf16": bf16,
        "use_cpu": model.device.type == "cpu",
        "dataloader_pin_memory": model.device.type != "cpu",
        "batch_sampler": BatchSamplers.NO_DUPLICATES if no_duplicates else BatchSamplers.BATCH_SAMPLER,
        "report_to": "none",
        "disable_tqdm": not show_progress_bar,
    }
    state = TrainerState() if last is None else TrainerState.load_from_json(str(Path(last) / "trainer_state.json"))
    stopping = None if patience is None else _early_stopping(patience, state)
    trainer = SentenceTransformerTrainer(
        model,
        args=SentenceTransformerTrainingArguments(output_dir=str(checkpoints), **(settings | selection | arguments)),
        train_dataset=dataset,
        loss=loss,
        evaluator=evaluator,
        callbacks=None if stopping is None else [stopping],
    )
    trainer.remove_callback(PrinterCallback)
    LossStateCallback.attach(trainer)
    if not resume and trainer.is_world_process_zero():
        shutil.rmtree(checkpoints, ignore_errors=True)
    clock = time.perf_counter()
    _run(trainer, checkpoints, last, state, stopping)
    seconds = time.perf_counter() - clock
    if evaluator is not None:
        key = selection["metric_for_best_model"]
        curve += [(int(entry["step"]), entry[key]) for entry in trainer.state.log_history if key in entry]
        if not math.isfinite(trainer.state.best_metric or 0):
            raise ValueError(f"Training diverged: no checkpoint has a finite {key}. Try a lower learning rate.")
    if trainer.is_world_process_zero():
        _save(model, Path(output))
    steps = trainer.state.global_step
    best_step = trainer.state.best_global_step or steps
    best = None if evaluator is None else trainer.state.best_metric
    metric_name = None if evaluator is None else str(evaluator.primary_metric)
    run = TrainingRun(trainer, metric_name, curve, best_step, best, steps, seconds)
    if evaluator is not None:
        _warn_of_harm(run, evaluator.greater_is_better)
    return run


def _run(
    trainer: SentenceTransformerTrainer,
    checkpoints: Path,
    last: str | None,
    state: TrainerState,
    stopping: EarlyStoppingCallback | None,
) -> None:
    """Train, from the last checkpoint and its state on; a training that had ended there stays as it is."""
    stopped = stopping is not None and stopping.early_stopping_patience_counter >= stopping.early_stopping_patience
    finished = stopped or 0 < trainer.args.max_steps <= state.global_step
    if last is not None and finished:  # the trainer would train one step more
        trainer.state = state
        trainer._load_from_checkpoint(last)
    else:
        trainer.train(resume_from_checkpoint=last)
    best = trainer.state.best_model_checkpoint or state.best_model_checkpoint
    if trainer.args.load_best_model_at_end and best is not None and (finished or not Path(best).is_dir()):
        trainer._load_from_checkpoint(str(checkpoints / Path(best).name))  # wherever the output was moved


def _warn_of_harm(run: TrainingRun, greater_is_better: bool) -> None:
    """Tell where no checkpoint was better than the encoder before training."""
    before, best = run.curve[0][1], run.best
    if best is not None and (before > best if greater_is_better else before < best):
        logger.warning(
            "Training made the encoder worse: %s was %.4f before it and %.4f at best (step %d). "
            "Is the text like what the encoder is for?",
            run.metric,
            before,
            best,
            run.best_step,
        )


def _selection(evaluator: BaseEvaluator | None, eval_steps: int) -> dict[str, Any]:
    """Training arguments that keep the evaluator's best checkpoint."""
    if evaluator is None:
        return {}
    return {
        "eval_strategy": "steps",
        "eval_steps": eval_steps,
        "load_best_model_at_end": True,
        "metric_for_best_model": f"eval_{evaluator.primary_metric}",
        "greater_is_better": evaluator.greater_is_better,
    }


def _own_parameters(loss: nn.Module, model: SentenceTransformer) -> str:
    """A pattern for the names of the parameters that the loss trains beside the model's."""
    shared = set(model.parameters())
    names = [name for name, value in loss.named_parameters() if value.requires_grad and value not in shared]
    if not names:
        raise ValueError(f"loss_learning_rate: {type(loss).__name__} has no parameters of its own.")
    return f"^({'|'.join(map(re.escape, names))})$"


def _early_stopping(patience: int, state: TrainerState) -> EarlyStoppingCallback:
    """Counts on from the state of a checkpoint: resuming does not grant a new lease of patience."""
    callback = EarlyStoppingCallback(patience)
    saved: Any = state.stateful_callbacks or {}
    counted = saved.get("EarlyStoppingCallback", {})
    callback.early_stopping_patience_counter = counted.get("attributes", {}).get("early_stopping_patience_counter", 0)
    return callback


def _dataset(data: Sequence[str] | Dataset) -> Dataset:
    if isinstance(data, Dataset):
        if len(data) == 0:
            raise ValueError("data is empty: there is nothing to train on.")
        return data
    sentences = [data] if isinstance(data, str) else list(data)
    if not sentences:
        raise ValueError("data is empty: there is nothing to train on.")
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str) or not sentence.strip():
            raise ValueError(f"data[{number}] must be a non-empty string, got {sentence!r}.")
    return Dataset.from_dict({"sentence": sentences})


def check_output(
    output: str | os.PathLike[str], *, resume: bool = False, overwrite: bool = False
) -> tuple[Path, str | None]:
    """The checkpoint folder of an output folder and, to resume, the last checkpoint in it. Changes nothing.

    Raises:
        ValueError: the output is in use and neither ``resume`` nor ``overwrite`` is given, or nothing can be resumed.
    """
    output = Path(output)
    checkpoints = output / "checkpoints"
    for path in (output, *output.parents):
        if path.exists():
            if not path.is_dir():
                raise ValueError(f"output {str(output)!r}: {str(path)!r} is a file.")
            break
    if resume:
        last = _last_checkpoint(checkpoints)
        if last is None:
            raise ValueError(f"There is no checkpoint to resume from in {str(checkpoints)!r}.")
        return checkpoints, last
    if output.is_dir() and any(output.iterdir()) and not overwrite:
        raise ValueError(f"output {str(output)!r} is not empty: choose another folder, or overwrite or resume it.")
    return checkpoints, None


def _last_checkpoint(checkpoints: Path) -> str | None:
    """The newest whole checkpoint: an interruption can leave a newer one half written. If none is whole, the newest."""
    steps = [int(folder.name[11:]) for folder in checkpoints.glob("checkpoint-*") if folder.name[11:].isdecimal()]
    found = [checkpoints / f"checkpoint-{step}" for step in sorted(steps)]
    whole = [folder for folder in found if (folder / FILE_NAME).is_file()]  # which is written last
    if not found:
        return None
    last = (whole or found)[-1]
    if last != found[-1]:
        logger.warning("%s is not whole: resuming from %s.", found[-1], last)
    return str(last)


def _save(model: SentenceTransformer, output: Path) -> None:
    """Save beside the checkpoints, file by file only once everything is written."""
    partial = output / ".saving"
    shutil.rmtree(partial, ignore_errors=True)
    model.save(str(partial))
    for item in partial.iterdir():
        target = output / item.name
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(item, target)
    partial.rmdir()
