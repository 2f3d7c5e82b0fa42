"""Phrase extractors (PaSeR, section 3.1.1): any callable from a sentence to its phrases, best first.

Neither this module nor RAKE needs NLTK data; ``ChunkPhrases`` needs a tagger, and says how to get one.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol

from st_extras.text.spans import Span
from st_extras.text.words import split_at_words, word_spans

Words = Callable[[str], Sequence[Span]]
"""A sentence to the spans of its words, left to right."""

_BREAK = "."  # stands for any punctuation between two words: RAKE breaks a phrase there
_INSTALL = 'needs {0}, which is not installed: pip install "st-extras[text]"'
_CONTRACTIONS = """
ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't he'd he'll he's i'd i'll i'm i've
isn't it'd it'll it's let's mustn't needn't shan't she'd she'll she's shouldn't that'd that'll that's
there's they'd they'll they're they've wasn't we'd we'll we're we've weren't what's where's who's won't
wouldn't you'd you'll you're you've n't s t d m ll ve
"""
_CHINESE = """
的 了 在 是 我 你 他 她 它 我们 你们 他们 她们 它们 这 那 这个 那个 这些 那些 这里
那里 有 和 与 及 或 而 且 但 但是 就 都 也 还 又 很 太 更 最 不 没 没有 要 会 能
可以 把 被 给 让 对 从 到 向 往 为 为了 因为 所以 如果 虽然 着 过 地 得 吗 呢 吧
啊 呀 哦 嘛 之 其 于 以 以及 等 上 下 里 中 一 一个 一些 个 什么 怎么 怎样 如何 哪
哪个 哪里 哪些 谁 几 多少 为什么 自己 并 并且 则 再 只 请 请问 啦
"""

GRAMMAR = r"""
  NP: {<DT|PDT|PRP\$>?<CD|JJ.*>*<NN.*>+}
  VP: {<MD>?<RB.*>*<VB.*>+<RP|RB.*>*<NP>?}
  SBAR: {<IN|WDT|WP.*|WRB><PRP|NP>?<VP>}
  PP: {<IN|TO><PRP|NP>}
  VP: {<VP><PP|SBAR>+}
