"""The trainer of ``train_encoder``: its arguments, its checkpoints, running it, and stopping it when it diverges."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from safetensors.torch import load_file, save_file
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import nn
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_extras.checks import shown
from st_extras.encoders.adapters import trained_state
from st_extras.encoders.structure import unwrap
from st_extras.files import write_errors
from st_extras.losses.pair_loss import PairLoss
from st_extras.training.settings import TrainingSettings

logger = logging.getLogger(__name__)
TRAINED = "trained.safetensors"
"""The only weights file of a checkpoint if part of the model is frozen; it holds the trained parameters."""
HASHED_FROM = 1_000_000
"""From this number of rows, equal sentences are found by their hashes: 8 bytes each, computed once in seconds."""


def trainer_arguments(
    model: SentenceTransformer,
    loss: nn.Module,
    dataset: Dataset | IterableDataset,
    evaluator: BaseEvaluator | None,
    metric: str | None,
    checkpoints: Path,
    settings: TrainingSettings,
) -> SentenceTransformerTrainingArguments:
    """Return the trainer's arguments for these settings.

    Args:
        model: the model to train.
        loss: the loss, whose own parameters may have a learning rate of their own.
        dataset: the rows.
        evaluator: the evaluator that chooses the weights; None: the last ones are kept.
        metric: name under which the trainer logs its score, without "eval_"; None without an evaluator.
        checkpoints: folder for the checkpoints.
        settings: the settings of the training.

    Raises:
        ValueError: if an own learning rate is set for a loss without its own parameters, weights would be scored that
            no checkpoint holds, or Sentence Transformers refuses the caller's arguments.
    """
    on_cpu = model.device.type == "cpu"
    keeps_apart = settings.no_duplicates and isinstance(dataset, Dataset)
    hashed = keeps_apart and len(dataset) >= HASHED_FROM
    apart = BatchSamplers.NO_DUPLICATES_HASHED if hashed else BatchSamplers.NO_DUPLICATES  # which make equal batches
    selection: dict[str, Any] = {}
    if evaluator is not None:
        selection = {"eval_strategy": "steps", "eval_steps": settings.eval_steps, "load_best_model_at_end": True}
        selection |= {"metric_for_best_model": f"eval_{metric}", "greater_is_better": evaluator.greater_is_better}
    arguments: dict[str, Any] = {
        "output_dir": str(checkpoints),
        "per_device_train_batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "max_steps": settings.max_steps,
        "num_train_epochs": settings.epochs,
        "seed": settings.seed,
        "bf16": settings.bf16,
        "batch_sampler": apart if keeps_apart else BatchSamplers.BATCH_SAMPLER,
        "save_strategy": "steps",
        "save_steps": settings.eval_steps,
        "save_total_limit": 2,
        "restore_callback_states_from_checkpoint": True,  # of patience
        "logging_steps": settings.eval_steps,
        "disable_tqdm": not settings.show_progress_bar,
        "use_cpu": on_cpu,
        "dataloader_pin_memory": not on_cpu,
        "report_to": "none",
        "logging_nan_inf_filter": False,  # it reads every loss at once; DivergenceCallback watches for NaN
        **selection,
        **settings.arguments,  # the caller's own come last
    }
    if settings.loss_learning_rate is not None:
        rates = rates_of_the_loss(loss, model, settings.loss_learning_rate)
        arguments["learning_rate_mapping"] = rates | arguments.get("learning_rate_mapping", {})
    if evaluator is not None and arguments["save_steps"] != settings.eval_steps:  # weights that are scored, not saved
        raise ValueError(
            f"save_steps must be {settings.eval_steps}, as eval_steps, where an evaluator chooses the weights, got "
            f"{shown(arguments['save_steps'])}: leave it out."
        )
    try:
        return SentenceTransformerTrainingArguments(**arguments)
    except Exception as error:
        if not settings.arguments:
            raise
        given = ", ".join(f"{name}={shown(value)}" for name, value in settings.arguments.items())
        raise ValueError(
            "the trainer's arguments must be ones that SentenceTransformerTrainingArguments takes, got "
            f"{given}: {type(error).__name__}: {' '.join(str(error).split()).removesuffix('.')}."
        ) from error


def rates_of_the_loss(loss: nn.Module, model: SentenceTransformer, rate: float) -> dict[str, float]:
    """Return the learning rate of the loss's own parameters, by a regular expression that matches their names.

    Raises:
        ValueError: if the loss has none.
    """
    shared = set(model.parameters())
    names = [name for name, value in loss.named_parameters() if value.requires_grad and value not in shared]
    if not names:
        raise ValueError(
            f"loss_learning_rate needs a loss with its own parameters, got {type(loss).__name__}, which has none."
        )
    return {f"^({'|'.join(map(re.escape, names))})$": rate}


class EncoderTrainer(SentenceTransformerTrainer):
    """The trainer of ``train_encoder``, whose checkpoints can leave out the frozen parameters, which do not change.

    With them, those of a large model would be gigabytes beside its small adapters. Sentence Transformers would save
    adapters with the name of their base model, and load that model to resume: another one if, for example, layers were
    removed after loading. No public way leads to other files, so three private methods are overridden.

    Args:
        arguments: of the trainer, as are ``options``.
        trained_only: whether checkpoints hold the trained parameters alone.

    Attributes:
        best_is_lost: whether the best checkpoint could not be loaded, so that the model has the last weights. Sentence
            Transformers logs an error then, and goes on.
    """

    def __init__(self, *arguments: Any, trained_only: bool, **options: Any) -> None:
        self.trained_only = trained_only
        self.best_is_lost = False
        super().__init__(*arguments, **options)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if not self.trained_only:
            super()._save(output_dir, state_dict)
            return
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        state = trained_state(unwrap(self.model))
        save_file({name: value.detach().cpu().contiguous().clone() for name, value in state.items()}, folder / TRAINED)

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:  # type: ignore[override]  # as its own base class
        if not self.trained_only:
            super()._load_from_checkpoint(checkpoint_path)
            return
        model, stored = unwrap(self.model), load_file(Path(checkpoint_path) / TRAINED)
        if stored.keys() != trained_state(model).keys():
            raise ValueError(f"{checkpoint_path!r} must hold the weights that are trained now, got others.")
        model.load_state_dict(stored, strict=False)

    def _load_best_model(self) -> None:
        load = self._load_from_checkpoint  # with what LossStateCallback has put around it

        def load_or_note(checkpoint: str) -> None:
            self.best_is_lost = True
            load(checkpoint)
            self.best_is_lost = False

        self._load_from_checkpoint = load_or_note  # type: ignore[method-assign, assignment]
        try:
            super()._load_best_model()
        finally:
            self._load_from_checkpoint = load  # type: ignore[method-assign]


# --- divergence ---


class DivergenceError(ValueError):
    """A training ended in NaN or infinite values; nothing was saved after the last finite checkpoint."""


class DivergenceCallback(TrainerCallback):
    """Stops a training whose weights are no longer finite, before they are scored or saved.

    A loss that is not finite shows in the weights after the next step, in all processes alike.

    Args:
        loss: the loss, which holds the model.

    Attributes:
        step: the step at which this was found; None if it was not.
    """

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss
        self.step: int | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop before an evaluation or a checkpoint of weights that are not finite.

        Raises:
            ValueError: if both views of each sentence are the same vector, and nothing else trains the encoder.
        """
        loss = self.loss
        while isinstance(inner := getattr(loss, "loss", None), nn.Module):  # inside MatryoshkaLoss
            loss = inner
        if isinstance(loss, PairLoss):
            loss.checks.refuse_equal_views()
        if (control.should_evaluate or control.should_save) and non_finite(self.loss) is not None:
            self.step = state.global_step
            control.should_training_stop = True
            control.should_evaluate = control.should_save = False

    on_epoch_end = on_step_end


