"""Pre-train a small BERT by masked language modelling: a raw encoder of our own, like those that the papers start from.

    python -m benchmarks.pretrain_encoder --data DATA_FOLDER --output runs/own_encoder [--minutes 90]

It trains on the sentences of ``wiki_sentences`` and ``books_sentences``, one sentence a row, with the packaged
tokenizer, which is that of bert-base-uncased. If a run was stopped by ``--minutes`` or killed, the same command
continues it with the same weights, optimizer and data order, so that it ends with the weights of one long run. Every
evaluation scores STS-B dev and measures how anisotropic the sentence embeddings are (mean pooling).

``--recipe better`` learns more from the same text: words that start from counts (``benchmarks/word_start.py``), more
tokens masked at first than at last, and a larger learning rate. Each of them is an option of its own, too.
Without these options the encoder is the same to the bit as before there were any.

``OUTPUT/encoder`` is a plain ``BertForMaskedLM`` checkpoint; ``OUTPUT/frequencies.tsv.gz`` has the token counts of the
pre-training corpus, which SLT-FAI needs; ``OUTPUT/checkpoints`` is what the next run continues from. The record
(settings, curve, sha256 of the weights) is written to ``benchmarks/results/pretraining/`` when all steps are done.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from transformers import TrainerCallback, set_seed
from transformers.trainer_utils import get_last_checkpoint

from benchmarks.pretraining_run import MaskingSchedule, StopAfter, curve
from benchmarks.provenance import provenance
from benchmarks.raw_bert import MaskedLMLoss, export, start_encoder
from benchmarks.records import RESULTS, write_json
from benchmarks.word_start import start_words
from st_extras.checks import check_fraction
from st_extras.encoders import load_encoder, use_length_buckets
from st_extras.evaluation import SEVEN_STS, GeometryEvaluator, sts_evaluator
from st_extras.text import read_sentences
from st_extras.text.frequency import FrequencyTable
from st_extras.training import LossStateCallback

DATA_HELP = "folder with the corpora and the STS sets (default: $ST_EXTRAS_DATA)"
CORPUS = ("wiki_sentences.txt.gz", "books_sentences.txt.gz")


@dataclass(frozen=True)
class Settings:
    """Settings of a pre-training. A run is continued only with the settings that it was started with.

    Args:
        masking: share of the tokens that are masked at first.
        last_masking: the same at the last step; it changes linearly.
        count_words: start words from counts of the corpus (``benchmarks/word_start.py``).

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
    length_buckets: int = 8
    seed: int = 0
    masking: float = 0.15
    last_masking: float = 0.15
    count_words: bool = False

    def __post_init__(self) -> None:
        check_fraction("masking", self.masking)
        check_fraction("last_masking", self.last_masking)


RECIPES: dict[str, dict[str, Any]] = {
    "better": {
        "learning_rate": 2e-3,
        "masking": 0.4,
        "count_words": True,
    }
}
"""Other values than the defaults, by the name of the recipe."""
HELP = {
    "masking": "share of the tokens that are masked at first",
    "last_masking": "share at the last step; linear between them",
    "count_words": "start word embeddings and output bias from counts of the corpus",
}


def make_trainer(
    settings: Settings, sentences: list[str], data: Path, checkpoints: Path, minutes: float | None, *, fresh: bool
) -> SentenceTransformerTrainer:
    """Make the trainer of a random encoder.

    Args:
        settings: of the pre-training.
        sentences: the corpus.
        data: folder with the STS sets.
        checkpoints: folder for the checkpoints.
        minutes: time until this run stops; None: it runs to the end.
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
    callbacks: list[TrainerCallback] = [] if minutes is None else [StopAfter(60 * minutes)]
    callbacks.append(MaskingSchedule(loss.masked_lm, settings.masking, settings.last_masking))
    use_length_buckets(model, settings.length_buckets)
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
        callbacks=callbacks,
    )
    LossStateCallback.attach(trainer)
    return trainer


def pretrain(
    settings: Settings, sentences: list[str], data: Path, output: Path, *, minutes: float | None = None
) -> dict[str, Any] | None:
    """Start or continue a pre-training, and return its record, or None if it is not complete yet.

    Args:
        settings: of the pre-training.
        sentences: the corpus.
        data: folder with the STS sets.
        output: folder for the encoder and the checkpoints.
        minutes: time until this run stops; None: it runs to the end.

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
    write_json(settings_file, wanted)
    trainer = make_trainer(settings, sentences, data, checkpoints, minutes, fresh=last is None)
    began = time.perf_counter()
    trainer.train(resume_from_checkpoint=last)
    print(f"step {trainer.state.global_step} of {settings.steps}, {time.perf_counter() - began:.0f} s", flush=True)
    if trainer.state.global_step < settings.steps:
        return None
    partial = output / "encoder.partial"
    digest = export(trainer.loss, partial)  # type: ignore[arg-type]
    shutil.rmtree(output / "encoder", ignore_errors=True)
    os.replace(partial, output / "encoder")
    raw = load_encoder(output / "encoder", pooling="mean", max_seq_length=min(settings.max_length, 32))
    FrequencyTable.count(sentences, raw.tokenizer).save(output / "frequencies.tsv.gz")
    scores = sts_evaluator((*SEVEN_STS, "stsb_dev"), data)(raw)
    return {
        "settings": wanted,
        "parameters": sum(parameter.numel() for parameter in raw.parameters()),
        "sha256": digest,
        "curve": curve(trainer.state.log_history),
        "scores": {name: 100 * scores[f"{name}_spearman_cosine"] for name in (*SEVEN_STS, "stsb_dev")},
        **provenance(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("ST_EXTRAS_DATA"), help=DATA_HELP)
    parser.add_argument("--output", type=Path, help="folder for the encoder (default: runs/own_encoder[_RECIPE])")
    parser.add_argument("--recipe", choices=list(RECIPES), help="settings that learn more; options beside it win")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for records (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="stop after this time; run the command again to continue")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch")
    parser.add_argument("--no-bf16", dest="bf16", action="store_false", help="train without bfloat16 autocast")
    for name, default in asdict(Settings()).items():
        kind: dict[str, Any] = {"type": type(default)}
        if isinstance(default, bool):
            kind = {"action": argparse.BooleanOptionalAction}
        if name != "bf16":
            parser.add_argument(f"--{name.replace('_', '-')}", default=default, help=HELP.get(name), **kind)
    recipe = parser.parse_known_args()[0].recipe
    parser.set_defaults(**RECIPES.get(recipe, {}))
    options = vars(parser.parse_args())
    recipe = options.pop("recipe")
    options["output"] = options["output"] or Path("runs/own_encoder" + (f"_{recipe}" if recipe else ""))
    if options["data"] is None:
        parser.error("--data FOLDER (or ST_EXTRAS_DATA) must name the folder with the corpus and the STS sets.")
    data, output, minutes = Path(options.pop("data")), options.pop("output"), options.pop("minutes")
    results = options.pop("results")
    torch.set_num_threads(options.pop("threads"))
    sentences = read_sentences([data / name for name in CORPUS])
    record = pretrain(Settings(**options), sentences, data, output, minutes=minutes)
    if record is not None:
        write_json(results / "pretraining" / f"{output.name}.json", record)


if __name__ == "__main__":
    main()
