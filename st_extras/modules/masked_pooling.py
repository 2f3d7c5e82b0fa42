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
_PROBE = "\ue000st-extras\ue000"


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
    """Check that the tokenizer knows which characters its tokens stand for, and where in a template a text is.

    Raises:
        ValueError: if it does not.
    """
    tokenizer: Any = encoder.tokenizer
    if not tokenizer.is_fast or not isinstance(encoder.processor, PreTrainedTokenizerBase):
        raise ValueError('redundancy must be "encoder" for a slow tokenizer or one inside a processor, got "pooled".')
    text_place(encoder, None, {})


def tokens_of_spans(
    encoder: Transformer,
    tokenize: Callable[..., dict[str, Any]],
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]],
    prompt: str | None,
    kwargs: dict[str, Any],
) -> tuple[dict[str, Any], Tensor]:
    """Tokenize B texts, and find the tokens that stand for characters of the spans.

    Args:
        encoder: the encoder that tokenizes, for its template.
        tokenize: its ``preprocess`` of ``texts`` with ``prompt``.
        texts: the texts.
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
    bounds = torch.zeros(len(texts), max(1, *map(len, spans)), 2, dtype=offsets.dtype)  # (B, S, 2)
    before, stripped = text_place(encoder, prompt, given)
    for row, (text, found) in enumerate(zip(texts, spans, strict=True)):
        if found:
            cut_off = len(text) - len(text.lstrip()) if stripped else 0
            bounds[row, : len(found)] = torch.tensor(found) + before - cut_off
    starts, ends = offsets.unsqueeze(2).unbind(-1)  # (B, L, 1)
    inside = ((starts < bounds[:, None, :, 1]) & (ends > bounds[:, None, :, 0]) & (starts < ends)).any(dim=-1)
    if features.get("modality") == "message" and offsets.shape[1] >= (encoder.max_seq_length or 0):
        # in texts that are too long, Sentence Transformers writes the template's end over the last tokens of the text
        cut = {**options, "chat_template": {**given.get("chat_template", {}), "restore_suffix": False}}
        inside &= features["input_ids"] == tokenize(processing_kwargs=cut, **kwargs)["input_ids"]
    return features, inside


def text_place(encoder: Transformer, prompt: str | None, options: dict[str, Any]) -> tuple[int, bool]:
    """Return the number of characters before a text in what is tokenized: of a prompt, or a template's beginning.

    Returns:
        The number, and whether the template cuts off white space at the beginning of the text.

    Raises:
        ValueError: if the template does more than that to a text.
    """
    if "message" not in encoder.modality_config:
        return len(prompt or ""), False
    plain, spaced = (_render_by_template(encoder, gap + _PROBE + gap, prompt, options) for gap in ("", "  "))
    before = plain.find(_PROBE)
    moved = spaced.find(_PROBE) - before
    if before < 0 or moved not in (0, 2) or plain.count(_PROBE) > 1:
        raise ValueError(
            'redundancy must be "encoder" for a chat template that changes or repeats the text, got "pooled".'
        )
    return before, moved == 0


def _render_by_template(encoder: Transformer, text: str, prompt: str | None, options: dict[str, Any]) -> str:
    """Return a text as its template renders it."""
    formatter = encoder.input_formatter
    messages = formatter.batch_to_message("text", {"text": [text]})[1]["message"]
    if prompt:
        messages = formatter.prepend_prompt_to_messages(messages, prompt)
    settings = {name: value for name, value in options.get("chat_template", {}).items() if name != "restore_suffix"}
    rendered = encoder.processor.apply_chat_template(messages, tokenize=False, **settings)
    return str(rendered[0])
