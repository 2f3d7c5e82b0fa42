"""Pre-train a small BERT by masked language modelling: the raw encoder of one's own that the papers start from.

    python -m benchmarks.pretrain_encoder --data DATA_FOLDER --output runs/own_encoder [--minutes 90]

On the sentences of ``wiki_sentences`` and ``books_sentences``, one a row, with the packaged tokenizer, which is that
of bert-base-uncased. The same command goes on where an earlier one ended, was stopped by ``--minutes`` or was killed:
with the same weights, optimizer and data order, so that the stretches end as one long run would. While it goes it
scores STS-B dev and measures how anisotropic the sentence embeddings are (mean pooling).

``OUTPUT/encoder`` is a plain ``BertForMaskedLM`` checkpoint, ``OUTPUT/frequencies.tsv.gz`` the token counts of
exactly the pre-training corpus (SLT-FAI's procedure), ``OUTPUT/checkpoints`` what a stretch leaves to the next. The
record (settings, curve, the weights' sha256) goes to ``benchmarks/results/pretraining/``, once all steps are done.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from torch import Tensor, nn
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from benchmarks.common import provenance, write_json
from benchmarks.records import RESULTS
from st_extras.demo import packaged_minilm
from st_extras.encoders import encode
from st_extras.evaluation import SEVEN_STS, GeometryEvaluator, sts_evaluator
from st_extras.masked_lm import MaskedLM
from st_extras.modules.length_buckets import use_length_buckets
from st_extras.modules.loading import load_encoder
from st_extras.rows import Features
from st_extras.text.corpus import read_sentences
from st_extras.text.frequency import FrequencyTable
from st_extras.training import LossStateCallback

CORPUS = ("wiki_sentences.txt.gz", "books_sentences.txt.gz")


@dataclass(frozen=True)
class Settings:
    """Of a pre-training; a stretch goes on only with those of the stretches before it."""

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


class MaskedLMLoss(nn.Module):
    """BERT's objective on one column of sentences, logits at the masked positions alone."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.masked_lm = MaskedLM(model)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        (sentence,) = sentence_features
        corrupted, drawn = self.masked_lm.corrupt(self.model, sentence)
        tokens = encode(self.model, corrupted).tokens[drawn]  # (N, D)
        words: Any = self.model.transformers_model.get_input_embeddings()  # type: ignore[union-attr]
        value: Tensor = self.masked_lm(tokens, sentence["input_ids"][drawn], words.weight)
        return value


class StopAfter(TrainerCallback):
    """Ends a stretch, with a checkpoint, when its time is over."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if time.monotonic() >= self.end:
            control.should_save = control.should_training_stop = True


def start_encoder(settings: Settings, folder: Path) -> SentenceTransformer:
    """A random BERT of the settings' size with a head of its own, saved to ``folder`` and loaded from there."""
    tokenizer = AutoTokenizer.from_pretrained(packaged_minilm(), model_max_length=settings.max_length)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=max(settings.width // 64, 1),
        intermediate_size=4 * settings.width,
        max_position_embeddings=settings.max_length,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_encoder(folder, pooling="mean", max_seq_length=settings.max_length)


def export(loss: MaskedLMLoss, folder: Path) -> str:
    """Write encoder and head as one ``BertForMaskedLM`` with its tokenizer; the weights' sha256."""
    encoder: Any = loss.model.transformers_model
    full = BertForMaskedLM(encoder.config)
    own = {f"bert.{name}": value for name, value in encoder.state_dict().items()}
    head = loss.masked_lm.head.state_dict() | {"cls.predictions.bias": loss.masked_lm.bias}
    known = full.state_dict()
    tied = {"cls.predictions.decoder.weight": own["bert.embeddings.word_embeddings.weight"]}
    tied["cls.predictions.decoder.bias"] = loss.masked_lm.bias
    full.load_state_dict({name: value for name, value in (own | head | tied).items() if name in known})
    full.save_pretrained(folder)
    loss.model.tokenizer.save_pretrained(folder)
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def curve(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Training loss, STS-B dev and isotropy of every evaluation in the trainer's log, by step."""
    rows: dict[int, dict[str, float]] = {}
    for entry in history:
        row = rows.setdefault(int(entry["step"]), {"step": int(entry["step"])})
        row |= {"loss": round(entry["loss"], 4)} if "loss" in entry else {}
        for key, value in entry.items():
            if key.startswith("eval_") and key.endswith(("spearman_cosine", "mean_cosine", "iso_score")):
                row[key.removeprefix("eval_")] = round(value, 4)
    return [row for row in rows.values() if len(row) > 1]


def make_trainer(
    settings: Settings, sentences: list[str], data: Path, checkpoints: Path, minutes: float | None
) -> SentenceTransformerTrainer:
    """The random encoder, its objective and what watches over them."""
    set_seed(settings.seed)
    with tempfile.TemporaryDirectory() as folder:
        model = start_encoder(settings, Path(folder))
        loss = MaskedLMLoss(model)
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
        callbacks=None if minutes is None else [StopAfter(60 * minutes)],
    )
    LossStateCallback.attach(trainer)
    return trainer


def pretrain(
    settings: Settings, sentences: list[str], data: Path, output: Path, *, minutes: float | None = None
) -> dict[str, Any] | None:
    """Run a stretch; the record of the whole training once it is complete, else None.

    Raises:
        ValueError: checkpoints of other settings lie in ``output``.
    """
    checkpoints, settings_file = output / "checkpoints", output / "settings.json"
    last = get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None  # type: ignore[no-untyped-call]
    wanted = asdict(settings) | {"sentences": len(sentences)}
    if last is not None and json.loads(settings_file.read_text(encoding="utf8")) != wanted:
        raise ValueError(f"{str(output)!r} holds a training with other settings: choose another --output.")
    write_json(settings_file, wanted)
    trainer = make_trainer(settings, sentences, data, checkpoints, minutes)
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
    parser.add_argument("--data", type=Path, default=os.environ.get("ST_EXTRAS_DATA"))
    parser.add_argument("--output", type=Path, default=Path("runs/own_encoder"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="the record goes here (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="end this stretch after so long; run the command again to go on")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-bf16", dest="bf16", action="store_false")
    for name, default in asdict(Settings()).items():
        if name != "bf16":
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args())
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
