"""PaSeR's rows beyond RAKE's phrases: chunks of a tagged sentence."""

from __future__ import annotations

from collections.abc import Sequence

from st_extras.text import ChunkPhrases


def lexicon_tags(tokens: list[str]) -> list[tuple[str, str]]:
    """Tag tokens with the lexicon that TextBlob's package contains (``pip install textblob``), which needs no data."""
    from textblob.en import parser

    return [(word, tag) for word, tag, *_ in parser.find_tags(list(tokens))]


def chunks(kinds: Sequence[str]) -> ChunkPhrases:
    """Find phrases of these kinds, "NP" or "VP", by ``lexicon_tags``."""
    return ChunkPhrases(kinds=kinds, tagger=lexicon_tags)
