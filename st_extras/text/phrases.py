"""Phrase extractors for PaSeR: RAKE, the default, and the chunks or subtrees of a tagged or parsed sentence."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol

from st_extras.checks import check_count, check_seed, check_strings, shown
from st_extras.text.corpus import check_sentence
from st_extras.text.words import Span, WordFinder, jieba_spans, phrase_stop_words, split_at_words, word_spans

_BREAK = "."  # stands for any punctuation between two words: RAKE ends a phrase there
_SPACE = "\0"  # stands for a space within a word: RAKE joins the words of a phrase with spaces
_LONGEST = 1000
"""Words of a phrase where no limit is given: rake-nltk counts every pair of its words."""


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
        max_words: longest phrase, in words. None: 1,000.

    Raises:
        ValueError: if ``stop_words`` is not a collection of strings, a length is out of range, or the language has no
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
        chosen = phrase_stop_words(language) if stop_words is None else check_strings("stop_words", stop_words)
        self.stop_words = frozenset(word.lower() for word in chosen)
        self.words = words or (jieba_spans if language == "chinese" else word_spans)
        self.min_words = check_count("min_words", min_words, 1, _LONGEST)
        self.max_words = _LONGEST if max_words is None else check_count("max_words", max_words, self.min_words)

    def __call__(self, sentence: str) -> list[str]:
        """Return the phrases of ``sentence`` as they are written there, best first, each once."""
        return [phrase for _, phrase in self.scores(sentence)]

    def scores(self, sentence: str) -> list[tuple[float, str]]:
        """Return ``(score, phrase)`` for every phrase of ``sentence``, best first."""
        from rake_nltk import Rake

        words = self._words_and_breaks(sentence)
        lowered = [word.lower().replace(" ", _SPACE) for word in words]
        rake = Rake(self.stop_words | {_BREAK}, {_BREAK}, min_length=self.min_words, max_length=self.max_words)
        rake.word_tokenizer = list
        rake.extract_keywords_from_sentences([lowered])
        first_place, ranked = _phrase_finder(lowered), []
        for score, joined in set(rake.get_ranked_phrases_with_scores()):
            phrase = tuple(joined.split(" "))
            # rounded, so that scores equal but for floating point error are ordered by position
            ranked.append((-round(1e9 * score), first_place(phrase), score, len(phrase)))
        return [(score, " ".join(words[at : at + count])) for _, at, score, count in sorted(ranked)]

    def _words_and_breaks(self, sentence: str) -> list[str]:
        """Return the words of ``sentence``, with ``_BREAK`` wherever more than space separates two."""
        pieces = split_at_words(sentence, self.words)
        words = []
        for gap, word in zip(pieces[::2], pieces[1::2], strict=False):  # the gap after the last word is not needed
            if gap != " " and gap and not gap.isspace():
                words.append(_BREAK)
            words.append(word)
        return words


def _phrase_finder(words: Sequence[str]) -> Callable[[tuple[str, ...]], int]:
    """Return a function that finds where a phrase first stands among the words of a sentence.

    Only the places of the rarest word of a phrase are tried, so that a text as long as a book takes seconds.
    """
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)

    def first_place(phrase: tuple[str, ...]) -> int:
        rarest = min(range(len(phrase)), key=lambda i: len(places[phrase[i]]))
        starts = (place - rarest for place in places[phrase[rarest]] if place >= rarest)
        return next(start for start in starts if tuple(words[start : start + len(phrase)]) == phrase)

    return first_place


GRAMMAR = r"""
  NP: {<DT|PDT|PRP\$>?<CD|JJ.*>*<NN.*>+}
  VP: {<MD>?<RB.*>*<VB.*>+<RP|RB.*>*<NP>?}
  SBAR: {<IN|WDT|WP.*|WRB><PRP|NP>?<VP>}
  PP: {<IN|TO><PRP|NP>}
  VP: {<VP><PP|SBAR>+}
