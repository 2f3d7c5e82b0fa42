"""What two texts share in words and parts of words: TF-IDF vectors, BM25, and the weight of BM25 beside an encoder."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from st_extras.checks import check_choice, check_interval, check_rows, check_strings
from st_extras.files import digest
from st_extras.text.words import INVISIBLE, SPACELESS, Span, find_all_words, word_spans

_PAIRED = rf"{SPACELESS}\uac00-\ud7a3"  # and Hangul, where particles follow a word without a space
_PIECE = re.compile(rf"([{_PAIRED}]+)|[^{_PAIRED}'’\-‐‑]+")  # "x-ray" is two words to a search
# What the same word is written with and without: format characters, Hebrew points, Arabic vowel signs and tatweel.
_LEFT_OUT = re.compile(
    rf"[{INVISIBLE}\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0670\u06d6-\u06dc]"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_EVERY_SCRIPT = (  # what is kept together, separated, dropped or paired
    "The X-ray of İstanbul's Straße, co\u00adoperate snake_case ﬁve 1,000 café cafe\u0301 Ωμέγα Привет, кошки бегут "
    "我们搜索文档 東京タワー 검색엔진을 ค้นหาเอกสาร ລາວ བོད་ཡིག ភាសាខ្មែរ မြန်မာ हिन्दी भाषा الكتـــابُ שָׁלוֹם "
    "running runs houses nationality"
)
STOP_WORDS = frozenset(
    [
        *("a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not"),
        *("of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was"),
        *("will", "with"),
    ]
)
"""The English ones of Lucene's EnglishAnalyzer."""
_FEWEST_WORDS = 3  # of a sentence that stands for a query
_MOST_CHARACTERS = 2000  # of a text, whose words are compared
_K1, _B = 1.5, 0.75
BM25_SHARE = 0.2
"""Of BM25 beside an encoder: how far its scores spread, relative to the encoder's. See :func:`bm25_weight`."""


@dataclass(frozen=True, eq=False)
class WordCounts:
    """How often each of V words stands in each of N documents, from which :class:`BM25` is made.

    Documents can be added and removed without reading the others again, which takes most of the time.

    Attributes:
        counts: (N, V) sparse, int32, a row for each document.
        vocabulary: the column of each word; a document has each of them.
        language: whose words are stemmed; see :class:`BM25`.
    """

    counts: csr_matrix
    vocabulary: dict[str, int]
    language: str | None = None

    @classmethod
    def of(
        cls, documents: Sequence[str], language: str | None = None, vocabulary: Mapping[str, int] | None = None
    ) -> WordCounts:
        """Count the words of N documents.

        Args:
            documents: the texts.
            language: as for the class.
            vocabulary: of other documents, whose columns come first. None: there are none.
        """
        vocabulary = dict(vocabulary or {})
        columns, counts, ends = array("i"), array("i"), [0]
        for text in documents:
            counted = Counter(search_words(text, language, singles=True))
            columns.extend(vocabulary.setdefault(word, len(vocabulary)) for word in counted)
            counts.extend(counted.values())
            ends.append(len(columns))
        arrays = np.array(counts, dtype=np.int32), np.array(columns, dtype=np.int32), ends
        return cls(csr_matrix(arrays, shape=(len(documents), len(vocabulary))), vocabulary, language)

    def changed(self, kept: np.ndarray, documents: Sequence[str]) -> WordCounts:
        """Return the counts of the documents that stay, ``kept`` (N,), and of further ones after them.

        A word that no document has any more is forgotten.
        """
        left, vocabulary = self.counts, self.vocabulary
        if not kept.all():
            left = left[np.flatnonzero(kept)]
            stays = np.bincount(left.indices, minlength=left.shape[1]) > 0
            columns = np.cumsum(stays, dtype=np.int32) - 1
            words = (word for word, is_left in zip(vocabulary, stays.tolist(), strict=True) if is_left)
            vocabulary = {word: column for column, word in enumerate(words)}
            left = csr_matrix((left.data, columns[left.indices], left.indptr), shape=(left.shape[0], len(vocabulary)))
        more = WordCounts.of(documents, self.language, vocabulary)
        left = csr_matrix((left.data, left.indices, left.indptr), shape=(left.shape[0], more.counts.shape[1]))
        return replace(more, counts=vstack([left, more.counts], format="csr", dtype=np.int32))

    @cached_property
    def bm25(self) -> BM25:
        """BM25 of the documents, made when it is first asked for."""
        return BM25(self)


