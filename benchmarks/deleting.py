"""SLT-FAI whose incomplete sentences lack their rare tokens: a control for what [MASK] itself gives away."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer

from st_extras.losses import SLTFAILoss


class DeletingSLTFAILoss(SLTFAILoss):
    """SLT-FAI that deletes rare tokens where the paper masks them.

    The paper's discriminator need only see [MASK] to know that a sentence is incomplete.

    Args:
        model: the SentenceTransformer to train.
        options: those of SLTFAILoss, whose filtering must be on.
    """

    def __init__(self, model: SentenceTransformer, **options: Any) -> None:
        super().__init__(model, **options)
        if self.incomplete is None:
            raise ValueError("incomplete_weight must not be 0: nothing would be deleted.")
        self.incomplete.mask_token_id = None
