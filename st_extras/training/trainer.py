"""The trainer of ``train_encoder``: building it, its progress bar, and running it from the start or a checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from safetensors.torch import load_file, save_file
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base import model_card
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import nn
from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import EarlyStoppingCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from st_extras.encoders.adapters import trained_state
from st_extras.encoders.structure import unwrap
from st_extras.files import write_errors
from st_extras.training.divergence import DivergenceCallback, DivergenceError, non_finite
from st_extras.training.loss_state import LossStateCallback

logger = logging.getLogger(__name__)
TRAINED = "trained.safetensors"
"""The only weights file of a checkpoint if part of the model is frozen; it holds the trained parameters."""


def build_trainer(
    model: SentenceTransformer,
    dataset: Dataset | IterableDataset,
    loss: nn.Module,
    evaluator: BaseEvaluator | None,
    checkpoints: Path,
    settings: dict[str, Any],
    run: Mapping[str, Any],
    trained_only: bool = False,
) -> SentenceTransformerTrainer:
    """Return a trainer with ``LossStateCallback`` attached.

    Args:
        model: the model to train.
        dataset: its rows.
        loss: the loss.
        evaluator: the evaluator that chooses the weights; None: the last ones are kept.
        checkpoints: folder for the checkpoints.
        settings: arguments of the trainer; they replace the defaults for the device.
        run: the settings of the run, which every checkpoint records.
        trained_only: whether checkpoints leave out the frozen parameters, which do not change.
    """
    on_cpu = model.device.type == "cpu"
    defaults: dict[str, Any] = {"report_to": "none", "use_cpu": on_cpu, "dataloader_pin_memory": not on_cpu}
    defaults["logging_nan_inf_filter"] = False  # it reads every loss at once; DivergenceCallback watches for NaN
    with no_bar_of_the_model_card():
        trainer = SentenceTransformerTrainer(
            model,
            args=SentenceTransformerTrainingArguments(output_dir=str(checkpoints), **(defaults | settings)),
            train_dataset=dataset,
            loss=loss,
            evaluator=evaluator,
        )
    trainer.remove_callback(PrinterCallback)
    if trainer.pop_callback(ProgressCallback) is not None:  # a notebook has a table, and keeps it
        trainer.add_callback(TrainingBar())
    if trained_only:
        _checkpoint_only_what_is_trained(trainer)
    LossStateCallback.attach(trainer, run)
    return trainer


def _checkpoint_only_what_is_trained(trainer: SentenceTransformerTrainer) -> None:
    """Leave frozen parameters out of checkpoints: a large model's would be gigabytes beside its small adapters.

    Sentence Transformers would save adapters with the name of their base model, and load that model to resume. It would
    be another model if, for example, layers were removed after loading.
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

    trainer._save = save  # type: ignore[method-assign]
    trainer._load_from_checkpoint = load  # type: ignore[method-assign, assignment]


def run_training(
    trainer: SentenceTransformerTrainer, loss: nn.Module, checkpoint: str | None, patience: int | None
) -> float:
    """Train, load the best weights and return the seconds taken.

    Args:
        trainer: the trainer.
        loss: its loss.
        checkpoint: the checkpoint to continue from; None: start anew.
        patience: stop after this many evaluations in a row without improvement. None: never.

    Raises:
        DivergenceError: if the loss or the weights became NaN or infinite and no earlier weights were chosen.
        OSError: if a checkpoint could not be written.
    """
    began = time.perf_counter()
    checkpoints = Path(str(trainer.args.output_dir))
    state = TrainerState()
    if checkpoint is not None:
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
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
    try:
        if ended:  # the trainer would train one more step
            trainer.state = state
            trainer._load_from_checkpoint(str(checkpoint))
        else:
            with write_errors(checkpoints), log_above_the_bar(trainer):
                trainer.train(resume_from_checkpoint=checkpoint)
    finally:
        watch.detach()
    best = trainer.state.best_model_checkpoint or state.best_model_checkpoint
    if trainer.args.load_best_model_at_end and best is not None and (ended or not Path(best).is_dir()):
        # the trainer did not load it: nothing was trained, or the output folder has been moved since
        trainer._load_from_checkpoint(str(checkpoints / Path(best).name))
    _report_divergence(trainer, loss, watch.step)
    return time.perf_counter() - began


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
    where = "" if step is None else f" at step {step}"
    what = "the loss is not finite" if name is None else f"{name} is not finite"
    raise DivergenceError(
        f"Training diverged{where}: {what}, and no model is saved; checkpoints before it stay: try a lower learning "
        "rate."
    )


# --- the bar ---


class TrainingBar(ProgressCallback):
    """Shows the latest loss and score at the end of the bar; transformers would print a line for each."""

    training_bar: Any

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar, at the step from which training resumes."""
        self.shown: dict[str, float] = {}
        self.current_step = state.global_step
        if state.is_world_process_zero:
            self.training_bar = tqdm(
                total=state.max_steps, initial=state.global_step, desc="Training", unit="step", dynamic_ncols=True
            )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Show the loss and the dev score of a log entry."""
        if self.training_bar is None or logs is None:
            return
        for key, name in (("loss", "loss"), (args.metric_for_best_model, "dev score")):
            if key in logs:
                self.shown[name] = logs[key]
        self.training_bar.set_postfix(self.shown)


def log_above_the_bar(trainer: SentenceTransformerTrainer) -> AbstractContextManager[None]:
    """Print log messages on their own lines above the trainer's bar."""
    shown = any(isinstance(callback, TrainingBar) for callback in trainer.callback_handler.callbacks)
    return logging_redirect_tqdm() if shown else nullcontext()


@contextmanager
def no_bar_of_the_model_card() -> Iterator[None]:
    """Hide Sentence Transformers' bar for choosing the examples of the model card."""
    module: Any = model_card
    bar = module.tqdm
    module.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        module.tqdm = bar
