"""The trainer of ``train_encoder``: building it, and running it from the start or a checkpoint."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from transformers import EarlyStoppingCallback, TrainerState
from transformers.trainer_callback import PrinterCallback

from st_extras.encoders.adapters import trained_state
from st_extras.encoders.structure import unwrap
from st_extras.files import write_errors
from st_extras.training.divergence import DivergenceCallback, DivergenceError, non_finite
from st_extras.training.loss_state import LossStateCallback
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
        ValueError: if an own learning rate is set for a loss without its own parameters.
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
    return SentenceTransformerTrainingArguments(**arguments)


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


def build_trainer(
    model: SentenceTransformer,
    loss: nn.Module,
    dataset: Dataset | IterableDataset,
    evaluator: BaseEvaluator | None,
    arguments: SentenceTransformerTrainingArguments,
    *,
    run: Mapping[str, Any],
    trained_only: bool = False,
) -> SentenceTransformerTrainer:
    """Return a trainer with ``LossStateCallback`` attached.

    Args:
        model: the model to train.
        loss: the loss.
        dataset: its rows.
        evaluator: the evaluator that chooses the weights; None: the last ones are kept.
        arguments: what :func:`trainer_arguments` returned.
        run: what :func:`~st_extras.training.identity.run_identity` returned, which every checkpoint records.
        trained_only: whether checkpoints leave out the frozen parameters, which do not change.
    """
    trainer = SentenceTransformerTrainer(model, args=arguments, train_dataset=dataset, loss=loss, evaluator=evaluator)
    trainer.remove_callback(PrinterCallback)  # without a bar it would print each log entry to stdout
    if trained_only:
        _checkpoint_only_what_is_trained(trainer)
    LossStateCallback.attach(trainer, run)
    return trainer


def _checkpoint_only_what_is_trained(trainer: SentenceTransformerTrainer) -> None:
    """Leave frozen parameters out of checkpoints: a large model's would be gigabytes beside its small adapters.

    Sentence Transformers would save adapters with the name of their base model, and load that model to resume. It would
    be another model if, for example, layers were removed after loading. Its trainer has no public way to save other
    files, so two of its private methods are replaced, on this trainer alone.
    """

    def save(output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or str(trainer.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        state = trained_state(unwrap(trainer.model))
        save_file({name: value.detach().cpu().contiguous().clone() for name, value in state.items()}, folder / TRAINED)

    def load(resume_from_checkpoint: str, model: Any = None) -> None:
        own = unwrap(trainer.model)
        stored = load_file(Path(resume_from_checkpoint) / TRAINED)
        if stored.keys() != trained_state(own).keys():
            raise ValueError(f"{resume_from_checkpoint!r} must hold the weights that are trained now, got others.")
        own.load_state_dict(stored, strict=False)

    trainer._save = save  # type: ignore[method-assign]  # noqa: SLF001
    trainer._load_from_checkpoint = load  # type: ignore[method-assign, assignment]  # noqa: SLF001


def run_training(
    trainer: SentenceTransformerTrainer, loss: nn.Module, checkpoint: Path | None, patience: int | None
) -> None:
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
    checkpoints = Path(str(trainer.args.output_dir))
    state = TrainerState()
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    ended = 0 < trainer.args.max_steps <= state.global_step
    if patience is not None:
        stopping = EarlyStoppingCallback(patience)
        saved: Any = state.stateful_callbacks or {}
        attributes = saved.get("EarlyStoppingCallback", {}).get("attributes", {})
        counted = attributes.get("early_stopping_patience_counter", 0)
        stopping.early_stopping_patience_counter = counted  # the trainer would start at 0
        ended = ended or counted >= patience
        trainer.add_callback(stopping)
    watch = DivergenceCallback(loss)
    trainer.add_callback(watch)
    # Loading a checkpoint into the model in place is private to the trainer, and so is where it puts LoRA's weights.
    load: Any = trainer._load_from_checkpoint  # noqa: SLF001
    if ended:  # the trainer would train one more step
        trainer.state = state
        load(str(checkpoint))
    else:
        with write_errors(checkpoints):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    best = trainer.state.best_model_checkpoint or state.best_model_checkpoint
    if trainer.args.load_best_model_at_end and best is not None and (ended or not Path(best).is_dir()):
        # the trainer did not load it: nothing was trained, or the folder has been moved since
        load(str(checkpoints / Path(best).name))
    _report_divergence(trainer, loss, watch.step)


def _report_divergence(trainer: SentenceTransformerTrainer, loss: nn.Module, step: int | None) -> None:
    """Log that training diverged after the chosen weights; raise DivergenceError if none were chosen."""
    name = non_finite(loss)
    if name is None and step is None:
        return
    if name is None and trainer.args.load_best_model_at_end and trainer.state.best_model_checkpoint is not None:
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
