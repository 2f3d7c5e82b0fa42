"""Stop words: the words that are too common to be keywords or parts of a phrase."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from st_extras.checks import check_instance, check_strings

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
    check_instance("language", language, str)
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
