"""One cell of a study: train a method with one seed, keep the best weights by STS-B dev, and score them."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from benchmarks.building import frequency_table, has_negatives, make_loss, starting_encoder, training_rows
from benchmarks.figures.frequency_bias import frequency_bias
from benchmarks.fitted_text import spaced, thinned
from benchmarks.pairs import DEV
from benchmarks.provenance import provenance
from benchmarks.studies import check_chosen, corpus_sentences
from benchmarks.variants import run_after
from st_extras.encoders import load_encoder, use_length_buckets
from st_extras.evaluation import (
    SEVEN_STS,
    GeometryEvaluator,
    STSDataset,
    STSEvaluator,
    UnlabeledSelectionEvaluator,
    load_sts,
)
from st_extras.training import TrainingRun, train_encoder


class DevAndSignals(BaseEvaluator):
    """Score STS-B dev, and compute the label-free signal beside it.

    Both run under bfloat16 autocast if the training does. The signals of every call are kept in ``seen``.

    Args:
        dev: chooses the weights that are kept.
        signals: the label-free signals; None: none are computed.
        bf16: whether to use autocast.
    """

    def __init__(self, dev: BaseEvaluator, signals: BaseEvaluator | None, bf16: bool) -> None:
        super().__init__()
        self.dev, self.signals, self.bf16 = dev, signals, bf16
        self.primary_metric, self.greater_is_better = dev.primary_metric, dev.greater_is_better
        self.seen: list[dict[str, float]] = []

    def __call__(self, model: SentenceTransformer, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self.bf16):
            if self.signals is not None:
                self.seen.append(self.signals(model))
            return self.dev(model, *args, **kwargs)


class KeepsVectors(STSEvaluator):
    """The evaluator of the STS sets. After a call, ``vectors`` holds the vector of each sentence, (D,)."""

    def __init__(self, datasets: Sequence[STSDataset]) -> None:
        super().__init__(datasets)
        self.vectors: dict[str, NDArray[np.float64]] = {}

    def encode(self, model: SentenceTransformer, sentences: Sequence[str]) -> Tensor:
        """Return the (N, D) embeddings of the sentences, and keep them."""
        found = super().encode(model, sentences)
        self.vectors = dict(zip(sentences, found.double().cpu().numpy(), strict=True))
        return found


class EvaluateAt(TrainerCallback):
    """Logs, evaluates and saves a checkpoint at further steps: some methods are best before the first evaluation.

    Args:
        steps: the steps.
    """

    def __init__(self, steps: Iterable[int]) -> None:
        self.steps = frozenset(steps)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for all three if it is one of the steps."""
        if state.global_step in self.steps:
            control.should_log = control.should_evaluate = control.should_save = True


def run_cell(study: dict[str, Any], name: str, seed: int, data: Path, work: Path) -> dict[str, Any]:
    """Train a method of a study and return its record.

    Args:
        study: the study, as ``load_study`` returns it.
        name: the method.
        seed: random seed for the training.
        data: folder with the corpora and the STS sets.
        work: folder for the weights of the study, one folder for each method and seed.
    """
    method = study["training"] | study["methods"][name]
    check_chosen(name, method)
    sentences = corpus_sentences(method, data)
    encoder = study["encoder"] | method.get("encoder", {})
    weights = {other: work / f"{other}-{seed}" for other in study["methods"]}
    model = load_encoder(weights[method["start"]]) if "start" in method else starting_encoder(encoder)
    rows = training_rows(model, method, sentences, seed)
    if method.get("length_buckets"):
        use_length_buckets(model, method["length_buckets"])
    size = method.get("signals", 0)
    signals = UnlabeledSelectionEvaluator(sentences, size=size, write_csv=False) if size else None
    dev = STSEvaluator([thinned(load_sts(DEV, data), method.get("pairs", {}))])
    evaluator = DevAndSignals(dev, signals, method["bf16"])
    began, origin = time.perf_counter(), provenance()
    run = train_encoder(
        model,
        lambda trained: make_loss(trained, method, sentences, weights, data),
        rows,
        weights[name],
        evaluator=evaluator,
        batch_size=method["batch_size"],
        learning_rate=method["learning_rate"],
        max_steps=method["steps"],
        eval_steps=method["eval_steps"],
        bf16=method["bf16"],
        seed=seed,
        no_duplicates=has_negatives(method),
        overwrite=True,
        show_progress_bar=False,
        callbacks=[EvaluateAt(method.get("eval_at", ()))],
        **method.get("arguments", {}),
    )
    scores, vectors = score_sets(model, data, method) if method.get("test", True) else ({}, {})
    sets = {key: 100 * scores[f"{key}_spearman_cosine"] for key in SEVEN_STS if scores}
    extra = {"checkpoints": checkpoints(run, evaluator.seen)} if size else {}
    extra |= adversary(logged(run))
    extra |= post_processed(model, method, sentences, data, vectors)
    extra |= embedding_space(model, method, sentences, data)
    if "masking" in method:
        extra["reconstructed"] = reconstructed(run.trainer.loss, rows)
    shutil.rmtree(weights[name] / "checkpoints", ignore_errors=True)
    return {
        "study": study["name"],
        **{key: study[key] for key in ("weights",) if key in study},
        "encoder": encoder,
        "method": name,
        "settings": method,
        "seed": seed,
        **training_figures(run),
        "scores": sets,
        "average": statistics.mean(sets.values()) if sets else None,
        "seconds": round(time.perf_counter() - began, 1),
        **extra,
        **origin,
    }


