"""Which sentences of the training text a post-processing is fitted on."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.pairs import WORD
from st_extras.evaluation import STSDataset


def spaced(sentences: Sequence[str], count: int) -> list[str]:
    """Return ``count`` of the sentences, evenly spaced."""
    return list(sentences[:: max(len(sentences) // count, 1)][:count])


def without_sentences(text: Sequence[str], sets: Sequence[STSDataset]) -> list[str]:
    """Leave out of a text the sentences that one of the sets holds, whatever their case and punctuation.

    Raises:
        ValueError: if none is left.
    """
    known = {_key(sentence) for pairs in sets for sentence in (*pairs.sentences1, *pairs.sentences2)}
    left = [sentence for sentence in text if _key(sentence) not in known]
    if not left:
        raise ValueError(
            f"text must hold sentences that the test sets do not hold, got {len(text):,} that they hold: leave out the "
            "variants that are fitted without the test sentences."
        )
    return left


def _key(sentence: str) -> str:
    return " ".join(WORD.findall(sentence.lower()))
