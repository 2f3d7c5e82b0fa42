"""Texts that no one expects, through everything that takes a text; each result is checked by what it must satisfy."""

import functools
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.figures.redundancy import distinct_words, without_word
from st_extras import evaluation, losses, modules, text
from st_extras.encoders import EmbeddingTable
from st_extras.evaluation.selection import shorten, words_or_letters
from st_extras.text.frequency import FrequencyTable
from st_extras.text.keywords import keyword_spans
from st_extras.training.arguments import training_dataset
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.classify import ACCEPT, EITHER, REFUSE, Case
from tests.fuzz.domain_texts import DOMAIN_CALLS

_PARTS = [
    "a", "cat", "The", "RED apples", "red apples", "don't", "e-mail", " ", "  ", "\t", "\n", "\r", "\u00a0", "\u3000",
    ".", "...", ",", "!?", "'", '"', "[MASK]", "[CLS]", "[PAD]", "##s", "日本語", "我们喜欢苹果",
    "हिन्दी", "ไทย", "😀", "👩‍👩‍👧", "🇪🇺", "é", "e\u0301", "İstanbul", "ß", "ﬁ", "Ǆ", "\u200b", "\u200f",
    "\ufeff", "\x07", "\x1b[0m", "\x85", "\u2028", "0", "１２", "1e999", "\U000e0001", "<b>", "\\", "%s", "{}", "\x7f",
    "\ufffd", "\uffff", "한국어", "שלום", "مرحبا بالعالم",
]  # fmt: skip
FIXED = [
    "", " ", " \t\n ", "." * 2**20, "a" * 2**20, "é" * 2**17, "a " * 2**18, "日" * 2**17, "\x00", "a\x00b", "\ud800",
    "a \udfff cat", "\ud83d\ude00", "﷽" * 500, "a" + "\u0301" * 5000, "-" * 10**5, "'" * 10**5, "a-" * 10**5,
    "1" * 10**5, "\n" * 10**5, "We ate Red. Apples and red apples were good", "red apples, red. apples; red apples",
    "Red\nApples red apples",
]  # fmt: skip
"""Texts that every function is given; the long ones are a megabyte or come near it."""


def draw(generator: random.Random) -> str:
    """A random text of a few parts, now and then of random characters."""
    if generator.random() < 0.15:
        return "".join(chr(generator.randrange(1, 0x11000)) for _ in range(generator.randint(1, 30)))
    glue = generator.choice([" ", " ", ""])
    return glue.join(generator.choices(_PARTS, k=generator.randint(1, 14)))


def is_unicode(sentence: str) -> bool:
    """Whether a text can be written as UTF-8: lone surrogates cannot."""
    try:
        sentence.encode("utf8")
    except UnicodeEncodeError:
        return False
    return True


# ------------------------------------------------------------------------------------------- oracles


def _spans(sentence: str, spans: Any) -> str | None:
    edges = [edge for span in spans for edge in span]
    if edges != sorted(edges) or any(start >= end for start, end in spans) or (edges and edges[-1] > len(sentence)):
        return f"spans not in order or outside of the text: {spans[:5]}"
    spaced = [span for span in spans if len(sentence[slice(*span)].split()) != 1]
    return f"a keyword is not one word: {spaced[:3]}" if spaced else None


def _masked(sentence: str, rows: Any) -> str | None:
    """Each row shows the sentence but for its phrase, at no place the phrase itself, and masks across no full stop."""
    for given, masked, phrase in zip(rows["sentence"], rows["masked"], rows["phrase"], strict=True):
        words = phrase.split(" ")
        gap = r"\s+"
        left = re.search(rf"(?<!\w){gap.join(map(re.escape, words))}(?!\w)", masked.replace("[MASK]", "\0"), re.I)
        if given != sentence or not phrase or left:
            return f"{phrase!r} is to be seen in {masked!r:.100}"
        parts = [re.escape(part) for part in re.split(r"((?:\[MASK\])+)", masked) if not part.startswith("[MASK]")]
        if not re.fullmatch(".+".join(parts), sentence, re.S):
            return f"{masked!r:.100} changed more than the phrase {phrase!r}"
        across = re.search(r"\[MASK\][.!?]+\s*\[MASK\]", masked) and not re.search(r"\w[.!?]\w", sentence)
        if across and len(words) == 2:
            return f"{phrase!r} runs across a full stop in {masked!r:.100}"
    return None


