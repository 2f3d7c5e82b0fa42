"""What the RepAL tests share: texts of every kind, their keywords, and equation 3 written again."""

import re

import numpy as np

from st_extras.modules import RepALPostProcessor

LAMBDA_1, LAMBDA_2 = 0.6, 1.3
KEYWORDS = ["cat", "mat", "dog", "man", "reading", "carrots", "sat", "ran", "北京"]
TEXTS = [
    "a cat sat on the mat",
    "the woman and the man",  # a keyword inside another word
    "reading readings and reading",  # several pieces, repeated
    "the old man read a red book " * 5,  # longer than 16 tokens
    "on the in a",  # no keyword
    "cat mat dog",  # nothing else
    "",
    "   ",
    "我爱北京 a cat",
    "a cat 🐈 sat 👩‍🍳!",
    "a cat\u0301 ran, ca\u0301t",
    "Cat! (dog)... man's carrots-man",
]


def words(_: str) -> list[str]:
    return KEYWORDS


def reference_mask(text: str) -> str:
    """A keyword with no letter or digit beside it becomes the mask; Chinese has no spaces."""
    spaced = "|".join(sorted(filter(str.isascii, KEYWORDS), key=len, reverse=True))
    return re.sub(rf"(?i)(?<![^\W_])(?:{spaced})\u0301*(?![^\W_])|北京", "[MASK]", text)


def watch(model):
    """The shapes (rows, tokens) of every pass of the encoder, as they come. Sentence Transformers calls
    ``forward`` of the whole encoder, which fires no hook: the embedding layer's does.
    """
    seen = []
    embedding = model.transformers_model.embeddings
    embedding.register_forward_hook(lambda _module, _args, out: seen.append(tuple(out.shape[:2])))
    return seen


def attach(model, **options):
    options = {"lambda_1": LAMBDA_1, "lambda_2": LAMBDA_2, "keywords": words, "corpus": TEXTS, **options}
    return RepALPostProcessor.attach(model, **options)


def reference(model, texts, lambda_1=LAMBDA_1, lambda_2=LAMBDA_2, corpus=TEXTS, mask=reference_mask, **options):
    """Equation 3, one sentence at a time, in float64."""
    mean = np.mean([model.encode(text, **options).astype(np.float64) for text in corpus], axis=0)
    rows = []
    for text in texts:
        v = model.encode(text, **options).astype(np.float64)
        v_redundant = model.encode(mask(text), **options).astype(np.float64)
        rows.append([v[d] - lambda_1 * v_redundant[d] - lambda_2 * mean[d] for d in range(len(v))])
    return np.array(rows)


def pairs_and_scores():
    texts = [*TEXTS, "a dog ran", "the red book", "he read", "soup with a cat"]
    pairs = [(a, b) for i, a in enumerate(texts) for b in texts[i + 1 :]][:60]
    generator = np.random.default_rng(5)
    return pairs, generator.integers(0, 6, len(pairs)).tolist()


def corpus_of_words(size, seed=3):
    """Sentences of random words, many of them different."""
    generator = np.random.default_rng(seed)
    words = ["a", "cat", "dog", "man", "woman", "red", "book", "park", "rain", "train", "soup", "river", "old", "two"]
    return [" ".join(generator.choice(words, size=generator.integers(2, 8))) for _ in range(size)]
