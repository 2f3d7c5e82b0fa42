"""Training in one call: the trainer, LossStateCallback, selection of the best weights, and the output folder."""

from __future__ import annotations

import logging
import math
import os
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

from st_extras.training.loss_state import LossStateCallback
from st_extras.training.output_folder import check_output, save_model
from st_extras.training.settings import (
    check_optional_settings,
    early_stopping,
    own_parameters,
    schedule_arguments,
    selection_arguments,
    training_dataset,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingRun:
    """The result of a training.

    Attributes:
        trainer: the trainer, with its ``loss`` and ``state.log_history``.
        metric: name of the metric that chose the weights; None without an evaluator.
        curve: (step, metric) pairs; step 0 is the encoder before training.
        best_step: the step whose weights were kept.
        best: the metric at ``best_step``; None without an evaluator.
        steps: number of optimizer steps trained.
        seconds: wall time in seconds, including evaluations.
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
    """Train a model in place, keep its best weights and save it to ``output``.

    The best weights are those of the checkpoint that ``evaluator`` scores best, or the last ones without an
    evaluator. ``output/checkpoints`` keeps what ``resume`` needs.

    Args:
        model: the SentenceTransformer to train.
        loss: a loss, or a function that makes one from the model. With a function, the loss's own parameters
            also follow ``seed``.
        data: sentences, or a Dataset with the columns that the loss expects.
        output: a new or empty folder, or one with an earlier training and ``overwrite`` or ``resume`` set.
        evaluator: scores the model every ``eval_steps`` steps and after the last step; the best of these weights
            are kept. It also scores the encoder before training, for comparison: a warning is logged if training
            made it worse.
        batch_size: rows per step and process.
        learning_rate: initial learning rate; decays linearly to 0.
        loss_learning_rate: the same for the parameters that the loss owns (PaSeR's decoder, SLT-FAI's
            discriminators, AdCSE's head). They start at random and may need 1e-3 where the encoder needs 3e-5.
            None: ``learning_rate``.
        max_steps: number of optimizer steps. -1: train for ``epochs``.
        epochs: passes over the data, unless ``max_steps`` is given.
        eval_steps: steps between evaluations and between checkpoints.
        patience: stop after this many evaluations in a row without improvement. None: never.
        seed: random seed for data order, dropout and the loss.
        bf16: use bfloat16 autocast.
        no_duplicates: keep equal sentences out of the same batch, where they would be false negatives.
        resume: continue from the last checkpoint in ``output``.
        overwrite: replace an earlier training in ``output``.
        show_progress_bar: show a progress bar.
        arguments: further SentenceTransformerTrainingArguments.

    Raises:
        ValueError: if a setting is out of range, ``data`` is empty or holds something that is not a sentence,
            ``output`` may not be used (see :func:`check_output`), ``loss_learning_rate`` is given for a loss
            without parameters of its own, or training diverges before its first evaluation.
    """
    dataset = training_dataset(data)
    schedule = schedule_arguments(batch_size, learning_rate, max_steps, epochs, eval_steps)
    check_optional_settings(loss_learning_rate, patience, evaluator)
    checkpoints, last = check_output(output, resume=resume, overwrite=overwrite)
    set_seed(seed)
    if not isinstance(loss, nn.Module):
        loss = loss(model)  # before the trainer makes a folder: a refused option leaves nothing behind
    if loss_learning_rate is not None:
        rates = {own_parameters(loss, model): loss_learning_rate}
        arguments["learning_rate_mapping"] = rates | arguments.get("learning_rate_mapping", {})
    curve = [] if evaluator is None else [(0, _score(evaluator, model))]
    settings = {
        **schedule,
        **selection_arguments(evaluator, eval_steps),
        "seed": seed,
        "bf16": bf16,
        "batch_sampler": BatchSamplers.NO_DUPLICATES if no_duplicates else BatchSamplers.BATCH_SAMPLER,
        "disable_tqdm": not show_progress_bar,
    }
    state = TrainerState() if last is None else TrainerState.load_from_json(str(Path(last) / "trainer_state.json"))
    start = _Start(checkpoints, last, state, early_stopping(patience, state))
    trainer = _trainer(model, dataset, loss, evaluator, start, settings | arguments)
    if not resume and trainer.is_world_process_zero():
        shutil.rmtree(checkpoints, ignore_errors=True)
    seconds = _train(trainer, start)
    run = _result(trainer, evaluator, curve, seconds)
    if trainer.is_world_process_zero():
        save_model(model, Path(output))
    if evaluator is not None:
        _warn_if_worse(run, evaluator.greater_is_better)
    return run


def _score(evaluator: BaseEvaluator, model: SentenceTransformer) -> float:
    metrics = evaluator(model)
    return metrics[str(evaluator.primary_metric)] if isinstance(metrics, dict) else metrics


@dataclass(frozen=True)
class _Start:
    """Where training starts: at step 0, or at a checkpoint with its trainer state."""

    checkpoints: Path
    checkpoint: str | None
    state: TrainerState
    stopping: EarlyStoppingCallback | None

    def is_the_end(self, max_steps: int) -> bool:
        """Whether the training had already ended here: patience ran out, or all steps were done."""
        stopped = (
            self.stopping is not None
            and self.stopping.early_stopping_patience_counter >= self.stopping.early_stopping_patience
        )
        return stopped or 0 < max_steps <= self.state.global_step


def _trainer(
    model: SentenceTransformer,
    dataset: Dataset,
    loss: nn.Module,
    evaluator: BaseEvaluator | None,
    start: _Start,
    settings: dict[str, Any],
) -> SentenceTransformerTrainer:
    on_cpu = model.device.type == "cpu"
    defaults: dict[str, Any] = {"report_to": "none", "use_cpu": on_cpu, "dataloader_pin_memory": not on_cpu}
    trainer = SentenceTransformerTrainer(
        model,
        args=SentenceTransformerTrainingArguments(output_dir=str(start.checkpoints), **(defaults | settings)),
        train_dataset=dataset,
        loss=loss,
        evaluator=evaluator,
        callbacks=None if start.stopping is None else [start.stopping],
    )
    trainer.remove_callback(PrinterCallback)
    LossStateCallback.attach(trainer)
    return trainer


def _train(trainer: SentenceTransformerTrainer, start: _Start) -> float:
    """Train from ``start``, load the best weights and return the seconds taken."""
    began = time.perf_counter()
    ended = start.is_the_end(trainer.args.max_steps)
    if start.checkpoint is not None and ended:  # the trainer would train one more step
        trainer.state = start.state
        trainer._load_from_checkpoint(start.checkpoint)
    else:
        trainer.train(resume_from_checkpoint=start.checkpoint)
    best = trainer.state.best_model_checkpoint or start.state.best_model_checkpoint
    if trainer.args.load_best_model_at_end and best is not None and (ended or not Path(best).is_dir()):
        # the trainer did not load it: nothing was trained, or the output folder was moved since it was saved
        trainer._load_from_checkpoint(str(start.checkpoints / Path(best).name))
    return time.perf_counter() - began


def _result(
    trainer: SentenceTransformerTrainer,
    evaluator: BaseEvaluator | None,
    curve: list[tuple[int, float]],
    seconds: float,
) -> TrainingRun:
    """Add the evaluations of the training to the curve. Raise ValueError if training diverged."""
    state = trainer.state
    best_step = state.best_global_step or state.global_step
    if evaluator is None:
        return TrainingRun(trainer, None, curve, best_step, None, state.global_step, seconds)
    metric = str(evaluator.primary_metric)
    key = f"eval_{metric}"
    curve = curve + [(int(entry["step"]), entry[key]) for entry in state.log_history if key in entry]
    if not math.isfinite(state.best_metric or 0):
        raise ValueError(f"Training diverged, no checkpoint has a finite {key}: try a lower learning rate.")
    return TrainingRun(trainer, metric, curve, best_step, state.best_metric, state.global_step, seconds)


def _warn_if_worse(run: TrainingRun, greater_is_better: bool) -> None:
    before, best = run.curve[0][1], run.best
    if best is not None and (before > best if greater_is_better else before < best):
        logger.warning(
            "Training made the encoder worse: %s was %.4f before training and %.4f at best (step %d). "
            "Check that the training text resembles the text that the encoder is meant for.",
            run.metric,
            before,
            best,
            run.best_step,
        )
