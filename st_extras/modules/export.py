"""Export of a post-processed model as one of Sentence Transformers' own modules."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module

from st_extras.checks import check_instance
from st_extras.modules import pipeline
from st_extras.modules.masked_pipeline import plain_modules
from st_extras.modules.model_card import descriptions


@runtime_checkable
class HasDense(Protocol):
    """A module that is one linear step once it is fitted."""

    def to_dense(self) -> Module:
        """Return that step as a stock ``Dense``."""
        ...


def to_stock(model: SentenceTransformer) -> SentenceTransformer:
    """Return a model of Sentence Transformers' own modules alone, with the same embeddings; weights are shared.

    Saved, it loads without this package and without ``trust_remote_code=True``. Whitening, all-but-the-top, locality
    preservation and RepAL's corpus term become ``Dense`` modules. What needs the text or the token ids cannot be
    exported: RepAL's sentence term (``lambda_1`` > 0) and SIF pooling.

    Raises:
        ValueError: if a module cannot be exported, or is not fitted.
    """
    check_instance("model", model, SentenceTransformer)
    modules: list[Any] = [part.to_dense() if isinstance(part, HasDense) else part for part in model]
    stock = pipeline.rebuild_model(model, plain_modules(modules))
    left = [type(part).__name__ for part in stock.modules() if type(part).__module__.startswith("st_extras.")]
    if left:
        raise ValueError(
            f"model must hold only steps that are linear in the embedding to be exported, got {', '.join(left)}: keep "
            "it as it is, and load it with st_extras.load."
        )
    card: Any = stock.model_card_data
    card.exported = card.exported | descriptions(model)
    return stock