def start_record(study: dict[str, Any], data: Path) -> dict[str, Any]:
    """Score the encoder of a study before training and return its record."""
    model = starting_encoder(study["encoder"])
    settings = study["training"]
    scores, vectors = score_sets(model, data, settings, (*SEVEN_STS, DEV))
    sets = {key: 100 * scores[f"{key}_spearman_cosine"] for key in SEVEN_STS}
    sentences = corpus_sentences(settings, data)
    return {
        "study": study["name"],
        **{key: study[key] for key in ("weights",) if key in study},
        "encoder": study["encoder"],
        "method": "start",
        "seed": 0,
        "steps": 0,
        "best_step": 0,
        "dev": 100 * scores["stsb_dev_spearman_cosine"],
        "scores": sets,
        "average": statistics.mean(sets.values()),
        **post_processed(model, settings, sentences, data, vectors),
        **embedding_space(model, settings, sentences, data),
    }


def score_sets(
    model: SentenceTransformer, data: Path, settings: dict[str, Any], names: Sequence[str] = SEVEN_STS
) -> tuple[dict[str, float], dict[str, Any]]:
    """Score the named sets.

    Returns:
        The metrics; of thinned sets, the vector of each sentence.
    """
    counts = settings.get("pairs", {})
    names = (*SEVEN_STS, DEV) if counts else names  # so that the vectors of all are there
    evaluator = KeepsVectors([thinned(load_sts(name, data), counts) for name in names])
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bool(counts) and settings["bf16"]):
        scores: dict[str, float] = evaluator(model)
    return scores, evaluator.vectors if counts else {}


def training_figures(run: TrainingRun) -> dict[str, Any]:
    """Return the steps of a training and its curve on STS-B dev."""
    return {
        "steps": run.steps,
        "best_step": run.best_step,
        "dev": 100 * (run.best or 0),
        "curve": [[step, round(100 * value, 3)] for step, value in run.curve],
        "log": logged(run),
    }


def logged(run: TrainingRun) -> list[list[Any]]:
    """Return [step, {name: value}] of each entry of the log: training loss, its terms, the loss's instruments."""
    others = {"step", "epoch", "grad_norm", "learning_rate"}
    return [
        [entry["step"], {name: float(f"{value:.5g}") for name, value in entry.items() if name not in others}]
        for entry in run.trainer.state.log_history
        if "loss" in entry
    ]


def checkpoints(run: TrainingRun, signals: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Return dev score, training loss and label-free signals of every evaluation."""
    losses = {entry["step"]: entry["loss"] for entry in run.trainer.state.log_history if "loss" in entry}
    return [
        {"step": step, "dev_spearman": value, "training_loss": losses.get(step), "signals": found}
        for (step, value), found in zip(run.curve, signals, strict=True)
    ]


def adversary(log: list[list[Any]]) -> dict[str, float]:
    """Return how strong AdCSE's adversaries were at the last step, and how far they had turned; {} for another loss."""
    return {name: value for name, value in log[-1][1].items() if name.startswith("adversary_")}


def post_processed(
    model: SentenceTransformer, settings: dict[str, Any], sentences: list[str], data: Path, vectors: dict[str, Any]
) -> dict[str, Any]:
    """Score the seven sets after each post-processing that the settings name.

    ``sentences`` is the training text, for the variants that are fitted on it; ``vectors`` are those of ``score_sets``.
    """
    variants = settings.get("post_processing")
    if not variants:
        return {}
    of_pairs = {"pairs": settings.get("pairs"), "known": vectors}
    return {"post_processing": run_after(model, data, variants, sentences, bf16=settings["bf16"], **of_pairs)}


def embedding_space(
    model: SentenceTransformer, settings: dict[str, Any], sentences: list[str], data: Path
) -> dict[str, dict[str, float]]:
    """Describe the embedding space as far as the settings ask for it.

    ``frequencies`` asks for the frequency probe, on 2,000 sentences; ``geometry`` for the geometry of that number of
    sentence embeddings.
    """
    found: dict[str, dict[str, float]] = {}
    if settings.get("probe", "frequencies" in settings):
        table = frequency_table(model, settings, data)
        found["frequency_bias"] = frequency_bias(model, spaced(sentences, 2000), table)
    if "geometry" in settings:
        found["geometry"] = GeometryEvaluator(spaced(sentences, settings["geometry"]), write_csv=False)(model)
    return found


def reconstructed(loss: Any, rows: Any) -> list[dict[str, str]]:
    """Decode ten masked phrases with the kept weights. The sentences stay out of the record: they are the corpus's."""
    chosen = rows.select(range(0, len(rows), len(rows) // 10)).select(range(10))
    phrases = loss.reconstruct(list(chosen["sentence"]), list(chosen["masked"]))
    return [{"phrase": row["phrase"], "reconstructed": phrase} for row, phrase in zip(chosen, phrases, strict=True)]