class BM25:
    """BM25 (Lucene's form, k1 = 1.5, b = 0.75): how well documents match a query by their words.

    Words are compared in small letters (NFKC and case folding, "İ" as "i"). With a ``language`` they are stemmed, and
    in English Lucene's 33 stop words are left out; without, nothing is stemmed or left out. Other languages have no
    stop words: what stands in most documents weighs next to nothing.
    What Lucene's StandardAnalyzer keeps together stays together: letters with their marks, soft hyphens and joiners.
    Beyond it, hyphens, apostrophes and underscores separate words; format characters, Arabic vowel signs, tatweel and
    Hebrew points are dropped, as Lucene's analyzers of these languages do. Chinese, Japanese, Korean, Thai, Lao,
    Tibetan, Khmer and Burmese text counts by pairs of neighbouring characters, as in Lucene's CJKAnalyzer; that of
    documents also by single ones, so that a query of one character finds them. Out of scope are accents ("cafe" does
    not find "café"), emoji, and other forms of a number ("1,000").

    Equation, with the count c(w, d) of a word in a document, the number n(w) of the N documents that have it, and the
    words |d| of a document:

        idf(w) = log(1 + (N - n(w) + 0.5) / (n(w) + 0.5))
        weight(w, d) = idf(w) * c(w, d) / (c(w, d) + k1 * (1 - b + b * |d| / mean(|d|)))
        score(q, d) = sum of weight(w, d) over the words of the query

    Args:
        documents: the N texts to search in, or their :class:`WordCounts`, which have their language.
        language: of documents and queries, such as "english": one of the Snowball stemmers of nltk. None: words are
            compared as they are.

    Attributes:
        language: as given.
        vocabulary: the column of each word.
        weights: (N, V) sparse, float32, by columns: what a word of a query adds to the score of each document.

    Raises:
        ValueError: if ``documents`` is not a collection of at least one string, or there is no stemmer for the
            language.
    """

    def __init__(self, documents: Sequence[str] | WordCounts, language: str | None = None) -> None:
        if not isinstance(documents, WordCounts):
            documents = WordCounts.of(check_strings("documents", documents, at_least=1), check_language(language))
        counts, self.vocabulary, self.language = documents.counts, documents.vocabulary, documents.language
        lengths = np.asarray(counts.sum(axis=1), dtype=np.float32).ravel()
        mean = lengths.mean() if len(lengths) else 0
        norms = length_norm(lengths, mean)
        weights = counts.tocsc().astype(np.float32)
        holding = np.diff(weights.indptr)  # (V,) documents that have a word
        idf = np.log1p((len(lengths) - holding + 0.5) / (holding + 0.5)).astype(np.float32)
        weights.data /= weights.data + norms[weights.indices]
        weights.data *= np.repeat(idf, holding)
        self.weights = weights

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Return the (Q, N) float32 scores of the N documents for each query, 0 where they share no word.

        Raises:
            ValueError: if ``queries`` is not a collection of strings.
        """
        queries = check_strings("queries", queries)
        scores = np.zeros((len(queries), self.weights.shape[0]), dtype=np.float32)
        for row, query in zip(scores, queries, strict=True):
            for column in self.columns(query):
                first, end = self.weights.indptr[column : column + 2]
                row[self.weights.indices[first:end]] += self.weights.data[first:end]
        return scores

    def columns(self, query: str) -> list[int]:
        """Return the columns of the words of a query that a document has; one that stands twice counts twice."""
        known = (self.vocabulary.get(word) for word in search_words(query, self.language))
        return [column for column in known if column is not None]


def length_norm(words: Any, mean: Any) -> Any:
    """Return ``k1 * (1 - b + b * |d| / mean(|d|))`` of documents of ``words`` words, in :class:`BM25`'s equation."""
    return _K1 * (1 - _B + _B * words / (mean or 1))


