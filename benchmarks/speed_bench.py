"""What all timed cases share: settings, encoder, sentences and batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import nn

from st_extras.encoders import load_encoder
from st_extras.encoders.rows import Features
from st_extras.samples import sample_sentences
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import PhraseMasking, read_sentences


@dataclass(frozen=True)
class Settings:
    """Settings of a measurement, from which a fresh process makes the same bench.

    Args:
        batch: B, number of sentences.
        length: maximum length in tokens.
        rounds: number of measured rounds.
        threads: threads of torch.
        device: "cpu" or "cuda".
        data: data folder to take sentences from; None: the sample sentences.
        encoder: folder of the encoder and guide; None: three layers of the packaged MiniLM, and all six as the guide.
        bf16: whether steps run under bfloat16 autocast, as with the trainer's ``bf16=True``.
    """

    batch: int = 64
    length: int = 32
    rounds: int = 15
    threads: int = 1
    device: str = "cpu"
    data: Path | None = None
    encoder: str | None = None
    bf16: bool = False


@dataclass
class Batch:
    """B sentences and the tokenized columns that a loss may take.

    Args:
        texts: the sentences.
        sentence: the tokenized sentences.
        masked: the same with a phrase masked, for PaSeR.
        phrase: the masked phrases.
        damaged: the sentences with 60 % of the words deleted, for TSDAE.
    """

    texts: list[str]
    sentence: Features
    masked: Features
    phrase: Features
    damaged: Features


def sentences(data: Path | None) -> list[str]:
    """Return distinct sentences in a fixed order: ``sts_unlabeled`` of a folder, or the sample sentences."""
    found = list(dict.fromkeys(read_sentences(data / "sts_unlabeled.txt.gz") if data else sample_sentences()))
    random.Random(0).shuffle(found)
    return found


class Bench:
    """The encoder that all cases share, and sentences that all have a phrase to mask.

    Args:
        settings: of the measurement.
        warm_up: number of rounds before the measured ones.
    """

    def __init__(self, settings: Settings, warm_up: int = 1) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(settings.threads)
        self.settings = settings
        options = {"pooling": "mean", "max_seq_length": settings.length, "device": settings.device}
        if settings.encoder is None:
            self.model = load_encoder(packaged_minilm(), layers=3, **options)
        else:
            self.model = load_encoder(settings.encoder, **options)
        wanted = settings.batch * (settings.rounds + warm_up)
        self.rows: list[tuple[str, str, str]] = []  # sentence, masked, phrase
        masking = PhraseMasking(mask_token=self.model.tokenizer.mask_token, top_k=1)
        source = cycle(sentences(settings.data))
        while len(self.rows) < wanted:
            found = masking([self._fitted(source) for _ in range(wanted - len(self.rows))])
            self.rows += zip(found["sentence"], found["masked"], found["phrase"], strict=True)
        self.texts = [row[0] for row in self.rows]

    def _fitted(self, source: Iterator[str]) -> str:
        """Return the next text, cut to ``length`` tokens."""
        tokenizer: Any = self.model.tokenizer
        ids = tokenizer(next(source), add_special_tokens=False, verbose=False)["input_ids"]
        return str(tokenizer.decode(ids[: self.settings.length - 2]))

    def batch(self, number: int, size: int | None = None) -> Batch:
        """Return the batch of a round, or its first ``size`` sentences."""
        start = number * self.settings.batch
        columns = list(zip(*self.rows[start : start + (size or self.settings.batch)], strict=True))
        draw = random.Random(number)
        damaged = [" ".join(w for w in text.split() if draw.random() < 0.4) or text for text in columns[0]]
        features = [batch_to_device(self.model.preprocess(list(c)), self.model.device) for c in (*columns, damaged)]
        return Batch(list(columns[0]), *features)

    @cached_property
    def guide(self) -> SentenceTransformer:
        """The complementary model of DCLR and the guide of GISTEmbed."""
        return load_encoder(self.settings.encoder or packaged_minilm(), device=self.settings.device)

    def autocast(self) -> torch.autocast:
        """Return the context in which a step runs."""
        return torch.autocast(self.settings.device, torch.bfloat16, enabled=self.settings.bf16)

    def make_ready(self, step: Step) -> None:
        """Set training mode and clear gradients before a step, untimed. The guide stays in evaluation mode."""
        step.module.train()
        step.module.zero_grad()
        if "guide" in vars(self):
            self.guide.eval()


@dataclass
class Step:
    """What a case times: ``run`` on a batch, and the module whose gradients it leaves."""

    module: nn.Module
    run: Callable[[Batch], Any]


@dataclass(frozen=True)
class Case:
    """A step to time.

    Args:
        build: makes the step on a bench.
        against: the cases to compare with, each with the limit of the ratio; None: no limit.
    """

    build: Callable[[Bench], Step]
    against: dict[str, float | None] = field(default_factory=dict)
