"""Phrase extractors for PaSeR: what an extractor is, and RAKE, the default."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from st_extras.checks import check_callable, check_count
from st_extras.text.spans import Span
from st_extras.text.stop_words import check_stop_words, phrase_stop_words
from st_extras.text.words import WordFinder, jieba_spans, split_at_words, word_spans

_BREAK = "."  # replaces any punctuation between two words: RAKE ends a phrase there
_NO_LIMIT = 100_000  # words; rake-nltk needs a number
_MANY_PHRASES = 1000  # below it, searching the text for each phrase is as fast


def _first_places(text: str, phrases: Sequence[str]) -> dict[str, int]:
    """Return where each phrase first stands in ``text`` between two spaces, as ``text.find`` does.

    Only the places of the rarest word of a phrase are tried, so that a text as long as a book takes seconds.
    """
    if len(phrases) < _MANY_PHRASES:
        return {phrase: text.find(f" {phrase} ") for phrase in phrases}
    starts: dict[str, list[int]] = {}
    position = 0
    for word in text.split(" "):
        starts.setdefault(word, []).append(position)  # of the word's first character
        position += len(word) + 1
    places = {}
    for phrase in phrases:
        words = phrase.split(" ")
        rarest = min(words, key=lambda word: len(starts.get(word, ())))
        offset = sum(len(word) + 1 for word in words[: words.index(rarest)]) + 1  # of the space before the phrase
        tried = (start - offset for start in starts.get(rarest, ()))
        places[phrase] = next((at for at in tried if at >= 0 and text.startswith(f" {phrase} ", at)), -1)
    return places


class PhraseExtractor(Protocol):
    """Any callable that takes a sentence and returns its phrases, best first: each a string or a character span.

    Example:
        >>> from st_extras.text import PhraseMasking
        >>> def last_word(sentence: str) -> list[str]:
        ...     return [sentence.split()[-1]]
        >>> PhraseMasking(last_word)(["birds sing near a river"])["masked"]
        ['birds sing near a [MASK]']
    """

    def __call__(self, sentence: str, /) -> Sequence[str | Span]:
        """Return the phrases of ``sentence``, the most important one first."""


class RakePhrases:
    """Find the phrases of a sentence by rapid automatic keyword extraction (RAKE), without a tagger or a download.

    Phrases are the runs of words between stop words and punctuation. The score of a word is its degree (the summed
    length of the phrases that contain it) over its frequency; the score of a phrase is the sum over its words. Equal
    scores keep the order of the sentence, so the result is the same in every run.

    Paper: Rose et al., 2010, https://doi.org/10.1002/9780470689646.ch1. The scores are those of rake-nltk,
    https://github.com/csurfer/rake-nltk.

    Args:
        language: language of the stop words and of the default ``words``. "english" and "chinese" need no download;
            for any other, NLTK's stop words are read.
        stop_words: words that end a phrase. None: the stop words of the language.
        words: function that returns the spans of a sentence's words. None: jieba's words for "chinese", otherwise
            runs of letters and digits.
        min_words: shortest phrase, in words.
        max_words: longest phrase, in words. None: no limit.

    Raises:
        ValueError: if ``stop_words`` or ``words`` has the wrong type, a length is out of range, or the language has no
            stop words.

    Example:
        >>> from st_extras.text import RakePhrases
        >>> RakePhrases()("The red apples, and a very old apple tree")
        ['old apple tree', 'red apples']
    """

    def __init__(
        self,
        *,
        language: str = "english",
        stop_words: Iterable[str] | None = None,
        words: WordFinder | None = None,
        min_words: int = 1,
        max_words: int | None = None,
    ) -> None:
        chosen = phrase_stop_words(language) if stop_words is None else check_stop_words(stop_words)
        self.stop_words = frozenset(word.lower() for word in chosen)
        check_callable("words", words, or_none=True)
        self.words = words or (jieba_spans if language == "chinese" else word_spans)
        self.min_words = check_count("min_words", min_words, 1)
        self.max_words = None if max_words is None else check_count("max_words", max_words, self.min_words)
        self._rake: Any = None  # made at the first call, and again in another process

    def __call__(self, sentence: str) -> list[str]:
        """Return the phrases of ``sentence`` as they are written there, best first, each once."""
        return [phrase for _, phrase in self.scores(sentence)]

    def scores(self, sentence: str) -> list[tuple[float, str]]:
        """Return ``(score, phrase)`` for every phrase of ``sentence``, best first."""
        words = self._words_and_breaks(sentence)
        self._rake = self._rake or self._make_rake()
        self._rake.extract_keywords_from_sentences([words])
        joined = f" {' '.join(words)} "
        lowered = joined.lower()
        scored = set(self._rake.get_ranked_phrases_with_scores())
        places = _first_places(lowered, [phrase for _, phrase in scored])
        # rounded, so that scores equal but for floating point error are ordered by position
        ranked = sorted((-round(1e9 * score), places[phrase], score, phrase) for score, phrase in scored)
        written = joined if len(joined) == len(lowered) else lowered  # lowering "İ" adds a character
        return [(score, written[at + 1 : at + 1 + len(phrase)]) for _, at, score, phrase in ranked]

    def _words_and_breaks(self, sentence: str) -> list[str]:
        """Return the words of ``sentence``, with ``_BREAK`` wherever more than space separates two."""
        pieces = split_at_words(sentence, self.words)
        words = []
        for gap, word in zip(pieces[::2], pieces[1::2], strict=False):  # the gap after the last word is not needed
            if gap != " " and gap and not gap.isspace():
                words.append(_BREAK)
            words.append(word)
        return words

    def _make_rake(self) -> Any:
        from rake_nltk import Rake

        class DegreeRake(Rake):  # type: ignore[misc]
            """Rake that counts word degrees directly, in half the time that its graph of co-occurrences takes."""

            def _build_word_co_occurance_graph(self, phrases: list[tuple[str, ...]]) -> None:
                self.degree: defaultdict[str, int] = defaultdict(int)
                for phrase in phrases:
                    for word in phrase:
                        self.degree[word] += len(phrase)

        return DegreeRake(
            stopwords={*self.stop_words, _BREAK},  # an empty set would send Rake to NLTK's data
            punctuations={_BREAK},
            min_length=self.min_words,
            max_length=self.max_words or _NO_LIMIT,
            word_tokenizer=list,  # Rake is given words, not text
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rake": None}  # it holds lambdas, which cannot be pickled
