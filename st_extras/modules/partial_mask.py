"""The input module of RepAL: it encodes each text twice, once unchanged and once with its keywords masked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from st_extras.checks import check_choice
from st_extras.modules.keywords_file import KEYWORDS_FILE, read_keywords, write_keywords
from st_extras.modules.masked_copies import COPIES, JoinedParts, MaskedCopyReader, refuse_training, with_pooled_copies
from st_extras.modules.saving import find_file, hub_options
from st_extras.text.keywords import Extractor, build_extractor, extractor_config, keyword_spans
from st_extras.text.spans import replace_spans

_KEYWORD_TOKENS = "keyword_tokens"
_REDUNDANCY = ("encoder", "pooled")
_ON_MISSING_MASK = ("error", "delete")


class PartialMaskTransformer(Transformer):
    """A ``Transformer`` that also encodes each text with its keywords masked, for a module later in the pipeline.

    ``RepALPostProcessor.attach`` builds it; use it on its own only if you write a module that needs the masked copies.
    It does not change the embeddings of the texts. A module after pooling no longer sees the text, so the copies are
    made here, but only while some later module's ``wants_masked_copies`` is true; otherwise a pass costs what it did.

    Paper: RepAL, https://arxiv.org/abs/2305.07824 (section 3.2.1, "partial mask"; no code published).

    Equation: x* = x with each keyword replaced by the mask token; ``redundancy="encoder"`` gives f(x*).

    Args:
        keywords: "jieba", "tfidf", "rake", an extractor or a callable, see ``st_extras.text.keywords.build_extractor``.
        redundancy: "encoder" (the paper): ``preprocess`` adds B masked rows, and one pass encodes 2B rows.
            "pooled": the B rows are encoded once, and repeated after the encoder with the keywords' tokens left out of
            the attention mask (CLS pooling then sees the mean of the other tokens), so that f(x*) is only approximated,
            at about the usual cost.
        on_missing_mask: what to do if the tokenizer has no mask token: "error", or "delete" to delete the keywords
            instead.
        **kwargs: as for ``Transformer``.

    Works with:
        Any encoder that Sentence Transformers loads as a plain ``Transformer``, with any pooling; prompts are never
        masked. Unpadded (flattened) inputs are turned off. ``redundancy="pooled"`` needs a fast tokenizer, no chat
        template, and refuses CLS pooling that excludes the prompt. Inputs must be strings. A model with masked copies
        cannot be trained, and a callable extractor cannot be saved.

    Differs from the paper:
        ``redundancy="pooled"`` and ``on_missing_mask="delete"`` are ours. Decided here, because the paper does not say:
        a keyword is a word of the TEXT, replaced by one mask token (not one per word piece) wherever it occurs, on word
        boundaries; a text without keywords has x* = x.

    Example:
        >>> from st_extras.modules import RepALPostProcessor
        >>> from st_extras.samples.encoder import raw_encoder
        >>> model = RepALPostProcessor.attach(raw_encoder(), lambda_1=0.5, lambda_2=0.0)
        >>> model[0].partial_mask("A cat sat on the mat.")
        'A [MASK] [MASK] on the [MASK].'
    """

    config_keys: list[str] = [*Transformer.config_keys, "redundancy", "on_missing_mask"]  # noqa: RUF012

    def __init__(
        self,
        model_name_or_path: str,
        *,
        keywords: Any = "jieba",
        redundancy: str = "encoder",
        on_missing_mask: str = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(model_name_or_path, **{**kwargs, "unpad_inputs": False})
        self._configure(build_extractor(keywords), redundancy, on_missing_mask)

    @classmethod
    def share(
        cls, modules: Sequence[nn.Module], extractor: Extractor, redundancy: str, on_missing_mask: str
    ) -> PartialMaskTransformer:
        """Turn the first of ``modules`` into a masking encoder that shares its weights and tokenizer.

        Raises:
            ValueError: if the modules do not start with a plain ``Transformer``, or a setting does not fit them.
        """
        encoder = modules[0] if modules else None
        if not isinstance(encoder, Transformer) or type(encoder) is not Transformer:
            raise ValueError(
                f"model must start with Sentence Transformers' Transformer module, got {type(encoder).__name__}."
            )
        check_choice("redundancy", redundancy, _REDUNDANCY)
        pools = [module for module in modules if isinstance(module, Pooling)]
        if redundancy == "pooled" and any("cls" in p.pooling_mode and not p.include_prompt for p in pools):
            raise ValueError('redundancy must be "encoder" for CLS pooling that excludes the prompt, got "pooled".')
        shared: PartialMaskTransformer = same_encoder(encoder, cls)
        shared.unpad_inputs = False
        shared._configure(extractor, redundancy, on_missing_mask)
        return shared

    def _configure(self, extractor: Extractor, redundancy: str, on_missing_mask: str) -> None:
        check_choice("redundancy", redundancy, _REDUNDANCY)
        check_choice("on_missing_mask", on_missing_mask, _ON_MISSING_MASK)
        tokenizer: Any = self.tokenizer
        if redundancy == "encoder" and on_missing_mask == "error" and tokenizer.mask_token is None:
            raise ValueError(
                f"the tokenizer must have a mask token to put in place of keywords, got a {type(tokenizer).__name__} "
                'with no mask token: pass on_missing_mask="delete" to delete the keywords instead.'
            )
        if redundancy == "pooled" and (not tokenizer.is_fast or "message" in self.modality_config):
            raise ValueError(
                'redundancy must be "encoder" for a slow tokenizer or one with a chat template, got "pooled".'
            )
        self.extractor, self.redundancy, self.on_missing_mask = extractor, redundancy, on_missing_mask
        self.make_copies_for(None)

    def on_model_ready(self, model: Any) -> None:
        """Find the module that reads the masked copies; without one, none are made."""
        self.make_copies_for(next((part for part in model if isinstance(part, MaskedCopyReader)), None))

    def make_copies_for(self, reader: MaskedCopyReader | None) -> None:
        """Make masked copies whenever ``reader.wants_masked_copies`` is true, or never if it is None."""
        object.__setattr__(self, "_reader", reader)  # not a child of this module: it comes later in the pipeline

    def partial_mask(self, text: str) -> str:
        """Return x*: ``text`` with each keyword replaced by the mask token, or deleted if there is no mask token."""
        mask_token = getattr(self.tokenizer, "mask_token", None) or ""
        return replace_spans(text, keyword_spans(text, self.extractor), mask_token)

    def preprocess(  # type: ignore[override]
        self, inputs: Any, prompt: str | None = None, *, masked_copies: bool = True, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the features of ``inputs``, followed by their masked copies (2B rows) if the reader wants them."""
        # Transformer calls preprocess again to measure a prompt alone: the flag reaches that call through kwargs.
        kwargs["masked_copies"] = False
        reader = self._reader
        if not masked_copies or not inputs or reader is None or not reader.wants_masked_copies:
            return super().preprocess(inputs, prompt=prompt, **kwargs)
        for text in inputs:
            if not isinstance(text, str):
                raise ValueError(f"inputs must be strings, because RepAL looks for keywords in them, got {text!r}.")
        if self.redundancy == "pooled":
            return self._preprocess_pooled(list(inputs), prompt, kwargs)
        texts = [*inputs, *map(self.partial_mask, inputs)]
        features: dict[str, Any] = super().preprocess(texts, prompt=prompt, **kwargs)
        return {**features, COPIES: True}

    def _preprocess_pooled(self, texts: list[str], prompt: str | None, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the features of B texts, and which of their tokens (B, L) belong to a keyword."""
        options: Any = dict(kwargs.pop("processing_kwargs", None) or {})
        options["text"] = {**options.get("text", {}), "return_offsets_mapping": True}
        features: dict[str, Any] = super().preprocess(texts, prompt=prompt, processing_kwargs=options, **kwargs)
        offsets = features.pop("offset_mapping")  # (B, L, 2)
        spans = [keyword_spans(text, self.extractor) for text in texts]
        bounds = torch.zeros(len(texts), max(1, *map(len, spans)), 2, dtype=offsets.dtype)  # (B, S, 2)
        for row, found in enumerate(spans):
            if found:
                bounds[row, : len(found)] = torch.tensor(found) + len(prompt or "")
        starts, ends = offsets.unsqueeze(2).unbind(-1)  # (B, L, 1)
        inside = (starts < bounds[:, None, :, 1]) & (ends > bounds[:, None, :, 0]) & (starts < ends)
        features[_KEYWORD_TOKENS] = inside.any(dim=-1)  # (B, L)
        return features

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Encode; for ``redundancy="pooled"``, repeat the encoded rows without the keywords' tokens."""
        copies = features.pop(COPIES, False)
        keyword_tokens = features.pop(_KEYWORD_TOKENS, None)
        if copies or keyword_tokens is not None:
            refuse_training(self)
        features = super().forward(features, **kwargs)
        if keyword_tokens is not None:
            copies, features = True, with_pooled_copies(features, keyword_tokens)
        if copies:
            features[COPIES] = True
        return features

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Save the encoder as ``Transformer`` does, and the keyword extractor beside it."""
        keywords = extractor_config(self.extractor)
        super().save(output_path, *args, safe_serialization=safe_serialization, **kwargs)
        write_keywords(output_path, keywords)

    @classmethod
    def load_config(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read the encoder's settings.

        Raises:
            ValueError: if the file is not JSON, or the settings of this class are missing or not allowed; the error
                names the file.
        """
        where = Path(model_name_or_path, kwargs.get("subfolder", ""), cls.config_file_name)
        try:
            config: dict[str, Any] = super().load_config(model_name_or_path, *args, **kwargs)
            check_choice("redundancy", config.get("redundancy"), _REDUNDANCY)
            check_choice("on_missing_mask", config.get("on_missing_mask"), _ON_MISSING_MASK)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        return config

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> PartialMaskTransformer:
        """Load the encoder and its keyword extractor from a folder or the Hub.

        Raises:
            ValueError: if the file of keywords is missing, broken, of another version or holds a wrong setting.
        """
        extractor = read_keywords(find_file(cls, KEYWORDS_FILE, model_name_or_path, hub_options(kwargs)))
        module = super().load(model_name_or_path, *args, **kwargs)
        module.extractor = extractor
        return module


def same_encoder(transformer: Transformer, cls: Any) -> Any:
    """Return ``transformer`` as an instance of ``cls`` that shares its weights but has settings of its own."""
    shared = cls.__new__(cls)
    shared.__dict__.update(transformer.__dict__)
    for name in ("_modules", "_parameters", "_buffers"):
        shared.__dict__[name] = dict(transformer.__dict__[name])
    shared._prompt_length_mapping = {}
    return shared


def joined_modules(modules: Sequence[Any]) -> list[Any]:
    """Return ``modules`` with masked copies always on, ending in both embeddings side by side.

    Raises:
        ValueError: if the modules do not start with a ``PartialMaskTransformer``.
    """
    if not modules or not isinstance(modules[0], PartialMaskTransformer):
        raise ValueError("the model has no PartialMaskTransformer: build it with RepALPostProcessor.attach.")
    joined = JoinedParts()
    first: PartialMaskTransformer = same_encoder(modules[0], PartialMaskTransformer)
    first.make_copies_for(joined)
    return [first, *modules[1:], joined]


def plain_modules(modules: Sequence[Any]) -> list[Any]:
    """Return ``modules`` with a stock ``Transformer`` in place of the masking one."""
    if not modules or not isinstance(modules[0], PartialMaskTransformer):
        return list(modules)
    first = same_encoder(modules[0], Transformer)
    first.unpad_inputs = None
    return [first, *modules[1:]]
