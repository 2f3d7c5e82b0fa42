"""What the cases of ``benchmarks.speed`` are built on: settings, the encoder, sentences and their batches."""

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

from st_extras.demo import packaged_minilm
from st_extras.modules.loading import load_encoder
from st_extras.rows import Features
from st_extras.samples import sample_sentences
from st_extras.text.corpus import read_sentences
from st_extras.text.phrases import PhraseMasking


@dataclass(frozen=True)
class Settings:
    """Of a measurement; a fresh process makes the same bench from them."""

    batch: int = 64  # B, sentences
    length: int = 32  # tokens at most
    rounds: int = 15
    threads: int = 1
    device: str = "cpu"
    data: Path | None = None  # see sentences
    filled: bool = False  # sentences are joined until they fill the length
    negatives: int | None = None  # AdCSE's adversaries and DCLR's noise vectors; None: their defaults


@dataclass
class Batch:
    texts: list[str]
    sentence: Features  # the tokenized texts
    masked: Features  # without a phrase, for PaSeR
    phrase: Features
    damaged: Features  # with 60 % of the words deleted, for TSDAE


def sentences(data: Path | None) -> list[str]:
    """Distinct sentences in a fixed order: sts_unlabeled of a folder, else the sample sentences."""
    found = list(dict.fromkeys(read_sentences(data / "sts_unlabeled.txt.gz") if data else sample_sentences()))
    random.Random(0).shuffle(found)
    return found


class Bench:
    """The encoder that all cases share, and the sentences, every one of which has a phrase to mask."""

    def __init__(self, settings: Settings, warm_up: int = 1) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(settings.threads)
        self.settings = settings
        encoder = {"layers": 3, "pooling": "mean", "max_seq_length": settings.length}
        self.model = load_encoder(packaged_minilm(), device=settings.device, **encoder)
        wanted = settings.batch * (settings.rounds + warm_up)
        self.rows: list[tuple[str, str, str]] = []  # sentence, masked, phrase
        masking = PhraseMasking(mask_token=self.model.tokenizer.mask_token, top_k=1)
        source = cycle(sentences(settings.data))
        while len(self.rows) < wanted:
            found = masking({"sentence": [self._fitted(source) for _ in range(wanted - len(self.rows))]})
            self.rows += zip(found["sentence"], found["masked"], found["phrase"], strict=True)
        self.texts = [row[0] for row in self.rows]

    def _fitted(self, source: Iterator[str]) -> str:
        """A text of at most ``length`` tokens, or of that very length."""
        tokenizer: Any = self.model.tokenizer
        ids: list[int] = []
        while not ids or (self.settings.filled and len(ids) < self.settings.length - 2):
            ids += tokenizer(next(source), add_special_tokens=False, verbose=False)["input_ids"]
        return str(tokenizer.decode(ids[: self.settings.length - 2]))

    def batch(self, number: int, size: int | None = None) -> Batch:
        start = number * self.settings.batch
        columns = list(zip(*self.rows[start : start + (size or self.settings.batch)], strict=True))
        draw = random.Random(number)
        damaged = [" ".join(w for w in text.split() if draw.random() < 0.4) or text for text in columns[0]]
        features = [batch_to_device(self.model.preprocess(list(c)), self.model.device) for c in (*columns, damaged)]
        return Batch(list(columns[0]), *features)

    @cached_property
    def guide(self) -> SentenceTransformer:
        """The complementary model of DCLR and the guide of GISTEmbed: all six layers."""
        return load_encoder(packaged_minilm(), device=self.settings.device)

    def make_ready(self, step: Step) -> None:
        """Training mode (the guide's dropout stays off) and no gradients: what comes before a step, untimed."""
        step.module.train()
        step.module.zero_grad()
        if "guide" in vars(self):
            self.guide.eval()


@dataclass
class Step:
    module: nn.Module
    run: Callable[[Batch], Any]


@dataclass(frozen=True)
class Case:
    """``against``: the cases that it is measured against, and the most that the ratio should be, where that is set."""

    build: Callable[[Bench], Step]
    against: dict[str, float | None] = field(default_factory=dict)
