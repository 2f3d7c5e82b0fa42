"""Pooling for RepAL's pooled redundancy: the masked copies are pooled over the tokens that belong to no keyword."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor

from st_extras.modules.masked_copies import POOLED


class MaskedCopyPooling(Pooling):
    """A ``Pooling`` that also pools copies made without a second pass: over the tokens that belong to no keyword.

    ``RepALPostProcessor.attach(..., redundancy="pooled")`` puts it in place of the model's ``Pooling``. It does not
    change the embeddings of the texts. The first and the last token are rarely keywords, so a copy pooled by "cls" or
    "lasttoken" would equal its text: it gets the mean of the tokens that are left. In "weightedmean" the tokens that
    are left keep the weights of their places. A copy without any token left gets all tokens of its text.

    Args: as for ``Pooling``.
    """

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Pool B texts, or B texts and then their copies: (R, L, D) token embeddings -> (R, D')."""
        has_copies = features.get(POOLED, False)
        features = super().forward(features, **kwargs)
        if not has_copies:
            return features
        if "token_weights_sum" in features:
            raise ValueError(
                'redundancy must be "encoder" for a model that weights words before pooling, got "pooled".'
            )
        tokens = features["token_embeddings"].chunk(2)[0]  # (B, L, D), the same for text and copy
        shown, kept = features["attention_mask"].bool().chunk(2)  # (B, L)
        places = shown.cumsum(dim=1)  # (B, L), 1-based
        if not self.include_prompt and "prompt_length" in features:
            shown = shown & (places > _number(features["prompt_length"]))
        kept = kept & shown
        kept = torch.where(kept.any(dim=1, keepdim=True), kept, shown)
        modes = (self.pooling_mode,) if isinstance(self.pooling_mode, str) else self.pooling_mode
        copies = torch.cat([pool_kept(tokens, kept, places, mode) for mode in modes], dim=-1)
        texts = features["sentence_embedding"].chunk(2)[0]
        features["sentence_embedding"] = torch.cat([texts, copies.to(texts)])
        return features


def pool_kept(tokens: Tensor, kept: Tensor, places: Tensor, mode: str) -> Tensor:
    """Pool the kept tokens of each row, summed in float32 or wider; "cls" and "lasttoken" are their mean.

    Args:
        tokens: (B, L, D).
        kept: (B, L) bool.
        places: (B, L), the 1-based place of each token in its text.
        mode: one of Pooling's.

    Returns:
        (B, D).
    """
    if mode == "max":
        return tokens.masked_fill(~kept.unsqueeze(-1), float("-inf")).amax(dim=1)
    tokens = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
    weights = (kept * places if mode == "weightedmean" else kept).to(tokens.dtype).unsqueeze(-1)  # (B, L, 1)
    total = weights.sum(dim=1).clamp(min=1e-9)
    return (tokens * weights).sum(dim=1) / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)


def _number(length: Any) -> int:
    """Return the number of tokens of the prompt, which Sentence Transformers gives as a number or a tensor of it."""
    return int(length.flatten()[0]) if isinstance(length, Tensor) else int(length or 0)