def _same_words(sentence: str, changed: Any, *, fewer: bool) -> str | None:
    if re.search(r"[^\W_]", sentence) and not re.search(r"[^\W_]", changed):
        return f"no word is left: {changed!r:.80}"
    lost, added = Counter(sentence) - Counter(changed), Counter(changed) - Counter(sentence)
    return f"the words are others: {changed!r:.80}" if added or (lost and not fewer) else None


def _counted(sentence: str, table: FrequencyTable) -> str | None:
    ids = world.encoder().tokenizer(sentence, add_special_tokens=False, truncation=False)["input_ids"]
    right = np.bincount(ids, minlength=len(table)).tolist() == table.counts.tolist()
    return None if right and table.num_texts == 1 else "the counts are not those of the tokenizer"


def _finite(result: Any) -> str | None:
    return None if bool(torch.isfinite(torch.as_tensor(result)).all()) else f"not finite: {result!r:.80}"


# ------------------------------------------------------------------------------------------- what is called


@functools.cache
def _repal() -> Any:
    return modules.RepALPostProcessor.attach(world.encoder(), lambda_1=0.3, lambda_2=0.5, corpus=SENTENCES)


def _refined(sentence: str) -> Any:
    """RepAL's embedding of a text, less what equation 3 gives: zeros."""
    model = _repal().eval()
    embedding, redundant = model[-1].parts([sentence])
    right = embedding - 0.3 * redundant - 0.5 * model[-1].corpus_mean
    return torch.as_tensor(model.encode([sentence])) - right


def _near_zero(difference: Any) -> str | None:
    return None if bool((difference.abs() < 1e-4).all()) else f"not equation 3: off by {difference.abs().max():.3g}"


@functools.cache
def _loss(name: str) -> Any:
    model = world.encoder()
    makers: dict[str, Callable[[], Any]] = {
        "DCLRLoss": lambda: losses.DCLRLoss(model, complementary_model="self"),
        "masked DCLRLoss": lambda: losses.DCLRLoss(model, complementary_model="start", masked_share=0.2),
        "AdCSELoss": lambda: losses.AdCSELoss(model, num_adversaries=4),
        "SLTFAILoss": lambda: losses.SLTFAILoss(model, frequency_table=world.table()),
        "PaSeRLoss": lambda: losses.PaSeRLoss(model, num_decoder_layers=1),
    }
    return makers[name]() if name in makers else getattr(losses, name)(model)


def _loss_value(name: str, sentence: str) -> Any:
    """The loss of a batch with the text in it, and the size of its gradient."""
    loss, model = _loss(name), world.encoder().train()
    rows = [[sentence, "the dog ran"]]
    if name == "PaSeRLoss":
        rows += [["[MASK] sat", "the [MASK] ran"], [sentence, "dog"]]
    value = loss([model.preprocess(row) for row in rows], None)
    total = sum(value.values()) if isinstance(value, dict) else value
    model.zero_grad()
    total.backward()
    gradient = sum(p.grad.abs().sum() for p in model.parameters() if p.grad is not None)
    return torch.stack([total.detach(), gradient])


