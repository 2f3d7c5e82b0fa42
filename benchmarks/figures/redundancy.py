"""Which words a model's similarities depend on: importance of single words, and overlap with trivial words.

Source: the analyses in appendix C of RepAL (Shen et al., 2023), equations 4 and 5 and table 5.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sentence_transformers import SentenceTransformer

from st_extras.modules.pipeline import check_finite_embeddings
from st_extras.text.keywords import build_extractor, keyword_spans
from st_extras.text.words import find_words, replace_spans, word_spans

BATCH = 64
TRIVIAL_WORDS = ("the", "a", "to", "in", "some", "with", "and")
"""The words of the paper's table 5."""


def distinct_words(text: str) -> list[str]:
    """Return the words of ``text`` in lower case, in order of first occurrence."""
    return list(dict.fromkeys(text[start:end].lower() for start, end in word_spans(text)))


def without_word(text: str, word: str) -> str:
    """Return x/w: ``text`` with every occurrence of ``word`` deleted."""
    return replace_spans(text, find_words(text, [word]), "")


def word_importance(
    model: SentenceTransformer,
    pairs: Sequence[tuple[str, str]],
    words: Sequence[Sequence[str]],
) -> list[list[float]]:
    """Importance of words for the similarity of a pair (equation 4): sim(x, y) - sim(x/w, y), sim the cosine.

    Args:
        model: plain, or with RepAL attached (then all embeddings are refined).
        pairs: N pairs (x, y).
        words: for each pair, the words w of x to delete (all their occurrences). Each distinct text is encoded once.

    Returns:
        For each pair, the importance of each of its words, in units of the cosine (-2 to 2).

    Raises:
        ValueError: if ``words`` does not match ``pairs``, or an embedding is not finite.
    """
    needed: dict[str, int] = {}

    def index(text: str) -> int:
        return needed.setdefault(text, len(needed))

    comparisons = [
        [(index(x), index(y)), *((index(without_word(x, word)), index(y)) for word in own)]
        for (x, y), own in zip(pairs, words, strict=True)
    ]
    embeddings = model.encode(list(needed), batch_size=BATCH, convert_to_tensor=True, show_progress_bar=False)
    check_finite_embeddings(embeddings, list(needed))
    unit = torch.nn.functional.normalize(embeddings.double(), dim=1)  # (texts, D)
    importance = []
    for rows in comparisons:
        first, second = torch.tensor(rows, device=unit.device).unbind(1)
        cosines = (unit[first] * unit[second]).sum(dim=1)
        importance.append((cosines[0] - cosines[1:]).tolist())
    return importance


def trivial_word_importance(model: SentenceTransformer, pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Mean importance of each of TRIVIAL_WORDS over the pairs whose first sentence contains it, times 100 (table 5).

    The paper's table has a column for the plain model, one for the model with RepAL, and their difference.

    Args:
        model: plain, or with RepAL attached.
        pairs: N pairs (x, y).
    """
    present = [[word for word in distinct_words(x) if word in TRIVIAL_WORDS] for x, _ in pairs]
    values: dict[str, list[float]] = {}
    for own, importance in zip(present, word_importance(model, pairs, present), strict=True):
        for word, value in zip(own, importance, strict=True):
            values.setdefault(word, []).append(value)
    return {word: 100 * sum(values[word]) / len(values[word]) for word in TRIVIAL_WORDS if word in values}


def redundancy_overlap_ratio(model: SentenceTransformer, pairs: Sequence[tuple[str, str]], *, top: int = 5) -> float:
    """Share of trivial words among the most important ones (equation 5): mean of |S(x) and T(x)| / |T(x)|, 0 to 1.

    S(x) holds the words of x that no keyword of jieba covers, T(x) the ``top`` words of highest importance (ties by
    position; all words of a shorter sentence). Pairs whose first sentence has no word are left out.

    Args:
        model: plain, or with RepAL attached.
        pairs: pairs (x, y), one of them with a word in x; the paper draws 300 from STS-B.
        top: size of T.
    """
    extractor = build_extractor("jieba")
    pairs = [pair for pair in pairs if distinct_words(pair[0])]
    words = [distinct_words(x) for x, _ in pairs]
    total = 0.0
    for (x, _), own, importance in zip(pairs, words, word_importance(model, pairs, words), strict=True):
        masked = keyword_spans(x, extractor)
        trivial = {
            x[start:end].lower()
            for start, end in word_spans(x)
            if not any(start < stop and begin < end for begin, stop in masked)
        }
        order = sorted(range(len(own)), key=lambda i: -importance[i])[:top]
        total += sum(own[i] in trivial for i in order) / len(order)
    return total / len(pairs)
