"""RepAL's pooled redundancy: which tokens belong to a keyword, and masked copies pooled over the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from st_extras.encoders.rows import reported_prompt_length
from st_extras.text.words import Span

POOLED = "pooled_copies"
"""Feature key: present if the copies are the texts' own token embeddings, their keywords left out of the mask."""


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
        features = super().forward(features, **kwargs)
        if POOLED not in features:
            return features
        if "token_weights_sum" in features:
            raise ValueError(
                'redundancy must be "encoder" for a model that weights words before pooling, got "pooled".'
            )
        tokens = features["token_embeddings"].chunk(2)[0]  # (B, L, D), the same for text and copy
        shown, kept = features["attention_mask"].bool().chunk(2)  # (B, L)
        places = shown.cumsum(dim=1)  # (B, L), 1-based
        if not self.include_prompt:
            shown = shown & (places > reported_prompt_length(features))
        kept = kept & shown
        kept = torch.where(kept.any(dim=1, keepdim=True), kept, shown)
        modes = (self.pooling_mode,) if isinstance(self.pooling_mode, str) else self.pooling_mode
        copies = torch.cat([_pool_kept(tokens, kept, places, mode) for mode in modes], dim=-1)
        texts = features["sentence_embedding"].chunk(2)[0]
        features["sentence_embedding"] = torch.cat([texts, copies.to(texts)])
        return features


def _pool_kept(tokens: Tensor, kept: Tensor, places: Tensor, mode: str) -> Tensor:
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


def copy_pooling(pooling: Any) -> Any:
    """Return a ``MaskedCopyPooling`` of the same settings; a subclass of ``Pooling`` stays if it works with masks.

    Raises:
        ValueError: if a subclass takes one token for all.
    """
    if type(pooling) is Pooling:
        return MaskedCopyPooling(pooling.embedding_dimension, pooling.pooling_mode, pooling.include_prompt)
    if not {"cls", "lasttoken"}.isdisjoint([pooling.pooling_mode, *pooling.pooling_mode]):
        raise ValueError(
            f'redundancy must be "encoder" for a {type(pooling).__name__} that takes the first or last token, '
            'got "pooled".'
        )
    return pooling


def check_offsets(encoder: Transformer) -> None:
    """Check that the tokenizer knows which characters of a text its tokens stand for.

    Raises:
        ValueError: if it does not, or a template around the text has characters of its own.
    """
    tokenizer: Any = encoder.tokenizer
    if not tokenizer.is_fast or not isinstance(encoder.processor, PreTrainedTokenizerBase):
        raise ValueError('redundancy must be "encoder" for a slow tokenizer or one inside a processor, got "pooled".')
    if "message" in encoder.modality_config:
        raise ValueError('redundancy must be "encoder" for a model with a prompt or chat template, got "pooled".')


def tokens_of_spans(
    tokenize: Callable[..., dict[str, Any]],
    spans: Sequence[Sequence[Span]],
    prompt: str | None,
    kwargs: dict[str, Any],
) -> tuple[dict[str, Any], Tensor]:
    """Tokenize B texts, and find the tokens that stand for characters of the spans.

    Args:
        tokenize: an encoder's ``preprocess`` of the texts with ``prompt``.
        spans: the (start, end) characters of each text's keywords.
        prompt: the text that ``tokenize`` puts before each text, if any.
        kwargs: further arguments of ``tokenize``.

    Returns:
        The features, and (B, L) bool.
    """
    given: Any = kwargs.pop("processing_kwargs", None) or {}
    options = {**given, "text": {**given.get("text", {}), "return_offsets_mapping": True}}
    features = tokenize(processing_kwargs=options, **kwargs)
    offsets = features.pop("offset_mapping")  # (B, L, 2)
    bounds = torch.zeros(len(spans), max(1, *map(len, spans)), 2, dtype=offsets.dtype)  # (B, S, 2)
    for row, found in enumerate(spans):
        if found:
            bounds[row, : len(found)] = torch.tensor(found) + len(prompt or "")
    starts, ends = offsets.unsqueeze(2).unbind(-1)  # (B, L, 1)
    inside = (starts < bounds[:, None, :, 1]) & (ends > bounds[:, None, :, 0]) & (starts < ends)
    return features, inside.any(dim=-1)
