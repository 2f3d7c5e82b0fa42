"""Choosing a checkpoint without labels.

Contrastive training from a raw encoder peaks early and then declines. Where there are no labelled pairs to see it
by, `UnlabeledSelectionEvaluator` scores a checkpoint from the user's own sentences and changed forms of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import BaseEvaluator
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from st_extras.encoders import without_dropout
from st_extras.evaluation.geometry import uniformity
from st_extras.evaluation.perturbations import PerturbedForms, words_or_letters
from st_extras.evaluation.reporting import check_sentences, encode_sentences, report
from st_extras.evaluation.signals import (
    agreement_margin,
    alignment_uniformity,
    contrast,
    discriminability,
    graded_agreement,
    hub_freeness,
    lexical_agreement,
    neighbour_stability,
    recovery,
    structure_agreement,
)

_MINIMUM = 10  # distinct sentences
_POOL = 20_000  # sentences searched for near ones
_SAME = 0.8  # TF-IDF cosine
_OVERLAPS = 2_000  # pairs with the most words in common; as many again are drawn from the rest

SIGNALS = (
    "margin_dropout",
    "margin_deletion",
    "margin_swap",
    "margin_shortening",
    "recovery_shortening",
    "recovery_blending",
    "contrast_deletion",
    "contrast_shortening",
    "contrast_blending",
    "discriminability_deletion",
    "discriminability_shortening",
    "structure_dropout",
    "structure_deletion",
    "structure_shortening",
    "graded_shortening",
    "graded_blending",
    "lexical",
    "alignment_uniformity",
    "spread",
    "hub_freeness",
    "stability",
)
"""Names of the signals, each a metric of the evaluator; the functions stand in `st_extras.evaluation.signals`."""
DEFAULT_SIGNAL = "contrast_shortening"


class UnlabeledSelectionEvaluator(BaseEvaluator):
    """Scores a checkpoint from unlabeled sentences alone, to choose among the checkpoints of one training.

    ``size`` sentences are taken from the given ones: half drawn at random, half the nearest to those in words, so
    that each has a hard confusion. Each is encoded as it is, once more with dropout on, and in four changed forms:
    a few words deleted, neighbouring words swapped, shortened by 10 to 90 % of its words, blended with another
    sentence by as much. Sentences, forms and dropout masks are fixed by ``seed``, so that all checkpoints answer the
    same questions; no global random state moves. One call encodes 6 * ``size`` short texts (3,000 by default, as
    many as STS-B dev), and changes neither the weights nor the mode of the model.

    All metrics (`SIGNALS`) are better when higher; ``signal`` names the one that is ``primary_metric``. Values
    compare checkpoints of one encoder on one evaluator, not different encoders or corpora.

    Args:
        sentences: unlabeled sentences of the domain, at least 10 distinct ones; thousands are better. The training
            sentences serve.
        signal: name of the primary signal.
        size: number of sentences encoded.
        seed: governs the choice of sentences, their changed forms and the dropout masks.
        name: prefix of the metrics and part of the CSV file's name.
        batch_size: sentences a forward pass.
        show_progress_bar: show encode's progress bar.
        write_csv: append a row to ``unlabeled_selection[_name]_results.csv`` in the output path.

    Raises:
        ValueError: too few distinct sentences, an unknown signal, a size below 10.

    Example:
        >>> from st_extras.evaluation.selection import UnlabeledSelectionEvaluator
        >>> sentences = [f"sentence number {i} of a small corpus" for i in range(20)]
        >>> evaluator = UnlabeledSelectionEvaluator(sentences, name="domain")
        >>> evaluator.primary_metric  # metric_for_best_model="eval_domain_contrast_shortening"
        'domain_contrast_shortening'
    """

    def __init__(
        self,
        sentences: Sequence[str],
        *,
        signal: str = DEFAULT_SIGNAL,
        size: int = 500,
        seed: int = 42,
        name: str = "",
        batch_size: int = 64,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if signal not in SIGNALS:
            raise ValueError(f"signal must be one of {', '.join(SIGNALS)}, got {signal!r}.")
        if size < _MINIMUM:
            raise ValueError(f"size must be >= {_MINIMUM}, got {size!r}.")
        distinct = list(dict.fromkeys(text.strip() for text in check_sentences("sentences", sentences, at_least=1)))
        distinct = [text for text in distinct if text]
        if len(distinct) < _MINIMUM:
            raise ValueError(f"sentences must hold at least {_MINIMUM} distinct, non-empty ones, got {len(distinct)}.")
        generator = random.Random(seed)
        pool = generator.sample(distinct, min(len(distinct), _POOL))
        vectors = TfidfVectorizer(analyzer=lambda text: words_or_letters(text.lower())).fit_transform(pool)
        chosen = _seeds_and_neighbours(vectors, min(size, len(pool)))
        self.sentences = [pool[index] for index in chosen]
        self.pairs, self.overlap = _overlapping_pairs(vectors[chosen], generator)
        forms = PerturbedForms(self.sentences, generator)
        self.forms = forms.texts
        self.kept = forms.kept
        self.signal = signal
        self.seed = seed
        self.name = name
        self.batch_size = batch_size
        self.show_progress_bar = show_progress_bar
        self.write_csv = write_csv
        self.primary_metric = f"{name}_{signal}" if name else signal
        self.csv_file = f"unlabeled_selection{'_' if name else ''}{name}_results.csv"
        self._previous: Tensor | None = None

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """All signals by name; raises ValueError where an embedding is zero or not finite."""
        embeddings = self.embed(model)
        with torch.autocast("cpu", enabled=False):  # a caller's autocast is for the encoder, not for what is read off
            metrics = self.signals(embeddings)
        self._previous = embeddings["clean"]
        csv_path = Path(output_path) / self.csv_file if output_path is not None and self.write_csv else None
        return report(self, model, metrics, name=self.name, csv_path=csv_path, epoch=epoch, steps=steps)

    def embed(self, model: SentenceTransformer) -> dict[str, Tensor]:
        """(size, D) embeddings on the CPU of "clean", "dropout" and each changed form."""
        options: dict[str, Any] = {"batch_size": self.batch_size, "show_progress_bar": self.show_progress_bar}
        with without_dropout(model):
            texts = {"clean": self.sentences, **self.forms}
            embeddings = {key: encode_sentences(model, value, **options).cpu() for key, value in texts.items()}
            with _dropout_on(model, self.seed):
                embeddings["dropout"] = encode_sentences(model, self.sentences, **options).cpu()
        return embeddings

    def signals(self, embeddings: Mapping[str, Tensor]) -> dict[str, float]:
        """Every signal of what `embed` returned; "stability" is 0 where no call came before."""
        clean = embeddings["clean"]
        previous = self._previous if self._previous is not None else clean[:0]
        values = {
            "lexical": lexical_agreement(clean, self.pairs, self.overlap),
            "alignment_uniformity": alignment_uniformity(clean, embeddings["deletion"]),
            "spread": -uniformity(clean),
            "hub_freeness": hub_freeness(clean),
            "stability": neighbour_stability(clean, previous) if previous.shape == clean.shape else 0.0,
        }
        for form in ("dropout", "deletion", "swap", "shortening"):
            values[f"margin_{form}"] = agreement_margin(clean, embeddings[form])
        for form in ("shortening", "blending"):
            values[f"recovery_{form}"] = recovery(clean, embeddings[form])
        for form in ("deletion", "shortening", "blending"):
            values[f"contrast_{form}"] = contrast(clean, embeddings[form])
        for form in ("deletion", "shortening"):
            values[f"discriminability_{form}"] = discriminability(clean, embeddings[form])
        for form in ("dropout", "deletion", "shortening"):
            values[f"structure_{form}"] = structure_agreement(clean, embeddings[form])
        for form, kept in self.kept.items():
            values[f"graded_{form}"] = graded_agreement(clean, embeddings[form], kept)
        return {name: values[name] for name in SIGNALS}

    @property
    def description(self) -> str:
        """The heading in the model card."""
        return "Unlabeled Selection"

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says about the setting."""
        return {"signal": self.signal, "size": len(self.sentences), "seed": self.seed}


