"""Pre-training of small BERTs by masked language modelling: raw encoders, like those that the papers start from.

It trains on the sentences of ``wiki_sentences`` and ``books_sentences``, one sentence a row, with the packaged
tokenizer, which is that of bert-base-uncased. A run that was killed resumes from its last checkpoint, and ends with
the weights of one long run. Every evaluation scores STS-B dev and measures how anisotropic the sentence embeddings are
(mean pooling).

``WORK/NAME/encoder`` is a plain ``BertForMaskedLM`` checkpoint; ``frequencies.tsv.gz`` beside it has the token counts
of the corpus, which SLT-FAI needs. The record has settings, curve and sha256 of the weights.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from benchmarks.raw_bert import MaskedLMLoss, export, start_encoder, start_words
from benchmarks.records import run_once
from benchmarks.studies import Options, chosen
from benchmarks.texts import write_counts
from st_extras.checks import check_fraction
from st_extras.encoders import load_encoder
from st_extras.evaluation import SEVEN_STS, GeometryEvaluator, sts_evaluator
from st_extras.files import whole_file
from st_extras.text import read_sentences
from st_extras.text.frequency import FrequencyTable
from st_extras.training import LossStateCallback

CORPUS = ("wiki_sentences.txt.gz", "books_sentences.txt.gz")


@dataclass(frozen=True)
class Settings:
    """Settings of a pre-training. A run is continued only with the settings that it was started with.

    Args:
        masking: share of the tokens that are masked at first.
        last_masking: the same at the last step; it changes linearly.
        count_words: start words from counts of the corpus (``start_words``).

    Raises:
        ValueError: if a share is not between 0 and 1.
    """

    layers: int = 4
    width: int = 256
    max_length: int = 64
    batch_size: int = 128
    learning_rate: float = 1e-3
    steps: int = 3600
    eval_steps: int = 300
    bf16: bool = True
    seed: int = 0
    masking: float = 0.15
    last_masking: float = 0.15
    count_words: bool = False

    def __post_init__(self) -> None:
        check_fraction("masking", self.masking)
        check_fraction("last_masking", self.last_masking)


class MaskingSchedule(TrainerCallback):
    """Changes the share of masked tokens linearly over the steps. It depends on the step alone, so it needs no state.

    Args:
        masked_lm: the objective whose ``probability`` is set.
        first: share at the first step.
        last: share after the last step.
    """

    def __init__(self, masked_lm: Any, first: float, last: float) -> None:
        self.masked_lm, self.first, self.last = masked_lm, first, last

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.masked_lm.probability = self.first + (self.last - self.first) * state.global_step / state.max_steps


def curve(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return training loss, STS-B dev and isotropy of every evaluation in the trainer's log, in the order of steps."""
    rows: dict[int, dict[str, float]] = {}
    for entry in history:
        row = rows.setdefault(int(entry["step"]), {"step": int(entry["step"])})
        row |= {"loss": round(entry["loss"], 4)} if "loss" in entry else {}
        for key, value in entry.items():
            if key.startswith("eval_") and key.endswith(("spearman_cosine", "mean_cosine", "iso_score")):
                row[key.removeprefix("eval_")] = round(value, 4)
    return [row for row in rows.values() if len(row) > 1]


def make_trainer(
    settings: Settings, sentences: list[str], data: Path, checkpoints: Path, *, fresh: bool
) -> SentenceTransformerTrainer:
    """Make the trainer of a random encoder.

    Args:
        settings: of the pre-training.
        sentences: the corpus.
        data: folder with the STS sets.
        checkpoints: folder for the checkpoints.
        fresh: whether no checkpoint will replace the start; only then are words counted.
    """
    set_seed(settings.seed)
    with tempfile.TemporaryDirectory() as folder:
        model = start_encoder(
            Path(folder), layers=settings.layers, width=settings.width, max_length=settings.max_length
        )
        loss = MaskedLMLoss(model)
    if settings.count_words and fresh:
        start_words(loss, sentences, settings.seed)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(checkpoints),
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=0.01,
        warmup_steps=settings.steps // 20,
        max_steps=settings.steps,
        eval_strategy="steps",
        eval_steps=settings.eval_steps,
        save_steps=settings.eval_steps,
        save_total_limit=2,
        logging_steps=settings.eval_steps,
        seed=settings.seed,
        bf16=settings.bf16,
        use_cpu=model.device.type == "cpu",
        dataloader_pin_memory=model.device.type != "cpu",
        report_to="none",
    )
    trainer = SentenceTransformerTrainer(
        model,
        args=arguments,
        train_dataset=Dataset.from_dict({"sentence": sentences}),
        loss=loss,
        evaluator=[
            sts_evaluator("stsb_dev", data),
            GeometryEvaluator(sentences[:1000], name="corpus", write_csv=False),
        ],
        callbacks=[MaskingSchedule(loss.masked_lm, settings.masking, settings.last_masking)],
    )
    LossStateCallback.attach(trainer)
    return trainer


def pretrain(settings: Settings, sentences: list[str], data: Path, output: Path) -> dict[str, Any]:
    """Start or continue a pre-training, and return its record.

    Args:
        settings: of the pre-training.
        sentences: the corpus.
        data: folder with the STS sets.
        output: folder for the encoder and the checkpoints.

    Raises:
        ValueError: if ``output`` holds checkpoints of other settings.
    """
    checkpoints, settings_file = output / "checkpoints", output / "settings.json"
    last = get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None  # type: ignore[no-untyped-call]
    wanted = asdict(settings) | {"sentences": len(sentences)}
    if last is not None and asdict(Settings()) | json.loads(settings_file.read_text(encoding="utf8")) != wanted:
        raise ValueError(
            f"output must be a new folder or that of a run with the same settings, got {str(output)!r}: choose another "
            "folder."
        )
    output.mkdir(parents=True, exist_ok=True)
    with whole_file(settings_file) as partial:
        partial.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf8")
    trainer = make_trainer(settings, sentences, data, checkpoints, fresh=last is None)
    trainer.train(resume_from_checkpoint=last)
    unfinished = output / "encoder.partial"
    digest = export(trainer.loss, unfinished)  # type: ignore[arg-type]
    shutil.rmtree(output / "encoder", ignore_errors=True)
    os.replace(unfinished, output / "encoder")
    raw = load_encoder(output / "encoder", pooling="mean", max_seq_length=min(settings.max_length, 32))
    write_counts(FrequencyTable.count(sentences, raw.tokenizer), output / "frequencies.tsv.gz")
    scores = sts_evaluator((*SEVEN_STS, "stsb_dev"), data)(raw)
    return {
        "settings": wanted,
        "parameters": sum(parameter.numel() for parameter in raw.parameters()),
        "sha256": digest,
        "curve": curve(trainer.state.log_history),
        "scores": {name: 100 * scores[f"{name}_spearman_cosine"] for name in (*SEVEN_STS, "stsb_dev")},
    }


def run(study: dict[str, Any], options: Options) -> None:
    """Pre-train each encoder of a study in the folder of its name, unless it has a record."""
    for name in chosen(options.encoders, list(study["encoders"]), "--encoders"):
        run_once(study["name"], name, partial(_made, study["encoders"][name], options, name), root=options.root)


def _made(settings: dict[str, Any], options: Options, name: str) -> dict[str, Any]:
    sentences = read_sentences([options.data / file for file in CORPUS])
    return pretrain(Settings(**settings), sentences, options.data, options.work / name)
