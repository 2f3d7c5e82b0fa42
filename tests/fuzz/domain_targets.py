"""Text of a domain: what is measured on it, judged and refined with it; their parameters and what each allows."""

from __future__ import annotations

import functools
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from st_extras import adaptation, evaluation, modules
from st_extras.modules.neighbor_directions import neighbor_directions
from tests.conftest import SENTENCES
from tests.fuzz import values as v
from tests.fuzz import world
from tests.fuzz.model_targets import EVALUATOR
from tests.fuzz.values import Target

_MODEL = v.instance(SentenceTransformer)
_LABELS = ["a", "b"] * 4
_STEP: dict[str, v.Domain] = {
    "neighbors": v.count(1, 1000),
    "power": v.real(0, 10, closed=(True, True), usual=(0, 10)),
    "recolor": v.SHARE,
    "epsilon": v.NOT_NEGATIVE,
    "words": v.boolean,
    "seed": v.seed,
}
"""The settings of a locality preserving step."""


def _none(value: object) -> bool:
    """Nothing that is tried fits: texts, labels and embeddings must be as many as each other."""
    return False


def _seeds(value: Any) -> bool | None:
    return None if isinstance(value, bytes) else v.numbers(1)(value)


def _draw(rows: int) -> torch.Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))


@functools.cache
def judge() -> evaluation.ChangeJudge:
    """A judge of 100 texts."""
    return evaluation.ChangeJudge(world.corpus()[:100], _draw(100))


@functools.cache
def _step() -> modules.LocalityPreservingPostProcessor:
    """The last module of a model, not fitted yet."""
    last: modules.LocalityPreservingPostProcessor = modules.LocalityPreservingPostProcessor.attach(world.encoder())[-1]
    return last


def domain_targets() -> list[Target]:
    """Evaluators and readers of labelled texts, the judge of a change, the step that it judges, and ``adapt``."""
    return [*_labelled(), *_judged(), *_refined()]


def _labelled() -> list[Target]:
    file = world.root() / "labelled.tsv"
    rows = (f"{label}\t{text}\n" for label, text in zip(_LABELS, SENTENCES, strict=True))
    file.write_text("label\ttext\n" + "".join(rows), encoding="utf8")
    shared: dict[str, v.Domain] = {
        "labels": _none,
        "train_labels": _none,
        "metrics": _none,
        "neighbors": v.count(1, 100),
        "seeds": _seeds,
    }
    labels = {"labels": _LABELS, "train_labels": _LABELS}
    return [
        Target(
            evaluation.label_scores,
            shared | {"embeddings": _none, "train_embeddings": _none},
            labels | {"embeddings": _draw(8), "train_embeddings": _draw(8)},
        ),
        Target(
            evaluation.LabeledTextEvaluator,
            EVALUATOR | shared | {"texts": _none, "train_texts": _none},
            labels | {"texts": SENTENCES, "train_texts": SENTENCES},
        ),
        Target(
            evaluation.load_labeled_texts,
            {
                "path": _none,
                "text_column": v.optional(_none),
                "label_column": _none,
                "max_line": v.either(v.count(1, 2**30)),
            },
            {"path": file},
        ),
    ]


def _judged() -> list[Target]:
    return [
        Target(
            evaluation.ChangeJudge,
            {"start": _none, "seed": v.seed},
            {"texts": world.corpus()[:100], "start": _draw(100)},
        ),
        Target(
            evaluation.ChangeJudge.compare,
            {"embeddings": _none, "resamples": v.count(100, 10**5)},
            {"self": judge(), "embeddings": _draw(100)},
        ),
    ]


def _refined() -> list[Target]:
    corpus = world.corpus()
    kind = modules.LocalityPreservingPostProcessor
    adapted = {"model": world.encoder(), "sentences": SENTENCES, "output": None, "show_progress_bar": False}
    fitted = {"neighbors": v.either(v.count(1, 1000))}  # twice as many texts are needed
    return [
        Target(
            kind,
            _STEP | {"embedding_dimension": v.count(1, 10**6), "max_sentences": v.count(50), "corpus_size": v.count(0)},
            {"embedding_dimension": 8},
        ),
        Target(
            kind.attach,
            _STEP
            | fitted
            | {
                "model": _MODEL,
                "corpus": v.optional(_none),
                "batch_size": v.count(1),
                "encode_options": v.optional(v.either(v.instance(dict))),
            },
            {"model": world.encoder(), "corpus": corpus[:120]},
            name="LocalityPreserving.attach",
        ),
        Target(
            kind.fit,
            {"sentences": _none, "statistics": v.optional(_none), "show_progress_bar": v.boolean},
            {"self": _step(), "sentences": corpus[:120]},
            name="LocalityPreserving.fit",
        ),
        Target(
            kind.fit_embeddings,
            {"embeddings": _none, "texts": _none},
            {"self": kind(4), "embeddings": _draw(120), "texts": corpus[:120]},
            name="LocalityPreserving.fit_embeddings",
        ),
        Target(
            neighbor_directions,
            fitted | {"epsilon": v.NOT_NEGATIVE, "folds": v.optional(v.count(2, 20)), "seed": v.seed},
            {"embeddings": _draw(120)},
        ),
        Target(
            adaptation.adapt,
            {
                "model": _MODEL,
                "sentences": lambda x: None if isinstance(x, torch.Tensor) and not x.numel() else v.sentences(0)(x),
                "dev": v.optional(_none),
                "minutes": v.real(0, 10_000, closed=(False, True), usual=(1e-6, 10_000)),
                "limit": v.count(500, 50_000),
                "max_general_loss": v.optional(v.NOT_NEGATIVE),
                "train": v.boolean,
                "batch_size": v.count(1),
                "seed": v.seed,
                "show_progress_bar": v.boolean,
            },
            adapted,
        ),
        Target(adaptation.adapt, {"resume": v.boolean, "overwrite": v.boolean}, adapted, runs=False),
    ]