Check = Callable[[str, Any], "str | None"]
EDAS = {
    "deletion": text.EDA(synonym_ratio=0, deletion_ratio=0.9, synonyms={}),
    "swap": text.EDA(synonym_ratio=0, swap_ratio=0.5, synonyms={}),
    "synonyms": text.EDA(synonyms={"cat": ["big feline"], "red": ["scarlet"]}),
}
CALLS: dict[str, tuple[Callable[[str], Any], Check]] = {
    "JiebaKeywords": (text.JiebaKeywords(), _spans),
    "RakeKeywords": (text.RakeKeywords(), _spans),
    "TfidfKeywords": (text.TfidfKeywords.fit(SENTENCES), _spans),
    "keyword_spans": (lambda sentence: keyword_spans(sentence, str.split), _spans),
    "RakePhrases": (text.RakePhrases(), lambda s, found: None if all(map(str.strip, found)) else "an empty phrase"),
    "RakePhrases chinese": (text.RakePhrases(language="chinese"), lambda s, phrases: None),
    "PhraseMasking": (lambda sentence: text.PhraseMasking(top_k=2)([sentence]), _masked),
    "EDA deletion": (EDAS["deletion"], lambda s, changed: _same_words(s, changed, fewer=True)),
    "EDA swap": (EDAS["swap"], lambda s, changed: _same_words(s, changed, fewer=False)),
    "EDA synonyms": (EDAS["synonyms"], lambda s, changed: None if isinstance(changed, str) else "no text"),
    "FrequencyTable.count": (lambda sentence: FrequencyTable.count([sentence], world.encoder().tokenizer), _counted),
    "RepAL encode": (_refined, lambda s, difference: _near_zero(difference)),
    "partial_mask": (lambda s: _repal()[0].partial_mask(s),
                     lambda s, masked: None if s == masked or "[MASK]" in masked else "changed without a mask"),
    "training_dataset": (lambda s: training_dataset([s]),
                         lambda s, rows: None if rows["sentence"][:] == [s] else "another text"),
    "EmbeddingTable": (lambda s: EmbeddingTable.compute(*[world.encoder()] * 2, [s], show_progress_bar=False),
                       lambda s, table: _finite(table.embeddings)),
    "words_or_letters": (words_or_letters, lambda s, units: None if all(units) else "an empty word"),
    "shorten": (lambda s: shorten([s], random.Random(0))[0],
                lambda s, left: None if Counter(left) <= Counter(s) else "a letter was added"),
    "without_word": (lambda s: [without_word(s, word) for word in distinct_words(s)[:3]],
                     lambda s, left: "a word was added" if any(len(one) > len(s) for one in left) else None),
    "UnlabeledSelectionEvaluator": (
        lambda s: evaluation.UnlabeledSelectionEvaluator([s, *(f"{a} {i}" for a in SENTENCES for i in "ab")], size=20),
        lambda s, evaluator: None),
    **{f"{name}Loss": (functools.partial(_loss_value, f"{name}Loss"), lambda s, values: _finite(values))
       for name in ("SimCSE", "ConSERT", "DCLR", "masked DCLR", "AdCSE", "SLTFAI", "PaSeR")},
    **DOMAIN_CALLS,
}  # fmt: skip
_MANY_PASSES = {"RepAL encode", "EmbeddingTable", "PaSeRLoss", *DOMAIN_CALLS}
"""Calls that get a quarter of a megabyte: the tokenizer alone takes 2 s for a megabyte of dots."""
_CHECKED = {"FrequencyTable.count", "RepAL encode", "EmbeddingTable", "training_dataset",
            *(DOMAIN_CALLS.keys() - {"LabelFreeComparison", "BM25", "passages"})}  # fmt: skip
"""Calls that refuse lone surrogates, which no tokenizer takes."""


def _case(name: str, sentence: str) -> Case:
    call, check = CALLS[name]
    wordless = not re.search(r"\w", sentence)
    expected = REFUSE if name in _CHECKED and not is_unicode(sentence) else EITHER
    if expected == EITHER and not wordless and is_unicode(sentence) and "\0" not in sentence and len(sentence) < 1000:
        expected = EITHER if name in ("FrequencyTable.count", "PaSeRLoss") else ACCEPT
    words = ("text", "data", "sentence", "token", "corpus", "phrase", "surrogate")
    return Case(f"{name}({sentence[:60]!r})", lambda: call(sentence), expected, words, (), lambda r: check(sentence, r))


def cases(generator: random.Random) -> list[Case]:
    """Every call with every fixed text and with random ones."""
    made = []
    text.JiebaKeywords()("苹果")  # jieba reads its dictionary once
    for name in CALLS:
        for sentence in (*FIXED, *(draw(generator) for _ in range(40))):
            if name.endswith("Loss") and not is_unicode(sentence):
                continue  # refused by the tokenizer of another library, before the loss sees anything
            made.append(_case(name, sentence[: 2**18] if name in _MANY_PASSES else sentence))
    return made