def bm25_weight(dense_scores: Any, bm25_scores: Any, share: float = BM25_SHARE) -> float:
    """Return the weight w of BM25 in the score ``dense + w * bm25`` of a hybrid search: one number for a collection.

    A few hundred queries without judgements are enough. The sum is linear in both scores, so any search engine can
    compute it. The weight belongs to the engine whose scores it was computed from: engines scale BM25 differently.
    Equation, with the standard deviation over the N documents of a query, and the mean over the Q queries:

        w = share * mean_q(std_n(dense[q, n])) / mean_q(std_n(bm25[q, n]))

    A deviation that is no more than the rounding of the scores, 1.2e-7 of the highest for float32, is 0.

    Args:
        dense_scores: (Q, N) floating-point scores of an encoder: cosines or dot products, of all documents or a random
            sample of them.
        bm25_scores: (Q, N) floating-point scores of BM25 for the same queries and documents; higher is better.
        share: how far BM25's scores spread after weighting, relative to the encoder's; above 0, at most 10.

    Raises:
        ValueError: if ``share`` is not allowed, scores are not finite floating-point numbers of one shape (Q, N), those
            of an argument are the same for all documents of every query, but for rounding, or no score of BM25 is above
            0 (SQLite's).

    Example:
        >>> import numpy as np
        >>> from st_extras.text.term_weights import bm25_weight
        >>> round(bm25_weight(np.array([[0.5, 0.7]]), np.array([[0.0, 4.0]])), 3)  # 0.2 * 0.1 / 2
        0.01
    """
    share = check_share(share)
    given = (("dense_scores", dense_scores), ("bm25_scores", bm25_scores))
    dense, bm25 = (check_rows(name, scores).detach().cpu().numpy() for name, scores in given)
    if dense.shape != bm25.shape:
        raise ValueError(f"bm25_scores must have the shape of dense_scores, {dense.shape}, got {bm25.shape}.")
    for name, scores in (("dense_scores", dense), ("bm25_scores", bm25)):
        if not _deviations(scores).any():
            raise ValueError(f"{name} must differ between documents for some query, got equal ones for each.")
    if bm25.max() <= 0:
        raise ValueError("bm25_scores must be higher for a better match, got none above 0: negate those of SQLite.")
    return bm25_weight_of_blocks([(dense, bm25)], share)


def bm25_weight_of_blocks(blocks: Iterable[tuple[np.ndarray, np.ndarray]], share: float = BM25_SHARE) -> float:
    """Return what :func:`bm25_weight` does, a block of queries at a time; 0 if one side scores all documents alike.

    Args:
        blocks: (B, N) scores of the encoder and of BM25 for B of the queries each.
        share: as for :func:`bm25_weight`.
    """
    spreads = [[_deviations(side) for side in block] for block in blocks]
    dense, bm25 = (float(np.concatenate(side).mean()) for side in zip(*spreads, strict=True))
    return share * dense / bm25 if bm25 else 0.0


def _deviations(scores: np.ndarray) -> np.ndarray:
    """Return the standard deviations (Q,) of (Q, N) scores over the documents; 0 if rounding alone would give them.

    Equal documents have other last digits where a matrix product rounds their columns differently.
    """
    found = scores.std(axis=1, dtype=np.float64)
    rounding = np.finfo(scores.dtype).eps * np.maximum(scores.max(axis=1), -scores.min(axis=1))
    return np.where(found > rounding, found, 0.0)


def check_share(share: Any) -> float:
    """Return the ``share`` of :func:`bm25_weight` if it is above 0 and at most 10.

    Raises:
        ValueError: if it is not.
    """
    return check_interval("share", share, 0, 10, low_included=False)


def check_language(language: Any) -> str | None:
    """Return ``language`` if it is None or one of the Snowball stemmers of nltk.

    Raises:
        ValueError: if there is no such stemmer.
    """
    if language is None:
        return None
    from nltk.stem.snowball import SnowballStemmer

    known = tuple(name for name in SnowballStemmer.languages if name != "porter")  # an older stemmer for English
    return str(check_choice("language", language, known))


@lru_cache(maxsize=2**18)
def _stem(word: str, language: str) -> str:
    """Return the stem of a word in small letters; "" of an English stop word."""
    return "" if language == "english" and word in STOP_WORDS else str(_stemmer(language).stem(word))


