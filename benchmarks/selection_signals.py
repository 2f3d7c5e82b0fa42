"""The signals that ``benchmarks.selection`` compares, beside the one that the package's evaluator gives.

Sentences are compared with themselves under dropout and in four perturbed forms, made without labels, dictionaries or
downloads.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from benchmarks import signals
from st_extras.encoders.forward import without_dropout
from st_extras.evaluation import UnlabeledSelectionEvaluator
from st_extras.evaluation.geometry import uniformity
from st_extras.evaluation.selection import contrast, kept_positions, words_or_letters

_OVERLAPS = 2_000  # pairs with the most words in common; as many again are drawn from the rest
_DELETED = 0.15  # share of the words deleted
_SWAPPED = 0.15  # adjacent swaps per word

_OF_FORMS: dict[str, tuple[Callable[[Tensor, Tensor], float], tuple[str, ...]]] = {
    "margin": (signals.agreement_margin, ("dropout", "deletion", "swap", "shortening")),
    "recovery": (signals.recovery, ("shortening", "blending")),
    "contrast": (contrast, ("deletion", "shortening", "blending")),
    "discriminability": (signals.discriminability, ("deletion", "shortening")),
    "structure": (signals.structure_agreement, ("dropout", "deletion", "shortening")),
}
"""Each compares the sentences with perturbed forms of them."""
SIGNALS = (
    *(f"{name}_{form}" for name, (_, forms) in _OF_FORMS.items() for form in forms),
    "graded_shortening",
    "graded_blending",
    "lexical",
    "alignment_uniformity",
    "spread",
    "hub_freeness",
    "stability",
)
"""Names of the signals, each a metric of the evaluator."""


class SignalsEvaluator(UnlabeledSelectionEvaluator):
    """Scores a checkpoint by every signal, all better when higher, on the sentences of the package's evaluator.

    Args:
        sentences: as for ``UnlabeledSelectionEvaluator``; each of those chosen is encoded in six forms.
        **options: as for ``UnlabeledSelectionEvaluator``.
    """

    def __init__(self, sentences: Iterable[str], **options: Any) -> None:
        super().__init__(sentences, **options)
        generator = random.Random(self.seed)
        self.pairs, self.overlap = overlapping_pairs(self.sentences, generator)
        forms = PerturbedForms(self.sentences, generator)
        self.forms, self.kept = forms.texts, forms.kept
        self._previous: Tensor | None = None

    def measure(self, model: SentenceTransformer) -> dict[str, float]:
        """Return all signals by name."""
        embeddings = self.embed(model)
        with torch.autocast("cpu", enabled=False):  # a caller's autocast is meant for the encoder only
            metrics = self.signals(embeddings)
        self._previous = embeddings["clean"]
        return metrics

    def embed(self, model: SentenceTransformer) -> dict[str, Tensor]:
        """Return the (size, D) embeddings, on the CPU, of "clean", "dropout" and each perturbed form."""
        with without_dropout(model):
            texts = {"clean": self.sentences, **self.forms}
            embeddings = {key: self.encode(model, value).cpu() for key, value in texts.items()}
            with _dropout_on(model, self.seed):
                embeddings["dropout"] = self.encode(model, self.sentences).cpu()
        return embeddings

    def signals(self, embeddings: Mapping[str, Tensor]) -> dict[str, float]:
        """Return every signal of what ``embed`` returned.

        "stability" compares with the previous call of the evaluator, and is 0 before there is one.
        """
        clean = embeddings["clean"]
        previous = self._previous if self._previous is not None else clean[:0]
        values = {
            "lexical": signals.lexical_agreement(clean, self.pairs, self.overlap),
            "alignment_uniformity": signals.alignment_uniformity(clean, embeddings["deletion"]),
            "spread": -uniformity(clean),
            "hub_freeness": signals.hub_freeness(clean),
            "stability": signals.neighbor_stability(clean, previous) if previous.shape == clean.shape else 0.0,
        }
        for name, (signal, forms) in _OF_FORMS.items():
            values |= {f"{name}_{form}": signal(clean, embeddings[form]) for form in forms}
        for form, kept in self.kept.items():
            values[f"graded_{form}"] = signals.graded_agreement(clean, embeddings[form], kept)
        return {name: values[name] for name in SIGNALS}


@contextmanager
def _dropout_on(model: SentenceTransformer, seed: int) -> Iterator[None]:
    """Encode with dropout, with masks that ``seed`` fixes (CPU, CUDA), and restore the global random state."""

    def switch_on(*_: Any) -> None:
        model.train()  # encode has just called eval()

    on_cuda = model.device.type == "cuda"
    handle = model[0].register_forward_pre_hook(switch_on)
    try:
        with torch.random.fork_rng(devices=[model.device] if on_cuda else []):
            torch.default_generator.manual_seed(seed)
            if on_cuda:
                with torch.cuda.device(model.device):
                    torch.cuda.manual_seed(seed)
            yield
    finally:
        handle.remove()


def overlapping_pairs(sentences: Sequence[str], generator: random.Random) -> tuple[Tensor, Tensor]:
    """Return (P, 2) pairs of sentences with most words in common and as many others, and their TF-IDF cosines."""
    vectors = TfidfVectorizer(analyzer=lambda text: words_or_letters(text.lower())).fit_transform(sentences)
    scores = torch.from_numpy((vectors @ vectors.T).toarray())
    pairs = torch.triu_indices(len(scores), len(scores), offset=1).T
    overlap = scores[pairs[:, 0], pairs[:, 1]]
    order = overlap.argsort(descending=True, stable=True)
    near, rest = order[:_OVERLAPS], order[_OVERLAPS:]
    drawn = generator.sample(range(len(rest)), min(len(rest), _OVERLAPS))
    kept = torch.cat([near, rest[drawn]])
    return pairs[kept], overlap[kept]


def delete_words(units: Sequence[str], generator: random.Random, share: float = _DELETED) -> list[str]:
    """Delete a random ``share`` of the units (rounded; at least one is deleted, at least one is kept)."""
    return [units[index] for index in kept_positions(len(units), 1 - share, generator)]


def swap_adjacent(units: Sequence[str], generator: random.Random, share: float = _SWAPPED) -> list[str]:
    """Swap randomly drawn neighbours, as often as ``share`` of the number of units (rounded, at least once)."""
    changed = list(units)
    for _ in range(max(1, round(share * len(units))) if len(units) > 1 else 0):
        left = generator.randrange(len(changed) - 1)
        changed[left], changed[left + 1] = changed[left + 1], changed[left]
    return changed


class PerturbedForms:
    """Four perturbed forms of every sentence: "deletion", "swap", "shortening" and "blending".

    Shortening keeps between 10 and 90 % of a sentence's words, with levels spread evenly over the sentences; blending
    keeps as many and fills the other places with words of another sentence. ``kept`` is the share of the information
    that is left, with words weighted by log((1 + N) / (1 + document frequency)) + 1 over the N sentences.

    Args:
        sentences: N >= 2 sentences.
        generator: source of every draw.

    Attributes:
        texts: form -> N texts.
        kept: form -> (N,), for "shortening" (share of the sentence's weight) and "blending" (share of the blend's).
    """

    def __init__(self, sentences: Sequence[str], generator: random.Random) -> None:
        cut = [words_or_letters(sentence) for sentence in sentences]
        frequency = Counter(word for units in cut for word in set(units))
        weights = {word: math.log((1 + len(cut)) / (1 + count)) + 1 for word, count in frequency.items()}
        shares = [0.1 + 0.8 * (place + 0.5) / len(cut) for place in range(len(cut))]
        generator.shuffle(shares)
        order = generator.sample(range(len(cut)), len(cut))
        partner = {order[place]: order[place - 1] for place in range(len(order))}  # one cycle: never itself

        def weight(units: Sequence[str]) -> float:
            return sum(weights[word] for word in units)

        forms: dict[str, list[list[str]]] = {"deletion": [], "swap": [], "shortening": [], "blending": []}
        kept: dict[str, list[float]] = {"shortening": [], "blending": []}
        for index, units in enumerate(cut):
            forms["deletion"].append(delete_words(units, generator))
            forms["swap"].append(swap_adjacent(units, generator))
            shortened = [units[place] for place in kept_positions(len(units), shares[index], generator)]
            forms["shortening"].append(shortened)
            kept["shortening"].append(weight(shortened) / weight(units))
            own, other = set(kept_positions(len(units), shares[index], generator)), cut[partner[index]]
            blended = [unit if place in own else other[place % len(other)] for place, unit in enumerate(units)]
            forms["blending"].append(blended)
            kept["blending"].append(weight([units[place] for place in sorted(own)]) / weight(blended))
        joined = [" " if units == sentence.split() else "" for units, sentence in zip(cut, sentences, strict=True)]
        self.texts = {
            form: [glue.join(text) for glue, text in zip(joined, texts, strict=True)] for form, texts in forms.items()
        }
        self.kept: dict[str, Tensor] = {form: torch.tensor(values) for form, values in kept.items()}
