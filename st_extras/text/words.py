"""What a word is: a run of letters and digits, or a word that jieba finds in Chinese text; and which say little."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from st_extras.checks import check_strings
from st_extras.text.spans import Span

WordFinder = Callable[[str], Sequence[Span]]
"""Takes a text and returns the spans of its words, left to right."""

# Marks that combine with the letter before them (Latin, Hebrew, Arabic, Indic, Thai ...), which \w leaves out.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u0900-\u0903\u093a-\u094f"
    "\u0951-\u0957\u0962-\u0963\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a51\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03"
    "\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d4d\u0e31"
    "\u0e34-\u0e3a\u0e47-\u0e4e\u1ab0-\u1ace\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f"
)
_PART = rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*"
WORD = re.compile(rf"{_PART}(?:['’\-‐‑]{_PART})*")
"""A maximal run of letters (with their combining marks) and digits, with apostrophes and hyphens inside it."""

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+(?:['\-][A-Za-z0-9]+)*")  # equals WORD on ASCII text, and is faster
_SPLIT, _ASCII_SPLIT = (re.compile(f"({pattern.pattern})") for pattern in (WORD, _ASCII_WORD))

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


def word_spans(text: str) -> list[Span]:
    """Return the spans of the words of ``text``, left to right."""
    return [match.span() for match in (_ASCII_WORD if text.isascii() else WORD).finditer(text)]


def find_all_words(text: str) -> list[str]:
    """Return the words of ``text`` as they are written, left to right."""
    return (_ASCII_WORD if text.isascii() else WORD).findall(text)


def jieba_spans(text: str) -> list[Span]:
    """Return the spans of the words that jieba finds in ``text``, without punctuation; for Chinese."""
    if not any(map(str.isalnum, text)):
        return []  # jieba takes seconds for a page of dots
    import jieba

    jieba.setLogLevel("WARNING")
    keep_cache_private(jieba.dt)
    return [(start, end) for word, start, end in jieba.tokenize(text) if any(map(str.isalnum, word))]


def keep_cache_private(tokenizer: Any) -> None:
    """Let a jieba tokenizer keep its dictionary's cache in the user's cache folder.

    jieba keeps it in the folder for temporary files, where anybody may have put a file of that name. A tokenizer whose
    folder or file somebody has set, or that has read its dictionary already, stays as it is.
    """
    if not (tokenizer.initialized or tokenizer.tmp_dir or tokenizer.cache_file):
        import jieba

        tokenizer.cache_file = str(Path(_cache_folder()) / f"jieba-{jieba.__version__}.cache")


@lru_cache(maxsize=1)
def _cache_folder() -> str:
    """Return a folder that only this user can write to: in the user's cache, or a temporary one of this process."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "st_extras"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not hasattr(os, "getuid") or (folder.lstat().st_uid == os.getuid() and not folder.is_symlink()):
            folder.chmod(0o700)
            return str(folder)
    except OSError:
        pass
    private = TemporaryDirectory(prefix="st_extras-")
    atexit.register(private.cleanup)
    return private.name


@lru_cache(maxsize=1)  # a phrase extractor and PhraseMasking split the same sentence one after the other
def split_at_words(text: str, words: WordFinder = word_spans) -> tuple[str, ...]:
    """Return ``(gap, word, gap, ..., word, gap)``, which joined is ``text`` again."""
    if words is word_spans:
        return tuple((_ASCII_SPLIT if text.isascii() else _SPLIT).split(text))  # the same pieces, in one call
    edges = [0, *(edge for span in words(text) for edge in span), len(text)]
    return tuple(text[start:end] for start, end in pairwise(edges))


# --- stop words: too common to be keywords or parts of a phrase ---


@lru_cache(maxsize=1)
def english_stop_words() -> frozenset[str]:
    """Return scikit-learn's English stop words, lower-cased, without contractions."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


def check_stop_words(value: Any) -> frozenset[str]:
    """Return the stop words that somebody gave, as they are written.

    Raises:
        ValueError: if they are not a collection of strings.
    """
    return frozenset(check_strings("stop_words", value))


def phrase_stop_words(language: str) -> frozenset[str]:
    """Return the stop words that end a phrase; unlike a keyword, a phrase must not contain a contraction either.

    Args:
        language: "english" and "chinese" need no download; for any other, NLTK's stop word list is read.

    Raises:
        ValueError: if NLTK has no stop word list for the language.
    """
    if language == "chinese":
        return frozenset(_CHINESE.split())
    if language == "english":
        curly = _CONTRACTIONS.replace("'", "’")
        return english_stop_words().union(_CONTRACTIONS.split(), curly.split())
    from nltk.corpus import stopwords

    try:
        return frozenset(stopwords.words(language))
    except (LookupError, OSError) as error:
        raise ValueError(
            f'language must be "english", "chinese" or a language with NLTK stop words, got {language!r}: '
            "run python -m nltk.downloader stopwords, or give stop_words=[...]."
        ) from error
