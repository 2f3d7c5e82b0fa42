"""Training in one call: the trainer, LossStateCallback, selection of the best weights, and the output folder."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from sentence_transformers.util import get_world_size
from torch import distributed as dist
from torch import nn
from transformers import TrainerCallback, set_seed
from transformers.trainer_callback import PrinterCallback

from st_extras.checks import check_instance, counted, shown
from st_extras.encoders.adapters import lora_adapters, trained_state
from st_extras.encoders.distributed import leave_processes_at_exit
from st_extras.encoders.loading import check_length
from st_extras.encoders.structure import check_known, fix_padding_side, warn_if_poorly_read
from st_extras.files import replace_folder
from st_extras.training.checkpoints import (
    check_same_training,
    check_training_output,
    keep_checkpoints,
    last_checkpoint,
)
from st_extras.training.data import spaced_texts, training_dataset, warn_of_labels
from st_extras.training.loss_state import LossStateCallback
from st_extras.training.model_card import TrainedCard
from st_extras.training.processes import launched_rank, refuse_sharding
from st_extras.training.settings import TrainingSettings, training_record
from st_extras.training.trainer import DivergenceError, EncoderTrainer, run_trainer, trainer_arguments

if TYPE_CHECKING:
    from peft import LoraConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingRun:
    """The result of a training.

    Attributes:
        trainer: the trainer, with its ``loss`` and ``state.log_history``.
        metric: name of the metric that chose the weights; None without an evaluator.
        curve: (step, metric) pairs; step 0 is the encoder before training.
        best_step: the step whose weights were kept; 0: the base model, as no checkpoint was better.
        best: the metric at ``best_step``; None without an evaluator, or if it scored no checkpoint.
        steps: number of optimizer steps trained.
        seconds: wall time of the steps, evaluations and checkpoints in seconds, without the base model's evaluation.
    """

    trainer: SentenceTransformerTrainer = field(repr=False)
    metric: str | None
    curve: list[tuple[int, float]]
    best_step: int
    best: float | None
    steps: int
    seconds: float


def train_encoder(
    model: SentenceTransformer,
    loss: nn.Module | Callable[[SentenceTransformer], nn.Module],
    data: Sequence[str] | Dataset | IterableDataset,
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
    lora: int | Mapping[str, Any] | LoraConfig | None = None,
    no_duplicates: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    show_progress_bar: bool = True,
    callbacks: Sequence[TrainerCallback] = (),
    **arguments: Any,
) -> TrainingRun:
    """Train a model in place, keep its best weights and save it to ``output``.

    The best weights are those of the checkpoint with the best score of ``evaluator``; without an evaluator, the last
    ones are kept. Until the model is saved, ``NAME.checkpoints`` beside ``output`` holds the trainer's checkpoints, for
    ``resume``; it is removed at the end.

    Args:
        model: the SentenceTransformer to train.
        loss: a loss, or a function that makes one from the model. With a function, the loss's own parameters
            also follow ``seed``.
        data: sentences, or a Dataset with the columns that the loss expects. An IterableDataset is streamed, which
            needs ``max_steps``; equal sentences are then not kept apart, and ``resume`` does not compare the text.
        output: a new or empty folder, or with ``overwrite`` an earlier result of this package.
        evaluator: scores the model every ``eval_steps`` steps and after the last step, unless ``eval_strategy`` sets
            another interval; the best of these weights are kept. It also scores the base model, which is kept if no
            checkpoint is better; a warning is then logged. If ``eval_strategy`` or ``eval_delay`` leaves no checkpoint
            to score, the last weights are kept, with a warning.
        batch_size: rows per step and process.
        learning_rate: initial learning rate; decays linearly to 0.
        loss_learning_rate: the same for the loss's own parameters (PaSeR's decoder, SLT-FAI's discriminators,
            AdCSE's head). They are initialized at random and may need 1e-3 if the encoder needs 3e-5. None:
            ``learning_rate``.
        max_steps: number of optimizer steps. -1: train for ``epochs``.
        epochs: passes over the data, unless ``max_steps`` is given.
        eval_steps: steps between evaluations and between checkpoints.
        patience: stop after this many evaluations in a row without improvement. None: never.
        seed: random seed for data order, dropout and the loss.
        bf16: use bfloat16 autocast.
        lora: train LoRA adapters of this rank in all linear layers, and no other weights of the transformer: for
            encoders too large to train all weights, loaded in bfloat16. It may also be a ``peft.LoraConfig`` or a dict
            of its arguments, see :func:`~st_extras.encoders.adapters.lora_adapters`. The adapters are merged at the
            end, so that a plain model is saved; checkpoints hold only the adapters. If the training fails, they are
            removed from ``model``. Learning rates of 1e-4 to 5e-4 are usual. Needs peft:
            ``pip install "st-extras[lora]"``.
        no_duplicates: keep equal sentences out of the same batch, where they would be false negatives. From a million
            rows on, Sentence Transformers' sampler compares hashes, which makes the same batches.
        resume: continue from the last complete checkpoint in ``NAME.checkpoints``, or from the start if an interruption
            left none; one with a damaged file is left out, with a warning. Text, loss and settings must be those of the
            interrupted training; the weights at the end are those of an uninterrupted one. An earlier result in
            ``output`` is replaced.
        overwrite: replace an earlier result in ``output``, also files in it that somebody has edited; without
            ``resume``, also discard an interrupted training beside it. A folder with any other file in it is refused
            before training.
        show_progress_bar: show a progress bar.
        callbacks: further callbacks of the trainer; ``resume`` does not compare them.
        arguments: further SentenceTransformerTrainingArguments, such as ``gradient_checkpointing=True``, which saves
            memory and takes a third more time; not ``fsdp`` or ``deepspeed``, where checkpoints are, or how the best
            one is chosen. With an evaluator, ``save_steps`` is ``eval_steps``.

    Several processes (``torchrun``, ``accelerate launch``) train with DistributedDataParallel, which needs the whole
    model in each of them.

    Raises:
        ValueError: if a setting has a wrong type or value, FSDP or DeepSpeed is set, or ``loss_learning_rate`` is given
            for a loss without its own parameters; if ``output`` may not be used (see
            :func:`~st_extras.files.check_output`), or ``resume`` is set for another training or for none.
        ValueError: if ``data`` is empty, has splits, fills no batch, or holds something that is not a sentence, or no
            token that the tokenizer knows.
        ValueError: if texts may be longer than ``model`` has positions for, or both views of each sentence are the same
            vector and nothing else trains the encoder.
        DivergenceError: a ValueError, if the weights become NaN or infinite before the first evaluation, or at any time
            without an evaluator. No model is saved; earlier checkpoints are kept.
        ImportError: if ``lora`` is given without peft.
        OSError: if the disk is full. The training can be resumed.
    """
    check_instance("model", model, SentenceTransformer)
    if isinstance(evaluator, list | tuple):
        raise ValueError(
            f"evaluator must be one evaluator, whose score chooses the weights, got {counted(len(evaluator), 'item')}: "
            "give SequentialEvaluator([...]), which counts the last one, or all by its main_score_function."
        )
    check_instance("evaluator", evaluator, BaseEvaluator, or_none=True)
    if isinstance(callbacks, TrainerCallback):
        raise ValueError(f"callbacks must be a list of callbacks, got a {type(callbacks).__name__}: give [callback].")
    settings = TrainingSettings(
        batch_size=batch_size,
        learning_rate=learning_rate,
        loss_learning_rate=loss_learning_rate,
        max_steps=max_steps,
        epochs=epochs,
        eval_steps=eval_steps,
        patience=patience,
        seed=seed,
        bf16=bf16,
        lora=lora,
        no_duplicates=no_duplicates,
        show_progress_bar=show_progress_bar,
        arguments=arguments,
    )
    if patience is not None and evaluator is None:
        raise ValueError(f"patience counts evaluations and needs an evaluator (--dev), got {patience} without one.")
    refuse_sharding(arguments)
    check_length(model)
    fix_padding_side(model)  # also for a loss of Sentence Transformers, which does not
    dataset = training_dataset(data)
    checkpoints = check_training_output(output, resume=resume, overwrite=overwrite)
    checkpoint = last_checkpoint(checkpoints) if resume else None  # None: from the start
    set_seed(settings.seed)
    is_first = launched_rank() == 0  # of several processes, which have no group yet
    texts = spaced_texts(dataset)
    warn_of_labels(dataset, texts)
    check_known(model, texts, "data")
    warn_if_poorly_read(model, texts)
    with lora_adapters(model, settings.lora) as merge_adapters:
        warn_of_half_precision(model)
        loss_module = loss if isinstance(loss, nn.Module) else loss(model)
        check_instance("loss, or what it returns,", loss_module, nn.Module)
        kept: AbstractContextManager[None] = nullcontext()
        if is_first:
            record = training_record(model, loss_module, dataset, evaluator, settings, checkpoints)
            if resume:
                check_same_training(checkpoints, record)
            kept = keep_checkpoints(checkpoints, record, resume=resume)
        before, metric = (None, None) if evaluator is None else score_of(evaluator, model)
        args = trainer_arguments(model, loss_module, dataset, evaluator, metric, checkpoints, settings)
        card = TrainedCard(model, loss_module, evaluator)
        base = {} if evaluator is None else {name: x.to("cpu", copy=True) for name, x in trained_state(model).items()}
        with kept:
            try:
                trainer = EncoderTrainer(
                    model,
                    args=args,
                    train_dataset=dataset,
                    loss=loss_module,
                    evaluator=evaluator,
                    callbacks=[*callbacks],
                    trained_only=lora is not None,
                )
            finally:
                card.leave_out_sentences()
            trainer.remove_callback(PrinterCallback)  # without a bar it would print each log entry to stdout
            LossStateCallback.attach(trainer)
            began = time.perf_counter()
            run_trainer(trainer, loss_module, checkpoint, settings.patience)
            if trainer.state.global_step == 0:
                raise ValueError(f"data must fill at least one batch of {batch_size} different rows, got none.")
            result = _result(trainer, metric, before, time.perf_counter() - began)
            if result.best_step == 0:
                model.load_state_dict(base, strict=False)
            card.keep_scores(trainer, result.best_step)
            merge_adapters()
            if get_world_size() > 1:
                dist.barrier()  # the others may still be reading the best checkpoint, which goes now
            if is_first:
                with replace_folder(output, overwrite=overwrite or resume) as folder:
                    model.save(str(folder))
    leave_processes_at_exit()
    return result


def warn_of_half_precision(model: SentenceTransformer) -> None:
    """Warn if weights in half precision are trained: most updates are smaller than the gap to the next number."""
    half = [p.dtype for p in model.parameters() if p.requires_grad and p.is_floating_point() and p.dtype.itemsize < 4]
    if half:
        logger.warning(
            "The weights to train are in %s, in which small updates are lost: load the encoder with dtype='float32' "
            "and train with bf16=True, or train adapters with lora=16.",
            str(half[0]).removeprefix("torch."),
        )


def score_of(evaluator: BaseEvaluator, model: SentenceTransformer) -> tuple[float, str]:
    """Return a model's score and the name under which the trainer logs it, without "eval_".

    Some evaluators name their metric only once they have run. A score without a name is logged as "evaluator".

    Raises:
        ValueError: if the evaluator returns several scores and its ``primary_metric`` is none of them, or the score is
            not finite.
    """
    scores = evaluator(model)
    name = str(evaluator.primary_metric) if isinstance(scores, dict) else "evaluator"
    if isinstance(scores, dict) and name not in scores:
        raise ValueError(
            f"evaluator must name one of its scores ({', '.join(map(repr, scores))}) in primary_metric, got "
            f"{shown(evaluator.primary_metric)}."
        )
    score = float(scores[name] if isinstance(scores, dict) else scores)
    if not math.isfinite(score):
        raise ValueError(f"evaluator must return a finite score, got {score} before training ({name}).")
    return score, name


def _result(trainer: EncoderTrainer, metric: str | None, before: float | None, seconds: float) -> TrainingRun:
    """Return the result of a training, which says whose weights to keep; warn if they are not those of a checkpoint.

    Args:
        trainer: the trainer, with its best checkpoint loaded.
        metric: name of the metric that chose it; None without an evaluator.
        before: the base model's score, with which the curve begins; None without an evaluator. A tie keeps the base.
        seconds: time taken.

    Raises:
        DivergenceError: if no checkpoint has a finite score.
    """
    state, key = trainer.state, f"eval_{metric}"
    steps, best, best_step = state.global_step, state.best_metric, state.best_global_step
    if before is None:
        return TrainingRun(trainer, None, [], steps, None, steps, seconds)
    curve = [(0, before)] + [(int(entry["step"]), entry[key]) for entry in state.log_history if key in entry]
    if best is None:
        logger.warning(
            "The evaluator scored no checkpoint in %d steps: the last weights are kept, better than the base model or "
            "not. Check eval_strategy and eval_delay.",
            steps,
        )
        return TrainingRun(trainer, metric, curve, steps, None, steps, seconds)
    if best_step is None or not math.isfinite(best):
        raise DivergenceError(f"Training diverged, no checkpoint has a finite {key}: try a lower learning rate.")
    if trainer.best_is_lost:
        logger.warning(
            "The best weights, of step %d (%s was %.4f), could not be loaded from their checkpoint: the last weights, "
            "of step %d, are kept.",
            best_step,
            metric,
            best,
            steps,
        )
        return TrainingRun(trainer, metric, curve, steps, dict(curve).get(steps), steps, seconds)
    if not (best > before if trainer.args.greater_is_better else best < before):
        logger.warning(
            "No checkpoint was better than the base model, which is saved unchanged: %s was %.4f before training and "
            "%.4f at best (step %d). Check that the training text resembles the text that the encoder is meant for.",
            metric,
            before,
            best,
            best_step,
        )
        best, best_step = before, 0
    return TrainingRun(trainer, metric, curve, best_step, best, steps, seconds)