def _seeds_and_neighbours(vectors: Any, size: int) -> list[int]:
    """The first size / 2 rows of the pool, whose order is random, and for each the nearest unused row.

    A row with nearly all words in common is the same sentence in another dress, not one to be told from it.
    """
    total = vectors.shape[0]
    if size == total:
        return list(range(total))
    seeds = list(range(size - size // 2))
    used = set(seeds)
    chosen = list(seeds)
    scores = (vectors[seeds] @ vectors.T).toarray()  # (size / 2, pool)
    scores[scores > _SAME] = -1.0
    for row in seeds[: size // 2]:
        for neighbour in np.argsort(-scores[row], kind="stable"):
            if int(neighbour) not in used:
                used.add(int(neighbour))
                chosen.append(int(neighbour))
                break
    return chosen


def _overlapping_pairs(vectors: Any, generator: random.Random) -> tuple[Tensor, Tensor]:
    """(P, 2) pairs of rows, the ones with most words in common and as many others, and their (P,) TF-IDF cosines."""
    scores = torch.from_numpy((vectors @ vectors.T).toarray())
    pairs = torch.triu_indices(len(scores), len(scores), offset=1).T
    overlap = scores[pairs[:, 0], pairs[:, 1]]
    order = overlap.argsort(descending=True, stable=True)
    near, rest = order[:_OVERLAPS], order[_OVERLAPS:]
    drawn = generator.sample(range(len(rest)), min(len(rest), _OVERLAPS))
    kept = torch.cat([near, rest[drawn]])
    return pairs[kept], overlap[kept]


@contextmanager
def _dropout_on(model: SentenceTransformer, seed: int) -> Iterator[None]:
    """Encoding with dropout whose masks ``seed`` fixes (CPU, CUDA); the global random state comes back untouched."""

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
