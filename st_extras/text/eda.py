"""Easy data augmentation (EDA): synonym replacement, random deletion and random swap of words."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from st_extras.checks import check_interval, check_seed, check_strings, shown
from st_extras.text.corpus import check_sentence
from st_extras.text.words import WordFinder, english_stop_words, split_at_words, word_spans


@cache
def wordnet_synonyms(word: str) -> Sequence[str]:
    """Return the synonyms of a word in WordNet, over all parts of speech, sorted, without the word itself.

    They are lower-cased; those of several words contain spaces. NLTK's WordNet must be installed: run ``python -m
    nltk.downloader wordnet``, or put the files of Debian's ``wordnet-base`` and ``wordnet-sense-index`` and the table
    ``lexnames`` (from the manual page of that name) into ``corpora/wordnet`` below a folder of ``nltk.data.path``; NLTK
    reads nothing outside these folders.

    Raises:
        ValueError: if WordNet is not installed.
    """
    synsets = _wordnet(os.getpid()).synsets(word)
    names = {name.replace("_", " ").lower() for synset in synsets for name in synset.lemma_names()}
    return tuple(sorted(names - {word.lower()}))


@lru_cache(maxsize=1)
def _wordnet(process: int) -> Any:
    """Return the reader of this process: forked ones share the read position of open files."""
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.data import find

    try:
        root = find("corpora/wordnet/")  # also finds it in a zip file
    except LookupError as error:
        raise ValueError(
            "synonyms must be given if WordNet is not in nltk.data.path: run python -m nltk.downloader wordnet, "
            "or give synonyms={word: [synonyms]} or a callable."
        ) from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The multilingual functions")
        return WordNetCorpusReader(root, None)


class EDA:
    """Change a sentence at random: replace words by synonyms, then delete words, then swap words; keep punctuation.

    Replacement and swap with a ratio above 0 change at least one word if they can: ``max(1, int(ratio * words))``.
    Deletion drops each word with its probability and keeps at least one. The defaults, synonyms alone at a ratio of
    0.5, are PaSeR's.

    Paper: Wei and Zou, 2019, https://aclanthology.org/D19-1670.

    Args:
        synonym_ratio: share of the words to replace, from 0 to 1. Stop words and words without a synonym stay.
        deletion_ratio: probability that a word is deleted, from 0 to 1.
        swap_ratio: number of swaps of two words, as a share of the number of words, from 0 to 1.
        synonyms: ``{word: [synonyms]}`` with lower-case keys, or a function from a word to its synonyms. None:
            WordNet's synonyms through NLTK.
        stop_words: words that are never replaced. None: scikit-learn's English list.
        words: function that returns the spans of a sentence's words.
        seed: random seed. Without a generator the result depends on seed and sentence only and so is the same in
            every process.

    Raises:
        ValueError: if a ratio is out of range, stop words or seed have the wrong type, or WordNet is needed and not
            installed.

    Example:
        >>> from st_extras.text import EDA
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
        stop_words: Iterable[str] | None = None,
        words: WordFinder = word_spans,
        seed: int = 0,
    ) -> None:
        self.synonym_ratio = check_interval("synonym_ratio", synonym_ratio, 0, 1)
        self.deletion_ratio = check_interval("deletion_ratio", deletion_ratio, 0, 1)
        self.swap_ratio = check_interval("swap_ratio", swap_ratio, 0, 1)
        if synonyms is None and self.synonym_ratio > 0:
            _wordnet(os.getpid())  # report missing data here, not in the middle of a corpus
        self.synonyms = wordnet_synonyms if synonyms is None else synonyms
        chosen = english_stop_words() if stop_words is None else check_strings("stop_words", stop_words)
        self.stop_words = frozenset(word.lower() for word in chosen)
        self.words = words
        self.seed = check_seed("seed", seed)

    def __call__(self, sentence: str, generator: random.Random | None = None) -> str:
        """Return the changed sentence; draw from ``generator``, if given, so that each call draws anew.

        Raises:
            ValueError: if the sentence is not a string or holds a lone surrogate, or the synonyms of a word are a
                string.
        """
        check_sentence(sentence, "sentence")
        generator = generator or random.Random(f"{self.seed}:{sentence}")
        pieces = split_at_words(sentence, self.words)
        gaps, words = list(pieces[::2]), list(pieces[1::2])  # one gap more than words
        if self.synonym_ratio > 0:
            wanted = _share(self.synonym_ratio, words)
            positions = [i for i, word in enumerate(words) if word.lower() not in self.stop_words]
            generator.shuffle(positions)
            for i in positions:
                if wanted and (synonyms := self._synonyms(words[i].lower())):
                    words[i] = _in_case_of(words[i], generator.choice(synonyms))
                    wanted -= 1
        if self.deletion_ratio > 0:
            dropped = [i for i in range(len(words)) if generator.random() < self.deletion_ratio]
            if words and len(dropped) == len(words):
                dropped.remove(generator.choice(dropped))
            for i in reversed(dropped):
                before, after = gaps[i], gaps[i + 1]  # of the two spaces around a word, one is deleted with it
                gaps[i : i + 2] = [before + after.lstrip() if i == 0 or before.strip() else after]
                del words[i]
        if self.swap_ratio > 0 and len(words) > 1:
            for _ in range(_share(self.swap_ratio, words)):
                i, j = generator.sample(range(len(words)), 2)
                words[i], words[j] = words[j], words[i]
        return "".join([gaps[0], *(word + gap for word, gap in zip(words, gaps[1:], strict=True))])

    def _synonyms(self, word: str) -> Sequence[str]:
        synonyms = self.synonyms.get(word, ()) if isinstance(self.synonyms, Mapping) else self.synonyms(word)
        if isinstance(synonyms, str):  # one of its letters would be drawn
            raise ValueError(f"synonyms must hold a list for each word, got the string {shown(synonyms)} for {word!r}.")
        if synonyms and not (isinstance(synonyms, Sequence) and all(isinstance(one, str) for one in synonyms)):
            raise ValueError(f"synonyms must hold a list of strings for each word, got {shown(synonyms)} for {word!r}.")
        return synonyms


def _share(ratio: float, words: Sequence[str]) -> int:
    """Return the number of words that a ratio above 0 stands for: at least one."""
    return max(1, int(ratio * len(words)))


def _in_case_of(word: str, synonym: str) -> str:
    """Return the synonym in capitals, or with a capital first letter, if the word is."""
    if len(word) > 1 and word.isupper():
        return synonym.upper()
    return synonym[:1].upper() + synonym[1:] if word[:1].isupper() else synonym
