"""PaSeR's rows beyond RAKE's phrases: chunks of a tagged sentence, and labelled pairs for its supervised form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from st_extras.evaluation import load_sts
from st_extras.text import ChunkPhrases, PhraseMasking


def lexicon_tags(tokens: list[str]) -> list[tuple[str, str]]:
    """Tag tokens with the lexicon that TextBlob's package contains (``pip install textblob``), which needs no data."""
    from textblob.en import parser

    return [(word, tag) for word, tag, *_ in parser.find_tags(list(tokens))]


def chunks(kinds: Sequence[str]) -> ChunkPhrases:
    """Find phrases of these kinds, "NP" or "VP", by ``lexicon_tags``."""
    return ChunkPhrases(kinds=kinds, tagger=lexicon_tags)


def with_positives(masking: PhraseMasking, name: str, at_least: float, data: Path) -> Dataset:
    """Return rows of eq. 5, (sentence, positive, masked, phrase), from the pairs of an STS set.

    The paper trains it on entailed pairs of NLI corpora.

    Args:
        masking: masks the phrases of the first sentence.
        name: a set of ``load_sts``.
        at_least: least gold score of a pair whose second sentence is the positive of the first, of 0 to 5.
        data: folder with the STS sets.
    """
    pairs = load_sts(name, data)
    kept: dict[str, str] = {}
    for first, second, score in zip(pairs.sentences1, pairs.sentences2, pairs.scores, strict=True):
        if score >= at_least and first != second:
            kept.setdefault(first, second)
    rows: Any = masking.dataset(list(kept))
    columns = {column: list(rows[column]) for column in ("sentence", "masked", "phrase")}
    positive = [kept[sentence] for sentence in columns["sentence"]]
    return Dataset.from_dict({"sentence": columns.pop("sentence"), "positive": positive, **columns})