@torch.no_grad()
def non_finite(module: nn.Module) -> str | None:
    """Return the name of the first parameter with a NaN or an infinite value; None if all are finite."""
    for name, parameter in module.named_parameters():
        if not bool(parameter.isfinite().all()):
            return name
    return None


# --- the run ---


def run_trainer(trainer: EncoderTrainer, loss: nn.Module, checkpoint: Path | None, patience: int | None) -> None:
    """Train and load the best weights.

    Args:
        trainer: the trainer.
        loss: its loss.
        checkpoint: the checkpoint to continue from; None: start anew.
        patience: stop after this many evaluations in a row without improvement. None: never.

    Raises:
        DivergenceError: if the weights became NaN or infinite and no earlier weights were chosen.
        OSError: if a checkpoint could not be written.
    """
    if patience is not None:
        trainer.add_callback(EarlyStoppingCallback(patience))
    watch = DivergenceCallback(loss)
    trainer.add_callback(watch)
    state = TrainerState()
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    if checkpoint is not None and _has_ended(state, patience):  # the trainer would train one more step
        trainer.state = state
        # No public way loads a checkpoint without training.
        trainer._load_from_checkpoint(str(state.best_model_checkpoint or checkpoint))  # noqa: SLF001
    else:
        with write_errors(str(trainer.args.output_dir)):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    _report_divergence(trainer, loss, watch.step)


def _has_ended(state: TrainerState, patience: int | None) -> bool:
    """Whether nothing is left to train after a checkpoint."""
    if patience is None:
        return state.global_step >= state.max_steps
    saved: Any = state.stateful_callbacks  # as in the trainer's file: the state of each, by the name of its class
    stopping = saved["EarlyStoppingCallback"]
    if isinstance(stopping, list):  # one of the caller's before that of run_trainer
        stopping = stopping[-1]
    without_improvement = stopping["attributes"]["early_stopping_patience_counter"]
    return bool(state.global_step >= state.max_steps or without_improvement >= patience)


def _report_divergence(trainer: SentenceTransformerTrainer, loss: nn.Module, step: int | None) -> None:
    """Log that training diverged after the chosen weights; raise DivergenceError if none were chosen."""
    name = non_finite(loss)
    if name is None and step is None:
        return
    if name is None and trainer.state.best_model_checkpoint is not None:
        logger.warning(
            "Training diverged at step %d and was stopped: the weights of step %d are kept; try a lower learning rate.",
            step,
            trainer.state.best_global_step,
        )
        return
    raise DivergenceError(
        f"Training diverged: {name} is not finite at step {step or trainer.state.global_step}, and no model is saved: "
        "try a lower learning rate."
    )