@lru_cache
def _stemmer(language: str) -> Any:
    from nltk.stem.snowball import SnowballStemmer

    return SnowballStemmer(language)


def _folded(text: str) -> str:
    """Return a text in small letters, without the signs that the same word is also written without."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return folded if folded.isascii() else _LEFT_OUT.sub("", folded.replace("i\u0307", "i"))


def search_words(text: str, language: str | None = None, *, singles: bool = False) -> list[str]:
    """Return the words of a text as :class:`BM25` compares them.

    Args:
        text: any text.
        language: whose words are stemmed, see :class:`BM25`.
        singles: of characters that count by pairs, whether to return each alone too, as of documents.
    """
    found = []
    for word in find_all_words(_folded(text)):
        for piece in _PIECE.finditer(word):
            characters = piece[1] or ""
            if len(characters) > 1:
                found += [characters[i : i + 2] for i in range(len(characters) - 1)]
                found += characters if singles else ()
            elif stem := piece[0] if language is None else _stem(piece[0], language):
                found.append(stem)
    return found


def matching_spans(text: str, words: frozenset[str], language: str | None = None) -> list[Span]:
    """Return where the words of a text stand that are among ``words`` as :class:`BM25` compares them, left to right.

    Args:
        text: any text.
        words: of :func:`search_words`, with the same ``language``.
        language: see :class:`BM25`.
    """
    return [
        (start + first, start + last)
        for start, end in word_spans(text)
        for first, last in _matches_in_word(text[start:end], words, language)
    ]


@lru_cache(maxsize=2**16)
def _matches_in_word(word: str, words: frozenset[str], language: str | None) -> tuple[Span, ...]:
    """Return where the parts of a word stand that are among ``words``: of "X-ray", "ray"."""
    spans: list[Span] = []
    for piece in _PIECE.finditer(word):
        if piece[1] is None:
            spans += [piece.span()] if not words.isdisjoint(search_words(piece[0], language)) else []
            continue
        for place in range(*piece.span()):
            size = next((n for n in (2, 1) if _folded(word[place : min(place + n, piece.end())]) in words), 0)
            if size and spans and place <= spans[-1][1]:  # pairs share a character
                spans[-1] = (spans[-1][0], place + size)
            elif size:
                spans.append((place, place + size))
    return tuple(spans)


def word_rules(language: str | None = None) -> str:
    """Return what recognizes how :func:`search_words` makes words, by those of some texts.

    An index of words that were made in another way, as by another version of the stemmer, finds too little.

    Args:
        language: of the stems.
    """
    stemmer = "" if language is None else version("nltk")
    return digest([language or "", stemmer, *search_words(_EVERY_SCRIPT, language, singles=True)])


def searchable_sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text that have three words or more: one can stand for a query."""
    sentences = (part.strip() for part in _SENTENCE_END.split(text))
    return [sentence for sentence in sentences if len(search_words(sentence)) >= _FEWEST_WORDS]


def character_tfidf(texts: Sequence[str], most: float = 1.0, fewest: int = 2) -> Any:
    """Return the (N, V) sparse TF-IDF rows, float32 of length 1, of character 3- to 5-grams within words.

    The first 2,000 characters of a text count, about as far as most encoders read. A text of which no gram counts has a
    row of zeros.

    Args:
        texts: (N,).
        most: leave out grams that a greater share of the texts has: they carry little information and cost most.
        fewest: leave out grams that fewer texts have.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    settings: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (3, 5), "sublinear_tf": True}
    vectorizer = TfidfVectorizer(min_df=fewest, max_df=most, dtype=np.float32, **settings)
    try:
        return vectorizer.fit_transform(text[:_MOST_CHARACTERS] for text in texts)
    except ValueError:  # no gram is left
        return csr_matrix((len(texts), 1), dtype=np.float32)


def near_duplicate_share(texts: Sequence[str]) -> float:
    """Return the share of texts that share nearly all their grams with another: TF-IDF cosine above 0.9.

    Grams of a single text count too: without them, two short texts with nothing but "the" in common were the same.
    """
    rows = character_tfidf(texts, fewest=1)
    similarities = (rows @ rows.T).toarray()
    np.fill_diagonal(similarities, 0)
    return float((similarities > 0.9).any(axis=1).mean()) if len(texts) else 0.0