"""
"""Chunks of Penn Treebank tags: noun phrases, verb phrases and the clauses that a subordinator opens."""


class PhraseExtractor(Protocol):
    """Any callable from a sentence to its phrases, best first: each a string or a character span."""

    def __call__(self, sentence: str, /) -> Sequence[str | Span]:
        """The phrases of ``sentence``, the most important one first."""


@lru_cache(maxsize=1)  # RAKE, then the masking, split the same sentence
def split_words(text: str, words: Words = word_spans) -> tuple[str, ...]:
    """``(gap, word, gap, ..., word, gap)``: joined, they are ``text`` again."""
    if words is word_spans:
        return tuple(split_at_words(text))  # the same in one call
    edges = [0, *(edge for span in words(text) for edge in span), len(text)]
    return tuple(text[start:end] for start, end in pairwise(edges))


def jieba_spans(text: str) -> list[Span]:
    """Spans of the words that jieba finds, punctuation left out: what a word is in Chinese."""
    try:
        import jieba
    except ImportError as error:
        raise ImportError(f"Chinese segmentation {_INSTALL.format('jieba')}") from error
    jieba.setLogLevel("WARNING")
    return [(start, end) for word, start, end in jieba.tokenize(text) if any(map(str.isalnum, word))]


def _stopwords(language: str) -> Iterable[str]:
    if language == "chinese":
        return _CHINESE.split()
    if language == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return [*ENGLISH_STOP_WORDS, *_CONTRACTIONS.split(), *_CONTRACTIONS.replace("'", "’").split()]
    try:
        from nltk.corpus import stopwords

        return list(stopwords.words(language))
    except ImportError as error:
        raise ImportError(f"stop words of {language!r} {_INSTALL.format('nltk')}") from error
    except (LookupError, OSError) as error:
        raise ValueError(
            f"language={language!r}: its stop words are not at hand. Give stopwords=[...], "
            "or get NLTK's: python -m nltk.downloader stopwords"
        ) from error


class RakePhrases:
    """Rapid automatic keyword extraction (Rose et al. 2010), one sentence at a time, by ``rake-nltk``.

    Candidates are the runs of words between stop words and punctuation; ``score(word) = degree / frequency``,
    and a phrase scores the sum over its words. Equal scores keep the order of the sentence.

    Args:
        language: "english" and "chinese" need no download; for another, NLTK's stop words are read.
        stopwords: the words that break a phrase, in place of the language's.
        words: sentence to word spans; default jieba's for Chinese, runs of letters and digits elsewhere.
        min_words, max_words: lengths in words of a phrase that counts.

    Example:
        >>> RakePhrases()("The red apples, and a very old apple tree")
        ['old apple tree', 'red apples']
    """

    def __init__(
        self,
        *,
        language: str = "english",
        stopwords: Iterable[str] | None = None,
        words: Words | None = None,
        min_words: int = 1,
        max_words: int | None = None,
    ) -> None:
        if isinstance(stopwords, str):
            raise ValueError(f"stopwords={stopwords!r} must be a collection of words, not a string")
        if min_words < 1 or (max_words is not None and max_words < min_words):
            raise ValueError(f"1 <= min_words <= max_words is required, got {min_words=} and {max_words=}")
        chosen = _stopwords(language) if stopwords is None else stopwords
        self.stopwords = frozenset(word.lower() for word in chosen)
        self.words = words or (jieba_spans if language == "chinese" else word_spans)
        self.min_words = min_words
        self.max_words = max_words
        self._rake: Any = self._make_rake()

    def _make_rake(self) -> Any:
        try:
            from rake_nltk import Rake
        except ImportError as error:
            raise ImportError(f"RakePhrases {_INSTALL.format('rake-nltk')}") from error

        class Ranker(Rake):  # type: ignore[misc]
            """Rake without its graph of co-occurrences, half of its time, of which it reads the degrees alone."""

            def _build_word_co_occurance_graph(self, phrases: list[tuple[str, ...]]) -> None:
                self.degree: defaultdict[str, int] = defaultdict(int)
                for phrase in phrases:
                    for word in phrase:
                        self.degree[word] += len(phrase)

        return Ranker(
            stopwords={*self.stopwords, _BREAK},  # an empty set would send Rake to NLTK's data
            punctuations={_BREAK},
            min_length=self.min_words,
            max_length=self.max_words or 100_000,
            word_tokenizer=list,  # it is handed words, not text
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rake": None}  # a used Rake holds lambdas, which do not pickle

    def __call__(self, sentence: str) -> list[str]:
        """The phrases of ``sentence`` as they stand in it, best first, each once."""
        return [phrase for _, phrase in self.scores(sentence)]

    def scores(self, sentence: str) -> list[tuple[float, str]]:
        """``(score, phrase)`` for every phrase of ``sentence``, best first."""
        pieces = split_words(sentence, self.words)
        words = []
        for gap, word in zip(pieces[::2], pieces[1::2], strict=False):
            if gap != " " and gap and not gap.isspace():
                words.append(_BREAK)
            words.append(word)
        self._rake = self._rake or self._make_rake()
        self._rake.extract_keywords_from_sentences([words])
        joined = f" {' '.join(words)} "
        text = joined.lower()
        scored = set(self._rake.get_ranked_phrases_with_scores())
        ranked = sorted([(-round(1e9 * score), text.find(f" {phrase} "), score, phrase) for score, phrase in scored])
        cased = joined if len(joined) == len(text) else text  # a capital with a dot grows when lowered
        return [(score, cased[at + 1 : at + 1 + len(phrase)]) for _, at, score, phrase in ranked]


class ChunkPhrases:
    """Noun phrases, verb phrases and subordinate clauses, in random order (the paper's first extractor).

    Args:
        kinds: the labels that count, of "NP", "VP", "SBAR" or of your own grammar.
        tagger: a list of tokens to a list of ``(token, tag)``; default NLTK's perceptron tagger, whose data
            must be there (``python -m nltk.downloader averaged_perceptron_tagger_eng``).
        grammar: an ``nltk.RegexpParser`` grammar over the tags.
        parse: a sentence to its ``nltk.Tree``, in place of tagger and grammar.
        seed: of the order, which is a function of seed and sentence and so the same in every process.
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
        if isinstance(kinds, str) or not kinds:
            raise ValueError(f'kinds={kinds!r} must be a non-empty sequence of labels, as ("NP", "VP")')
        if parse is not None and tagger is not None:
            raise ValueError("give tagger or parse, not both: a parse needs no tags")
        self.kinds = tuple(kinds)
        self.grammar = grammar
        self.seed = seed
        self._chunker = self._make_chunker()
        self._tag = tagger or (_PerceptronTags() if parse is None else None)
        self._parse = parse

    def __call__(self, sentence: str) -> list[Span]:
        """Character spans of the chunks of ``sentence``, in an order drawn from the seed."""
        tree = self._parse(sentence) if self._parse else self._chunk(sentence)
        leaves = [leaf if isinstance(leaf, str) else leaf[0] for leaf in tree.leaves()]
        found = sorted(set(_labelled_spans(tree, self.kinds, iter(_align(sentence, leaves)))))
        random.Random(f"{self.seed}:{sentence}").shuffle(found)
        return found

    def _make_chunker(self) -> Any:
        try:
            from nltk import RegexpParser
        except ImportError as error:
            raise ImportError(f"ChunkPhrases {_INSTALL.format('nltk')}") from error
        try:
            return RegexpParser(self.grammar, loop=2)
        except ValueError as error:
            raise ValueError(f"grammar={self.grammar!r} is no nltk.RegexpParser grammar: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_chunker": None}  # NLTK's compiled expressions do not survive pickling

    def _chunk(self, sentence: str) -> Any:
        from nltk import Tree
        from nltk.tokenize import TreebankWordTokenizer

        tokens = TreebankWordTokenizer().tokenize(sentence)
        if not tokens or self._tag is None:
            return Tree("S", [])
        self._chunker = self._chunker or self._make_chunker()
        return self._chunker.parse(Tree("S", self._tag(tokens)))


class _PerceptronTags:
    """NLTK's English tagger, loaded once per process (``nltk.pos_tag`` reads its file at every call)."""

    def __init__(self) -> None:
        self._tagger: Any = None
        self([""])  # missing data is reported here, not in the middle of a corpus

    def __call__(self, tokens: list[str]) -> list[tuple[str, str]]:
        if self._tagger is None:
            from nltk.tag import PerceptronTagger

            try:
                self._tagger = PerceptronTagger()
            except (LookupError, OSError) as error:
                raise ValueError(
                    "ChunkPhrases needs a tagger: give tagger=, or get NLTK's: "
                    "python -m nltk.downloader averaged_perceptron_tagger_eng"
                ) from error
        return list(self._tagger.tag(tokens))

    def __getstate__(self) -> dict[str, Any]:
        return {"_tagger": None}


def _align(sentence: str, leaves: Sequence[str]) -> list[Span | None]:
    """The span of each leaf in ``sentence``; None for punctuation that the treebank writes otherwise."""
    spans: list[Span | None] = []
    cursor = 0
    for leaf in leaves:
        start = sentence.find(leaf, cursor)
        if start >= 0:
            cursor = start + len(leaf)
            spans.append((start, cursor))
        elif leaf.startswith("-") or not any(map(str.isalnum, leaf)):  # -LRB-, ``
            spans.append(None)
        else:
            raise ValueError(f"the parse holds {leaf!r}, which does not stand in the sentence {sentence!r}")
    return spans


def _labelled_spans(tree: Any, kinds: Sequence[str], spans: Iterator[Span | None]) -> list[Span]:
    """Character spans of the sub-trees whose label (NP of NP-SBJ) is among ``kinds``; uses up ``spans``."""
    found: list[Span] = []

    def walk(node: Any) -> list[Span]:
        covered: list[Span] = []
        for child in node:
            if hasattr(child, "label"):
                covered += walk(child)
            elif (span := next(spans)) is not None:
                covered.append(span)
        if covered and node.label().split("-")[0] in kinds:
            found.append((covered[0][0], covered[-1][1]))
        return covered

    walk(tree)
    return found
