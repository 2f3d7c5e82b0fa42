"""Choose a checkpoint without labels.

Contrastive training from a raw encoder often peaks early and then declines. If there are no labelled pairs to show
it, ``UnlabeledSelectionEvaluator`` scores a checkpoint on the user's own sentences and perturbed forms of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.checks import check_choice, check_count
from st_extras.encoders.forward import without_dropout
from st_extras.evaluation import signals
from st_extras.evaluation.geometry import uniformity
from st_extras.evaluation.reporting import LARGEST_SEED, ReportingEvaluator
from st_extras.evaluation.selection_texts import LARGEST_POOL, PerturbedForms, choose_confusable
from st_extras.text.corpus import iterate_sentences, reservoir_sample

_MINIMUM = 10  # distinct sentences

_OF_FORMS: dict[str, tuple[Callable[[Tensor, Tensor], float], tuple[str, ...]]] = {
    "margin": (signals.agreement_margin, ("dropout", "deletion", "swap", "shortening")),
    "recovery": (signals.recovery, ("shortening", "blending")),
    "contrast": (signals.contrast, ("deletion", "shortening", "blending")),
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
"""Names of the signals, each a metric of the evaluator; the functions are in ``st_extras.evaluation.signals``."""
DEFAULT_SIGNAL = "contrast_shortening"


class UnlabeledSelectionEvaluator(ReportingEvaluator):
    """Scores a checkpoint on unlabeled sentences alone, to choose among the checkpoints of one training.

    It chooses ``size`` of the given sentences: half at random, each joined by the sentence that shares the most words
    with it, so that every sentence has another that is easily confused with it. Each is encoded unchanged, with dropout
    on, and in four perturbed forms: a few words deleted, neighbouring words swapped, 10 to 90 % of its words removed,
    as many replaced by words of another sentence. ``seed`` fixes sentences, forms and dropout masks, so that every
    checkpoint is scored on the same inputs; the global random state is left untouched. One call encodes 6 * ``size``
    short texts (3,000 by default, as many as STS-B dev), and changes neither the weights nor the mode of the model.

    All metrics (``SIGNALS``) are better when higher; ``signal`` names the one that is ``primary_metric``. Compare only
    checkpoints of one encoder on one evaluator, not different encoders or corpora.

    Args:
        sentences: unlabeled sentences of the domain (or a data set with one text column), at least 10 distinct ones;
            thousands are better. The training sentences will do. Anything but a list or tuple is read once, and no more
            than 20,000 distinct sentences of it, drawn at random, are kept in memory.
        signal: name of the primary signal.
        size: number of sentences chosen, 10 to 20,000; each is encoded in six forms.
        seed: seed of the choice of sentences, their perturbed forms and the dropout masks.
        **options: ``name`` (prefix of the metrics and part of the CSV file's name), ``batch_size`` (sentences per
            forward pass), ``show_progress_bar`` (while encoding) and ``write_csv`` (whether to append a row to
            ``unlabeled_selection[_name]_results.csv`` in the output path).

    Raises:
        ValueError: if there are too few distinct sentences, or a setting is not allowed.

    Example:
        >>> from st_extras.evaluation import UnlabeledSelectionEvaluator
        >>> sentences = [f"sentence number {i} of a small corpus" for i in range(20)]
        >>> evaluator = UnlabeledSelectionEvaluator(sentences, name="domain")
        >>> evaluator.primary_metric  # metric_for_best_model="eval_domain_contrast_shortening"
        'domain_contrast_shortening'
    """

    def __init__(
        self, sentences: Iterable[str], *, signal: str = DEFAULT_SIGNAL, size: int = 500, seed: int = 42, **options: Any
    ) -> None:
        check_choice("signal", signal, SIGNALS)
        super().__init__("unlabeled_selection", signal, **options)
        size = check_count("size", size, _MINIMUM, LARGEST_POOL)
        seed = check_count("seed", seed, 0, LARGEST_SEED)
        distinct = _distinct(sentences, seed)
        if len(distinct) < _MINIMUM:
            raise ValueError(f"sentences must hold at least {_MINIMUM} distinct, non-empty ones, got {len(distinct)}.")
        generator = random.Random(seed)
        self.sentences, self.pairs, self.overlap = choose_confusable(distinct, size, generator)
        forms = PerturbedForms(self.sentences, generator)
        self.forms, self.kept = forms.texts, forms.kept
        self.signal = signal
        self.seed = seed
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

    def get_config_dict(self) -> dict[str, Any]:
        """Settings in the model card."""
        return {"signal": self.signal, "size": len(self.sentences), "seed": self.seed}


def _distinct(sentences: Any, seed: int) -> list[str]:
    """Return the distinct sentences, without empty ones; of a stream, a sample that fits in memory.

    A list is in memory anyhow: all of it is returned. A stream of no more than ``LARGEST_POOL`` distinct sentences
    gives what a list of them gives.
    """
    texts = (text.strip() for text in iterate_sentences(sentences))
    texts = (text for text in texts if text)
    if isinstance(sentences, list | tuple):
        return list(dict.fromkeys(texts))
    return reservoir_sample(texts, LARGEST_POOL, seed, distinct=True)


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
