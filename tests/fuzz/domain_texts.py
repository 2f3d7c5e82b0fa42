"""Texts that no one expects, among those of a domain: through its step, its judge, its evaluator and ``adapt``."""

from collections.abc import Callable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from st_extras import adaptation, evaluation, modules
from tests.fuzz import world

_LABELS = ["a", "b"] * 4


def _stepped(sentence: str) -> torch.Tensor:
    """The embedding of a text by a step that was fitted on it too."""
    corpus = [*world.corpus()[:80], sentence]
    model = modules.LocalityPreservingPostProcessor.attach(world.encoder(), corpus=corpus, recolor=0.0)
    return torch.as_tensor(model.encode([sentence]))


def _judged(sentence: str) -> Any:
    """What the judge says of no change, with the text among its texts."""
    texts = [sentence, *world.corpus()[1:100]]
    start = torch.randn(len(texts), 4, generator=torch.Generator().manual_seed(0))
    return evaluation.ChangeJudge(texts, start).compare(3 * start, 100)


def _labelled(sentence: str) -> Any:
    texts = [sentence, *world.corpus()[1:8]]
    return evaluation.LabeledTextEvaluator(texts, _LABELS, seeds=[0], write_csv=False)(world.encoder())


def _adapted(sentence: str) -> torch.Tensor:
    """The embedding of a text by what ``adapt`` makes of the encoder, with the text among those of the domain."""
    model: SentenceTransformer = adaptation.adapt(
        world.encoder(), [*world.corpus(), sentence], world.new_folder(), train=False, show_progress_bar=False
    ).model
    return torch.as_tensor(model.encode([sentence]))


def _finite(sentence: str, embeddings: torch.Tensor) -> str | None:
    return None if bool(embeddings.isfinite().all()) else "the embedding is not finite"


def _unchanged(sentence: str, verdict: evaluation.Verdict) -> str | None:
    changes = (verdict.gain, verdict.low, verdict.high, verdict.confirmed, verdict.lexical, verdict.coherence)
    return None if not any(changes) else f"a change where nothing changed: {verdict}"


def _scored(sentence: str, scores: dict[str, float]) -> str | None:
    return None if all(0 <= score <= 1 for score in scores.values()) else f"scores outside of 0 to 1: {scores}"


DOMAIN_CALLS: dict[str, tuple[Callable[[str], Any], Callable[[str, Any], str | None]]] = {
    "LocalityPreserving.attach": (_stepped, _finite),
    "ChangeJudge": (_judged, _unchanged),
    "LabeledTextEvaluator": (_labelled, _scored),
    "adapt": (_adapted, _finite),
}
"""Name, call, and the oracle of its result; as in ``texts.CALLS``."""
