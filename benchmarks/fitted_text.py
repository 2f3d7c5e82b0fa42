"""Which sentences of a text are trained or fitted on, and which pairs of a set are scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.pairs import WORD
from st_extras.evaluation import STSDataset


def spaced(sentences: Sequence[str], count: int) -> list[str]:
    """Return ``count`` of the sentences, evenly spaced."""
    return list(sentences[:: max(len(sentences) // count, 1)][:count])


def thinned(pairs: STSDataset, counts: Mapping[str, int]) -> STSDataset:
    """Return some of the pairs of a set, evenly spaced; all if there are no more.

    Args:
        pairs: the set.
        counts: how many, by the names of sets; "others" stands for those without a number. Empty: all.
    """
    if not counts:
        return pairs
    kept = spaced(range(len(pairs)), counts[pairs.name if pairs.name in counts else "others"])  # type: ignore[arg-type]
    columns = (pairs.sentences1, pairs.sentences2, pairs.scores, pairs.subsets)
    return STSDataset(pairs.name, *([column[i] for i in kept] for column in columns))


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
