"""Warns of a training that made the encoder worse on its own text, which is seen without labels."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_extras.encoders.structure import keep_modes
from st_extras.evaluation.label_free import FEWEST, LEAST_CONFIRMED, LabelFreeComparison

logger = logging.getLogger(__name__)
COMPARED = 300
"""Texts that are encoded before and after a training."""
_LOWEST = -0.02
"""A warning is logged if the whole 95 % interval of the gain is below this.

Of the 81 short trainings in docs/domain-study.md's records, this warns of 14, all of which lowered the scores by labels
(by 0.3 to 21 points), and misses three of all-MiniLM-L6-v2's that lost 1.6 to 3.4 points. It warns of none of the 54
trainings of raw encoders, which lost at most 1.6. The intervals were widened from 1,800 texts to 300.
"""


class HarmCheck:
    """Compares the embeddings of some of the training texts after the training with those before it.

    By :class:`~st_extras.evaluation.LabelFreeComparison`. The texts are encoded twice, in evaluation mode: no weight,
    mode or random state changes. Nothing is compared where that would show nothing: of fewer than 100 different
    texts, of texts of which fewer than a fifth share words with a near neighbour, or of embeddings of length 0.

    Args:
        model: the encoder before the training.
        texts: the first 300 different ones of them are compared.
    """

    def __init__(self, model: SentenceTransformer, texts: Sequence[str]) -> None:
        self._comparison: LabelFreeComparison | None = None
        compared = list(dict.fromkeys(texts))[:COMPARED]
        if len(compared) < FEWEST:
            return
        embeddings = _encoded(model, compared)
        if embeddings is not None:
            comparison = LabelFreeComparison(compared, embeddings)
            self._comparison = comparison if comparison.confirmed_share >= LEAST_CONFIRMED else None

    def warn_if_worse(self, model: SentenceTransformer) -> None:
        """Log a warning if the trained model's embeddings are clearly worse than those before the training."""
        if self._comparison is None:
            return
        embeddings = _encoded(model, self._comparison.texts)
        if embeddings is None:
            return
        score = self._comparison.compare(embeddings)
        if score.high < _LOWEST:
            logger.warning(
                "Training made the encoder worse on its own text: without labels, the gain over the base model is %.3f "
                "(95 %% interval %.3f to %.3f, %d texts). Keep the base model, train fewer steps at a lower learning "
                "rate, choose the weights with an evaluator (--dev), or use adapt, which keeps only what helps.",
                *(score.gain, score.low, score.high, len(self._comparison.texts)),
            )


def _encoded(model: SentenceTransformer, texts: Sequence[str]) -> Tensor | None:
    """Return (N, D) embeddings; None if the model needs more than texts (a route), or they cannot be compared."""
    try:
        with keep_modes(model):
            embeddings: Tensor = model.encode(list(texts), convert_to_tensor=True, show_progress_bar=False)
    except ValueError:
        return None
    embeddings = embeddings.float().cpu()
    return embeddings if embeddings.isfinite().all() and embeddings.any(dim=1).all() else None
