"""What ``benchmarks.scale`` works on: a generated corpus, and encoders that are quick or that are trained."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from st_extras.encoders import load_encoder
from st_extras.samples.encoder import packaged_minilm

_LENGTHS = range(5, 26)  # words of a sentence
_DIMENSIONS = 384


def write_corpus(path: Path, count: int, seed: int = 0) -> None:
    """Write ``count`` sentences of 5 to 25 words each, one a line; words are as frequent as Zipf's law has them."""
    generator = random.Random(seed)
    vocabulary = sorted(quick_tokenizer().get_vocab().items(), key=lambda item: item[1])
    words = [word for word, _ in vocabulary if word.isascii() and word.isalpha() and len(word) > 1]
    weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
    with path.open("w", encoding="ascii") as file:
        for _ in range(count):
            drawn = generator.choices(words, cum_weights=weights, k=generator.choice(_LENGTHS))
            file.write(" ".join(drawn) + "\n")


def quick_tokenizer() -> Tokenizer:
    """Return the tokenizer of the packaged MiniLM, as the tokenizers library has it."""
    return Tokenizer.from_file(f"{packaged_minilm()}/tokenizer.json")


def quick_encoder() -> SentenceTransformer:
    """Return an encoder that does next to nothing for a sentence: the mean of random vectors of its tokens."""
    generator = torch.Generator().manual_seed(0)
    tokenizer = quick_tokenizer()
    tokenizer.no_padding()
    vectors = torch.randn((tokenizer.get_vocab_size(), _DIMENSIONS), generator=generator)
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors.numpy())], device="cpu")


def trained_encoder() -> SentenceTransformer:
    """Return the encoder of the studies: three layers of the packaged MiniLM, 384 dimensions."""
    return load_encoder(packaged_minilm(), layers=3, pooling="mean", max_seq_length=32, device="cpu")
