"""Easy data augmentation (EDA, Wei and Zou 2019): synonym replacement, random deletion, random swap."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from st_extras.text.extractors import Words, split_words
from st_extras.text.words import word_spans


class WordNetSynonyms:
    """A word to its synonyms in WordNet (every part of speech), sorted; the word itself is left out.

    NLTK's WordNet must be there: ``python -m nltk.downloader wordnet``, or the files of Debian's
    ``wordnet-base`` and ``wordnet-sense-index`` and the table ``lexnames`` (from the manual page of that name),
    in ``corpora/wordnet`` under a folder of ``nltk.data.path`` (NLTK reads nothing outside it).
    """

    def __init__(self) -> None:
        self._root = _wordnet_root()  # missing data is reported here, not in the middle of a corpus
        self._reader: Any = None
        self._process = 0
        self._known: dict[str, list[str]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return WordNetSynonyms, ()

    def __call__(self, word: str) -> list[str]:
        """Synonyms of ``word``, lower-cased, with spaces in those of several words."""
        if word not in self._known:
            synsets = self._wordnet().synsets(word)
            names = {name.replace("_", " ").lower() for synset in synsets for name in synset.lemma_names()}
            self._known[word] = sorted(names - {word.lower()})
        return self._known[word]

    def _wordnet(self) -> Any:
        if self._process != os.getpid():  # forked processes would move one another's place in the open files
            from nltk.corpus.reader.wordnet import WordNetCorpusReader

            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The multilingual functions")
                self._reader = WordNetCorpusReader(self._root, None)
            self._process = os.getpid()
        return self._reader


def _wordnet_root() -> Any:
    try:
        from nltk.data import find
    except ImportError as error:
        raise ImportError('WordNet needs nltk: pip install "st-extras[text]"') from error
    try:
        return find("corpora/wordnet/")  # in a zip file too
    except LookupError as error:
        raise ValueError(
            "synonyms=None reads WordNet, which is not in nltk.data.path: python -m nltk.downloader wordnet, "
            "or give synonyms={word: [synonyms]} or a callable"
        ) from error


class EDA:
    """Change a sentence at random: synonyms for words, then deletions, then swaps; punctuation stays.

    A ratio above 0 changes at least one word, ``max(1, int(ratio * words))``, where it can; deletion drops
    each word with that probability and keeps at least one. PaSeR does best with synonyms alone, at 0.5.

    Args:
        synonym_ratio: share of the words replaced; those on the stop list or without a synonym are not.
        deletion_ratio: probability of a word to be dropped.
        swap_ratio: swaps of two words, as a share of the words ("reordering").
        synonyms: ``{word: [synonyms]}`` with lower-case keys, or a callable from a word to its synonyms;
            default WordNet's through NLTK.
        stopwords: words never replaced; default scikit-learn's English list.
        words: sentence to word spans.
        seed: without a generator the result is a function of seed and sentence, the same in every process.

    Example:
        >>> EDA(synonym_ratio=1.0, synonyms={"cat": ["feline"]})("A Cat, asleep")
        'A Feline, asleep'
    """

    def __init__(
        self,
        *,
        synonym_ratio: float = 0.5,
        deletion_ratio: float = 0.0,
        swap_ratio: float = 0.0,
        synonyms: Mapping[str, Sequence[str]] | Callable[[str], Sequence[str]] | None = None,
        stopwords: Iterable[str] | None = None,
        words: Words = word_spans,
        seed: int = 0,
    ) -> None:
        ratios = {"synonym_ratio": synonym_ratio, "deletion_ratio": deletion_ratio, "swap_ratio": swap_ratio}
        for name, ratio in ratios.items():
            if not 0 <= ratio <= 1:
                raise ValueError(f"{name}={ratio!r} must lie between 0 and 1")
        if isinstance(stopwords, str):
            raise ValueError(f"stopwords={stopwords!r} must be a collection of words, not a string")
        if stopwords is None:
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            stopwords = ENGLISH_STOP_WORDS
        self.synonym_ratio, self.deletion_ratio, self.swap_ratio = synonym_ratio, deletion_ratio, swap_ratio
        self.stopwords = frozenset(word.lower() for word in stopwords)
        self.words = words
        self.seed = seed
        if synonyms is None and synonym_ratio > 0:
            synonyms = WordNetSynonyms()
        if synonyms is not None and not isinstance(synonyms, Mapping) and not callable(synonyms):
            raise ValueError(f"synonyms={synonyms!r} must be a mapping, a callable or None (WordNet)")
        self.synonyms = synonyms

    def __call__(self, sentence: str, generator: random.Random | None = None) -> str:
        """The changed sentence; ``generator`` (advanced) in place of the seed for a new draw at each call."""
        generator = generator or random.Random(f"{self.seed}:{sentence}")
        pieces = split_words(sentence, self.words)
        gaps, words = list(pieces[::2]), list(pieces[1::2])  # one gap more than words
        if self.synonym_ratio > 0:
            self._replace(words, generator)
        if self.deletion_ratio > 0:
            self._delete(words, gaps, generator)
        if self.swap_ratio > 0 and len(words) > 1:
            for _ in range(_count(self.swap_ratio, words)):
                i, j = generator.sample(range(len(words)), 2)
                words[i], words[j] = words[j], words[i]
        return "".join([gaps[0], *(word + gap for word, gap in zip(words, gaps[1:], strict=True))])

    def _replace(self, words: list[str], generator: random.Random) -> None:
        wanted = _count(self.synonym_ratio, words)
        positions = [i for i, word in enumerate(words) if word.lower() not in self.stopwords]
        generator.shuffle(positions)
        for i in positions:
            if wanted and (found := self._synonyms(words[i].lower())):
                words[i] = _in_case_of(words[i], generator.choice(found))
                wanted -= 1

    def _synonyms(self, word: str) -> Sequence[str]:
        if isinstance(self.synonyms, Mapping):
            return self.synonyms.get(word, ())
        return self.synonyms(word) if self.synonyms else ()

    def _delete(self, words: list[str], gaps: list[str], generator: random.Random) -> None:
        dropped = [i for i in range(len(words)) if generator.random() < self.deletion_ratio]
        if words and len(dropped) == len(words):
            dropped.remove(generator.choice(dropped))
        for i in reversed(dropped):
            before, after = gaps[i], gaps[i + 1]  # of the spaces on both sides of a word one goes with it
            gaps[i : i + 2] = [before + after.lstrip() if i == 0 or before.strip() else after]
            del words[i]


def _count(ratio: float, words: Sequence[str]) -> int:
    return max(1, int(ratio * len(words)))


def _in_case_of(word: str, synonym: str) -> str:
    if len(word) > 1 and word.isupper():
        return synonym.upper()
    return synonym[:1].upper() + synonym[1:] if word[:1].isupper() else synonym
