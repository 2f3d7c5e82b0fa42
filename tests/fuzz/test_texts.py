"""Texts that no one expects, through everything that takes a text; each result is checked by what it must satisfy."""

import functools
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from st_extras import adaptation, modules, text
from st_extras.text.corpus import blocks_of_words
from st_extras.text.frequency import FrequencyTable
from st_extras.text.keywords import keyword_spans
from st_extras.text.term_weights import BM25, search_words
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.check import ACCEPT, EITHER, REFUSE, fuzz, outcome

_PARTS = [
    "cat", "The", "RED apples", "red apples", "don't", "e-mail", "\t", "\r\n", "\u3000", "...", "!?", "'", "[MASK]",
    "##s", "日本語", "我们喜欢苹果", "👩‍👩‍👧", "e\u0301", "İstanbul", "ß", "\u200b", "\u00ad", "\ufeff", "\x85",
    "\u2028", "１２", "%s", "{}", "كِتَاب",
]  # fmt: skip
_SPECIAL = ["", " \t\n ", "a\x00b", "\ud800", "a \udfff cat", "red apples, red. apples; red apples", "Red\nApples red",
            "." * 2**18, "é" * 2**17, "a " * 2**17, "日" * 2**17, "a" + "\u0301" * 5000, "a-" * 10**5]  # fmt: skip
_JOINED = st.lists(st.sampled_from(_PARTS), min_size=1, max_size=14)
SOME_TEXT = st.one_of(_JOINED.map("".join), _JOINED.map(" ".join), st.text(max_size=40), st.sampled_from(_SPECIAL))


# --- oracles: None, or what is wrong with the result for a text ---


def _spans(sentence: str, spans: Any) -> str | None:
    edges = [edge for span in spans for edge in span]
    if edges != sorted(edges) or any(start >= end for start, end in spans) or (edges and edges[-1] > len(sentence)):
        return f"spans not in order or outside of the text: {spans[:5]}"
    spaced = [span for span in spans if len(sentence[slice(*span)].split()) != 1]
    return f"a keyword is not one word: {spaced[:3]}" if spaced else None


def _masked(sentence: str, rows: Any) -> str | None:
    """Each row has the sentence but for its phrase, at no place the phrase itself, and no mask across a full stop."""
    for given, masked, phrase in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
        words = r"\s+".join(map(re.escape, phrase.split(" ")))
        if given != sentence or not phrase or re.search(rf"(?<!\w){words}(?!\w)", masked.replace("[MASK]", "\0"), re.I):
            return f"{phrase!r} is to be seen in {masked!r:.100}"
        parts = [re.escape(part) for part in re.split(r"((?:\[MASK\])+)", masked) if not part.startswith("[MASK]")]
        if not re.fullmatch(".+".join(parts), sentence, re.S):
            return f"{masked!r:.100} changed more than the phrase {phrase!r}"
        across = re.search(r"\[MASK\][.!?]+\s*\[MASK\]", masked) and not re.search(r"\w[.!?]\w", sentence)
        if across and phrase.count(" ") == 1:
            return f"{phrase!r} runs across a full stop in {masked!r:.100}"
    return None


def _fewer_words(sentence: str, changed: str) -> str | None:
    if re.search(r"[^\W_]", sentence) and not re.search(r"[^\W_]", changed):
        return f"no word is left: {changed!r:.80}"
    return None if Counter(changed) <= Counter(sentence) else f"the words are others: {changed!r:.80}"


def _counted(sentence: str, table: FrequencyTable) -> str | None:
    ids = world.encoder().tokenizer(sentence, add_special_tokens=False, truncation=False)["input_ids"]
    right = np.bincount(ids, minlength=len(table)).tolist() == table.counts.tolist()
    return None if right and table.num_texts == 1 else "the counts are not those of the tokenizer"


def _finite(sentence: str, result: Any) -> str | None:
    return None if bool(torch.isfinite(torch.as_tensor(result)).all()) else f"not finite: {result!r:.80}"


def _near_zero(sentence: str, difference: Any) -> str | None:
    return None if bool((difference.abs() < 1e-4).all()) else f"off by {difference.abs().max():.3g}"