"""
"""Chunks of Penn Treebank tags: noun phrases, verb phrases and the clauses that a subordinator opens."""


class ChunkPhrases:
    """Find noun phrases, verb phrases and subordinate clauses with a tagger and a grammar, or in your own parses.

    Paper: the first extractor of PaSeR (section 3.1.1), https://aclanthology.org/2022.emnlp-main.221. The paper draws
    a subtree at random; so phrases come in random order, not best first. Chunking: https://www.nltk.org/book/ch07.html.

    Args:
        kinds: labels of the phrases wanted: "NP", "VP", "SBAR" or labels of your own grammar.
        tagger: function from a list of tokens to a list of ``(token, tag)``. None: NLTK's perceptron tagger, whose
            data must be installed (``python -m nltk.downloader averaged_perceptron_tagger_eng``).
        grammar: an ``nltk.RegexpParser`` grammar over the tags.
        parse: function from a sentence to its ``nltk.Tree``, used instead of tagger and grammar.
        seed: seed of the order, which depends on seed and sentence only and so is the same in every process.

    Raises:
        ValueError: if ``kinds`` is not a collection of strings or empty, ``tagger`` and ``parse`` are both given, the
            grammar cannot be read, or the default tagger's data is not installed.

    Example:
        >>> from st_extras.text import ChunkPhrases
        >>> tags = {"The": "DT", "red": "JJ", "apples": "NNS", "fell": "VBD"}
        >>> extractor = ChunkPhrases(kinds=["NP"], tagger=lambda tokens: [(token, tags[token]) for token in tokens])
        >>> sentence = "The red apples fell"
        >>> [sentence[start:end] for start, end in extractor(sentence)]
        ['The red apples']
    """

    def __init__(
        self,
        *,
        kinds: Sequence[str] = ("NP", "VP"),
        tagger: Callable[[list[str]], list[tuple[str, str]]] | None = None,
        grammar: str = GRAMMAR,
        parse: Callable[[str], Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.kinds = check_strings("kinds", kinds, at_least=1)
        if parse is not None and tagger is not None:
            raise ValueError("tagger and parse must not both be given: a parse needs no tags.")
        self.grammar = grammar
        self.seed = check_seed("seed", seed)
        _chunker(grammar)
        if tagger is None and parse is None:
            _perceptron_tagger()  # report missing data here, not in the middle of a corpus
        self._tag = tagger or _perceptron_tags
        self._parse = parse

    def __call__(self, sentence: str) -> list[Span]:
        """Return the character spans of the phrases of ``sentence``, in an order drawn from the seed.

        Raises:
            ValueError: if it is not a string or holds a lone surrogate, or the parse is one of another sentence.
        """
        check_sentence(sentence, "sentence")
        tree = self._parse(sentence) if self._parse else self._chunk(sentence)
        tokens = [leaf if isinstance(leaf, str) else leaf[0] for leaf in tree.leaves()]
        phrase_spans = sorted(set(_labelled_spans(tree, self.kinds, iter(_align(sentence, tokens)))))
        random.Random(f"{self.seed}:{sentence}").shuffle(phrase_spans)
        return phrase_spans

    def _chunk(self, sentence: str) -> Any:
        from nltk import Tree
        from nltk.tokenize import TreebankWordTokenizer

        tokens = TreebankWordTokenizer().tokenize(sentence)
        if not tokens:
            return Tree("S", [])
        found = self._tag(tokens)
        tagged = [*found] if isinstance(found, Iterable) else []
        if len(tagged) != len(tokens) or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in tagged):
            raise ValueError(
                f"tagger must return (token, tag) for each of the {len(tokens)} tokens, got {shown(found)} for "
                f"{shown(tokens)}."
            )
        return _chunker(self.grammar).parse(Tree("S", tagged))


@lru_cache(maxsize=8)
def _chunker(grammar: str) -> Any:
    from nltk import RegexpParser

    return RegexpParser(grammar)


@lru_cache(maxsize=1)  # nltk.pos_tag would read its file at every call
def _perceptron_tagger() -> Any:
    from nltk.tag import PerceptronTagger

    try:
        return PerceptronTagger()
    except (LookupError, OSError) as error:
        raise ValueError(
            "tagger must be given if NLTK's tagger is not installed: "
            "run python -m nltk.downloader averaged_perceptron_tagger_eng, or give tagger=."
        ) from error


def _perceptron_tags(tokens: list[str]) -> list[tuple[str, str]]:
    return list(_perceptron_tagger().tag(tokens))


def _align(sentence: str, tokens: Sequence[str]) -> list[Span | None]:
    """Return the span of each token in ``sentence``; None for punctuation that a treebank writes differently."""
    spans: list[Span | None] = []
    position = 0
    for token in tokens:
        start, is_word = sentence.find(token, position), any(map(str.isalnum, token))
        # another mark of this form may stand further on: '', where this one is written "
        if start >= 0 and (is_word or not any(map(str.isalnum, sentence[position:start]))):
            position = start + len(token)
            spans.append((start, position))
        elif token.startswith("-") or not is_word:  # -LRB-, ``
            spans.append(None)
        else:
            raise ValueError(f"parse must return a tree of the sentence {sentence!r}, got the token {token!r}.")
    return spans


def _labelled_spans(tree: Any, kinds: Sequence[str], spans: Iterator[Span | None]) -> list[Span]:
    """Return the spans of the subtrees with a label in ``kinds`` (NP-SBJ counts as NP); use up ``spans``."""
    phrase_spans: list[Span] = []

    def visit(node: Any) -> list[Span]:
        covered: list[Span] = []
        for child in node:
            if hasattr(child, "label"):
                covered += visit(child)
            elif (span := next(spans)) is not None:
                covered.append(span)
        if covered and node.label().split("-")[0] in kinds:
            phrase_spans.append((covered[0][0], covered[-1][1]))
        return covered

    visit(tree)
    return phrase_spans
