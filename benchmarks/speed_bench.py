"""What all timed cases share: encoder, sentences and batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import nn

from st_extras.encoders import load_encoder
from st_extras.encoders.rows import Features
from st_extras.samples import sample_sentences
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import PhraseMasking

LENGTH = 32
"""Longest sentence in tokens."""


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


class Bench:
    """The encoder that all cases share, and sample sentences that all have a phrase to mask.

    Args:
        size: sentences of a batch.
        batches: how many.
        device: "cpu" or "cuda".
    """

    def __init__(self, size: int, batches: int, device: str) -> None:
        torch.manual_seed(0)
        self.size, self.device = size, device
        self.model = load_encoder(packaged_minilm(), device=device, layers=3, pooling="mean", max_seq_length=LENGTH)
        self.rows: list[tuple[str, str, str]] = []  # sentence, masked, phrase
        masking = PhraseMasking(mask_token=self.model.tokenizer.mask_token, top_k=1)
        distinct = list(dict.fromkeys(sample_sentences()))
        random.Random(0).shuffle(distinct)
        source = cycle(distinct)
        while missing := size * batches - len(self.rows):
            found = masking({"sentence": [self._fitted(source) for _ in range(missing)]})
            self.rows += zip(found["sentence"], found["masked"], found["phrase"], strict=True)
        self.texts = [row[0] for row in self.rows]

    def _fitted(self, source: Iterator[str]) -> str:
        """Return the next text, cut to LENGTH tokens."""
        tokenizer: Any = self.model.tokenizer
        ids = tokenizer(next(source), add_special_tokens=False, verbose=False)["input_ids"]
        return str(tokenizer.decode(ids[: LENGTH - 2]))

    def batch(self, number: int, size: int | None = None) -> Batch:
        """Return the batch of a round, or its first ``size`` sentences."""
        start = number * self.size
        columns = list(zip(*self.rows[start : start + (size or self.size)], strict=True))
        draw = random.Random(number)
        damaged = [" ".join(w for w in text.split() if draw.random() < 0.4) or text for text in columns[0]]
        features = [batch_to_device(self.model.preprocess(list(c)), self.model.device) for c in (*columns, damaged)]
        return Batch(list(columns[0]), *features)

    @cached_property
    def guide(self) -> SentenceTransformer:
        """The complementary model of DCLR and the guide of GISTEmbed: all six layers of MiniLM."""
        return load_encoder(packaged_minilm(), device=self.device)

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
