"""Phrases of PaSeR's first extractor: chunks of a tagged sentence, or subtrees of a parse."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from st_extras.checks import check_callable, check_instance, check_seed, check_strings
from st_extras.text.corpus import check_sentence
from st_extras.text.spans import Span

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
        ValueError: if a setting has the wrong type, ``kinds`` is empty, ``tagger`` and ``parse`` are both given, the
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
        check_callable("tagger", tagger, or_none=True)
        check_callable("parse", parse, or_none=True)
        if parse is not None and tagger is not None:
            raise ValueError("tagger and parse must not both be given: a parse needs no tags.")
        self.grammar: str = check_instance("grammar", grammar, str)
        self.seed = check_seed("seed", seed)
        self._chunker = self._make_chunker()
        self._tag = tagger or (_PerceptronTags() if parse is None else None)
        self._parse = parse

    def __call__(self, sentence: str) -> list[Span]:
        """Return the character spans of the phrases of ``sentence``, in an order drawn from the seed.

        Raises:
            ValueError: if it is not a string or holds a lone surrogate, or the parse is one of another sentence.
        """
        check_sentence(sentence, "sentence")
        tree = self._parse(sentence) if self._parse else self._chunk(sentence)
        tokens = [leaf if isinstance(leaf, str) else leaf[0] for leaf in tree.leaves()]
        found = sorted(set(_labelled_spans(tree, self.kinds, iter(_align(sentence, tokens)))))
        random.Random(f"{self.seed}:{sentence}").shuffle(found)
        return found

    def _make_chunker(self) -> Any:
        from nltk import RegexpParser

        try:
            return RegexpParser(self.grammar, loop=2)
        except ValueError as error:
            raise ValueError(f"grammar must be an nltk.RegexpParser grammar, got {self.grammar!r}: {error}.") from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_chunker": None}  # NLTK's compiled expressions cannot be pickled

    def _chunk(self, sentence: str) -> Any:
        from nltk import Tree
        from nltk.tokenize import TreebankWordTokenizer

        tokens = TreebankWordTokenizer().tokenize(sentence)
        if not tokens or self._tag is None:
            return Tree("S", [])
        self._chunker = self._chunker or self._make_chunker()
        return self._chunker.parse(Tree("S", self._tag(tokens)))


class _PerceptronTags:
    """NLTK's English tagger, loaded once per process; ``nltk.pos_tag`` would read its file at every call."""

    def __init__(self) -> None:
        self._tagger: Any = None
        self([""])  # report missing data here, not in the middle of a corpus

    def __call__(self, tokens: list[str]) -> list[tuple[str, str]]:
        if self._tagger is None:
            from nltk.tag import PerceptronTagger

            try:
                self._tagger = PerceptronTagger()
            except (LookupError, OSError) as error:
                raise ValueError(
                    "tagger must be given if NLTK's tagger is not installed: "
                    "run python -m nltk.downloader averaged_perceptron_tagger_eng, or give tagger=."
                ) from error
        return list(self._tagger.tag(tokens))

    def __getstate__(self) -> dict[str, Any]:
        return {"_tagger": None}


def _align(sentence: str, tokens: Sequence[str]) -> list[Span | None]:
    """Return the span of each token in ``sentence``; None for punctuation that a treebank writes differently."""
    spans: list[Span | None] = []
    position = 0
    for token in tokens:
        start = sentence.find(token, position)
        if start >= 0:
            position = start + len(token)
            spans.append((start, position))
        elif token.startswith("-") or not any(map(str.isalnum, token)):  # -LRB-, ``
            spans.append(None)
        else:
            raise ValueError(f"parse must return a tree of the sentence {sentence!r}, got the token {token!r}.")
    return spans


def _labelled_spans(tree: Any, kinds: Sequence[str], spans: Iterator[Span | None]) -> list[Span]:
    """Return the spans of the subtrees with a label in ``kinds`` (NP-SBJ counts as NP); use up ``spans``."""
    found: list[Span] = []

    def visit(node: Any) -> list[Span]:
        covered: list[Span] = []
        for child in node:
            if hasattr(child, "label"):
                covered += visit(child)
            elif (span := next(spans)) is not None:
                covered.append(span)
        if covered and node.label().split("-")[0] in kinds:
            found.append((covered[0][0], covered[-1][1]))
        return covered

    visit(tree)
    return found