def _found(sentence: str, scores: np.ndarray) -> str | None:
    right = np.isfinite(scores).all() and (scores[0] > 0) == bool(search_words(sentence)) and (scores >= 0).all()
    return None if right else f"scores of BM25: {scores[:3]}"


# --- what is called ---


@functools.cache
def _repal() -> Any:
    return modules.RepALPostProcessor.attach(world.encoder(), lambda_1=0.3, lambda_2=0.5, corpus=SENTENCES)


def _refined(sentence: str) -> Any:
    """RepAL's embedding of a text, less what equation 3 gives: zeros."""
    model = _repal().eval()
    embedding, redundant = model[-1].parts([sentence])
    return torch.as_tensor(model.encode([sentence])) - (embedding - 0.3 * redundant - 0.5 * model[-1].corpus_mean)


_QUIET = adaptation.AdaptationOptions(show_progress_bar=False)


def _adapted(sentence: str) -> Any:
    texts, folder = [*world.corpus(), sentence], world.new_folder()
    return adaptation.adapt(world.encoder(), texts, folder, options=_QUIET).model.encode([sentence])


def _adapted_search(sentence: str) -> Any:
    """The text as query and as document, after an adaptation with the text among both."""
    texts, queries = [*world.corpus()[:150], sentence], [*(t[3:] for t in world.corpus()[:40]), f"what is {sentence}"]
    options: dict[str, Any] = {"keep_index": len(sentence) % 2 == 1, "options": _QUIET}
    found = adaptation.adapt_search(world.encoder(), texts, world.new_folder(), queries=queries, **options).model
    return found.encode_query([sentence]) + found.encode_document([sentence])


_ENCODING: dict[str, tuple[Callable[[str], Any], Callable[[str, Any], str | None]]] = {
    "FrequencyTable.count": (lambda s: FrequencyTable.count([s], world.encoder().tokenizer), _counted),
    "RepAL encode": (_refined, _near_zero), "adapt": (_adapted, _finite), "adapt_search": (_adapted_search, _finite),
}  # fmt: skip
"""Name, call and oracle of what must refuse lone surrogates, which no tokenizer takes."""
CALLS: dict[str, tuple[Callable[[str], Any], Callable[[str, Any], str | None]]] = {
    **_ENCODING,
    "JiebaKeywords": (text.JiebaKeywords(), _spans), "RakeKeywords": (text.RakeKeywords(), _spans),
    "TfidfKeywords": (text.TfidfKeywords.fit(SENTENCES), _spans),
    "keyword_spans": (lambda s: keyword_spans(s, str.split), _spans),
    "RakePhrases": (text.RakePhrases(), lambda s, found: None if all(map(str.strip, found)) else "an empty phrase"),
    "PhraseMasking": (lambda s: text.PhraseMasking(top_k=2)([s]), _masked),
    "EDA deletion": (text.EDA(synonym_ratio=0, deletion_ratio=0.9, synonyms={}), _fewer_words),
    "partial_mask": (lambda s: _repal()[0].partial_mask(s),
                     lambda s, masked: None if s == masked or "[MASK]" in masked else "changed without a mask"),
    "BM25": (lambda s: BM25([s, "zzz", *world.corpus()[:20]]).scores([s])[0], _found),
    "blocks of words": (lambda s: list(blocks_of_words([s], 3)),
                 lambda s, cut: None if "".join("".join(cut).split()) == "".join(s.split()) else "other words"),
}  # fmt: skip


@fuzz(15, 500, name=st.sampled_from(sorted(CALLS)), sentence=SOME_TEXT)
def test_any_text_through_every_call(name, sentence):
    call, check = CALLS[name]
    is_unicode = sentence.encode("utf8", "ignore").decode("utf8") == sentence  # lone surrogates cannot be written
    expected = EITHER
    if not is_unicode:
        expected = REFUSE if name in _ENCODING else EITHER
    elif re.search(r"\w", sentence) and "\0" not in sentence and len(sentence) < 1000:
        expected = EITHER if name == "FrequencyTable.count" else ACCEPT
    names = ("text", "data", "sentence", "token", "corpus", "phrase", "document", "surrogate")
    return outcome(lambda: call(sentence), *names, expected=expected, verify=functools.partial(check, sentence))
