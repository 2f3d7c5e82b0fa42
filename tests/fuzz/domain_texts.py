"""Texts that no one expects, among those of a domain: through its step, its judge, its evaluator and ``adapt``."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from st_extras import adaptation, evaluation, modules
from st_extras.text.corpus import passages
from st_extras.text.term_weights import BM25, search_words
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
    return evaluation.LabelFreeComparison(texts, start).compare(3 * start, 100)


def _labelled(sentence: str) -> Any:
    texts = [sentence, *world.corpus()[1:8]]
    return evaluation.LabeledTextEvaluator(texts, _LABELS, seeds=[0], write_csv=False)(world.encoder())


def _adapted(sentence: str) -> torch.Tensor:
    """The embedding of a text by what ``adapt`` makes of the encoder, with the text among those of the domain."""
    model: SentenceTransformer = adaptation.adapt(
        world.encoder(), [*world.corpus(), sentence], world.new_folder(), train=False, show_progress_bar=False
    ).model
    return torch.as_tensor(model.encode([sentence]))


def _searched(sentence: str) -> torch.Tensor:
    """The text as query and as document, after ``adapt_search`` with the text among both."""
    texts = [*world.corpus()[:150], sentence]
    queries = [*(text[3:] for text in world.corpus()[:40]), f"what is {sentence}"]
    options: dict[str, Any] = {"queries": queries, "keep_index": len(sentence) % 2 == 1, "show_progress_bar": False}
    model = adaptation.adapt_search(world.encoder(), texts, world.new_folder(), **options).model
    return torch.from_numpy(model.encode_query([sentence]) + model.encode_document([sentence]))


def _compared(sentence: str) -> dict[str, dict[str, float]]:
    """Scores of a search for the text, which is a document too."""
    documents = {f"{row}": text for row, text in enumerate([*world.corpus()[:20], sentence])}
    task = evaluation.RetrievalTask({"q": sentence}, documents, {"q": {"20": 1.0}})
    return evaluation.compare_retrieval(task, [("plain", world.encoder())])


def _in_range(sentence: str, rows: dict[str, dict[str, float]]) -> str | None:
    right = all(row["recall@100"] == 1 and 0 <= row["ndcg@10"] <= 1 for row in rows.values())  # of 21, all are found
    return None if right else f"scores outside of their range: {rows}"


def _found(sentence: str, scores: np.ndarray) -> str | None:
    right = np.isfinite(scores).all() and (scores[0] > 0) == bool(search_words(sentence)) and (scores >= 0).all()
    return None if right else f"scores of BM25: {scores[:3]}"


def _finite(sentence: str, embeddings: torch.Tensor) -> str | None:
    return None if bool(embeddings.isfinite().all()) else "the embedding is not finite"


def _unchanged(sentence: str, verdict: evaluation.Verdict) -> str | None:
    changes = (verdict.gain, verdict.low, verdict.high, verdict.confirmed, verdict.lexical, verdict.coherence)
    return None if not any(changes) else f"a change where nothing changed: {verdict}"


def _scored(sentence: str, scores: dict[str, float]) -> str | None:
    return None if all(0 <= score <= 1 for score in scores.values()) else f"scores outside of 0 to 1: {scores}"


DOMAIN_CALLS: dict[str, tuple[Callable[[str], Any], Callable[[str, Any], str | None]]] = {
    "LocalityPreserving.attach": (_stepped, _finite),
    "LabelFreeComparison": (_judged, _unchanged),
    "LabeledTextEvaluator": (_labelled, _scored),
    "adapt": (_adapted, _finite),
    "adapt for search": (_searched, _finite),
    "compare_retrieval": (_compared, _in_range),
    "BM25": (lambda s: BM25([s, "zzz", *world.corpus()[:20]]).scores([s])[0], _found),
    "passages": (lambda s: list(passages([s], 3)),
                 lambda s, cut: None if "".join("".join(cut).split()) == "".join(s.split()) else "other words"),
}  # fmt: skip
"""Name, call, and the oracle of its result; as in ``texts.CALLS``."""
