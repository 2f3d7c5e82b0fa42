"""The input module of RepAL: it encodes each text twice, as it is and with its keywords masked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import Module, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn

from st_extras.modules.pipeline import hub_options
from st_extras.text.keywords import Extractor, build_extractor, extractor_config, keyword_spans
from st_extras.text.spans import replace_spans

_COPIES = "masked_copies"
_KEYWORD_TOKENS = "keyword_tokens"
_KEYWORDS_FILE = "repal_keywords.json"


class PartialMaskTransformer(Transformer):
    """A ``Transformer`` that also encodes each text with its keywords masked. ``RepALPostProcessor.attach`` builds it.

    A module after pooling sees no text, so the copies are made here: ``redundancy="encoder"`` adds B masked rows in
    ``preprocess`` (one padding, one encoder pass over 2B rows); ``"pooled"`` repeats the B rows after the encoder with
    the keywords' tokens out of the attention mask. No copies are made when nothing reads them (``lambda_1`` of 0).

    Args:
        keywords: see ``st_extras.text.keywords.build_extractor``.
        redundancy: "encoder" or "pooled".
        on_missing_mask: "error", or "delete": a tokenizer without a mask token drops the keywords instead.
        **kwargs: as for ``Transformer``.
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
        """The encoder that ``modules`` begin with, with masked copies: its weights and tokenizer are shared."""
        encoder = modules[0] if modules else None
        if not isinstance(encoder, Transformer) or type(encoder) is not Transformer:
            raise ValueError(
                f"model must start with Sentence Transformers' Transformer module; got {type(encoder).__name__}"
            )
        pools = [module for module in modules if isinstance(module, Pooling)]
        if redundancy == "pooled" and any("cls" in p.pooling_mode and not p.include_prompt for p in pools):
            raise ValueError('redundancy="pooled" does not go with CLS pooling that excludes the prompt; use "encoder"')
        shared: PartialMaskTransformer = same_encoder(encoder, cls)
        shared.unpad_inputs = False
        shared._configure(extractor, redundancy, on_missing_mask)
        return shared

    def _configure(self, extractor: Extractor, redundancy: str, on_missing_mask: str) -> None:
        if redundancy not in ("encoder", "pooled"):
            raise ValueError(f'redundancy must be "encoder" or "pooled"; got {redundancy!r}')
        if on_missing_mask not in ("error", "delete"):
            raise ValueError(f'on_missing_mask must be "error" or "delete"; got {on_missing_mask!r}')
        tokenizer: Any = self.tokenizer
        if redundancy == "encoder" and on_missing_mask == "error" and tokenizer.mask_token is None:
            raise ValueError(
                f"the tokenizer {type(tokenizer).__name__} has no mask token (mask_token is None), which "
                'RepAL puts in place of keywords: pass on_missing_mask="delete" to delete them instead'
            )
        if redundancy == "pooled" and (not tokenizer.is_fast or "message" in self.modality_config):
            raise ValueError('redundancy="pooled" needs a fast tokenizer and no chat template; use "encoder"')
        self.extractor, self.redundancy, self.on_missing_mask = extractor, redundancy, on_missing_mask
        self.make_copies_for(None)

    def on_model_ready(self, model: Any) -> None:
        """Learn which module reads the masked copies; without one, none are made."""
        self.make_copies_for(next((part for part in model if hasattr(part, "lambda_1")), None))

    def make_copies_for(self, reader: nn.Module | None) -> None:
        """Make masked copies as long as ``reader.lambda_1`` is not 0; None: make none."""
        object.__setattr__(self, "_reader", reader)  # no child of this module: it stands further down the pipeline

    def partial_mask(self, text: str) -> str:
        """x*: ``text`` with each keyword replaced by the mask token (or deleted, where there is none)."""
        mask_token = getattr(self.tokenizer, "mask_token", None) or ""
        return replace_spans(text, keyword_spans(text, self.extractor), mask_token)

    def preprocess(  # type: ignore[override]
        self, inputs: Any, prompt: str | None = None, *, masked_copies: bool = True, **kwargs: Any
    ) -> dict[str, Any]:
        """Features of ``inputs``, with their masked copies behind them (2B rows) where RepAL needs them."""
        # The flag travels through ``kwargs`` to the call that measures a prompt alone.
        kwargs["masked_copies"] = False
        reader = self._reader
        if not masked_copies or not inputs or reader is None or reader.lambda_1 == 0:
            return super().preprocess(inputs, prompt=prompt, **kwargs)
        for text in inputs:
            if not isinstance(text, str):
                raise ValueError(f"RepAL finds keywords in texts: every input must be a str; got {text!r}")
        if self.redundancy == "pooled":
            return self._preprocess_pooled(list(inputs), prompt, kwargs)
        texts = [*inputs, *map(self.partial_mask, inputs)]
        features: dict[str, Any] = super().preprocess(texts, prompt=prompt, **kwargs)
        return {**features, _COPIES: True}

    def _preprocess_pooled(self, texts: list[str], prompt: str | None, kwargs: dict[str, Any]) -> dict[str, Any]:
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
        """Encode; with ``redundancy="pooled"``, repeat the encoded rows with the keywords' tokens left out."""
        copies = features.pop(_COPIES, False)
        keyword_tokens = features.pop(_KEYWORD_TOKENS, None)
        if copies or keyword_tokens is not None:
            refuse_training(self)
        features = super().forward(features, **kwargs)
        if keyword_tokens is not None:
            copies, features = True, _with_pooled_copies(features, keyword_tokens)
        if copies:
            features[_COPIES] = True
        return features

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Save the encoder as ``Transformer`` does, and the keyword extractor beside it."""
        keywords = json.dumps(extractor_config(self.extractor), ensure_ascii=False)
        super().save(output_path, *args, safe_serialization=safe_serialization, **kwargs)
        Path(output_path, _KEYWORDS_FILE).write_text(keywords, encoding="utf8")

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> PartialMaskTransformer:
        """Load from a folder or the Hub, with the keyword extractor."""
        module = super().load(model_name_or_path, *args, **kwargs)
        path = cls.load_file_path(model_name_or_path, _KEYWORDS_FILE, **hub_options(kwargs))
        if path is None:
            raise ValueError(f"{model_name_or_path} has no {_KEYWORDS_FILE}: it was not saved whole")
        module.extractor = build_extractor(json.loads(Path(path).read_text(encoding="utf8")))
        return module


def same_encoder(transformer: Transformer, cls: Any) -> Any:
    """``transformer`` as an instance of ``cls``: everything is shared, settings can be changed apart."""
    shared = cls.__new__(cls)
    shared.__dict__.update(transformer.__dict__)
    for name in ("_modules", "_parameters", "_buffers"):
        shared.__dict__[name] = dict(transformer.__dict__[name])
    shared._prompt_length_mapping = {}
    return shared


def _with_pooled_copies(features: dict[str, Any], keyword_tokens: Tensor) -> dict[str, Any]:
    """Each row twice; the attention mask of the second has no keyword (all tokens where nothing else is left)."""
    attention = features["attention_mask"]  # (B, L)
    kept = attention * ~keyword_tokens.to(attention.device)
    kept = torch.where(kept.any(dim=1, keepdim=True), kept, attention)
    tokens = features["token_embeddings"]  # (B, L, D)
    first = tokens[torch.arange(len(tokens), device=tokens.device), attention.int().argmax(dim=1)]
    weights = (kept / kept.sum(dim=1, keepdim=True)).to(tokens.dtype)
    mean = (weights.unsqueeze(1) @ tokens).squeeze(1)
    rows = len(tokens)
    doubled = {name: _rows(value, rows, lambda x: torch.cat([x, x])) for name, value in features.items()}
    doubled["attention_mask"] = torch.cat([attention, kept])
    doubled["cls_token_embeddings"] = torch.cat([first, mean])  # [CLS] is no keyword: CLS pooling would see no change
    return doubled


def split_copies(features: dict[str, Any]) -> tuple[dict[str, Any], Tensor | None]:
    """Undo the doubling: the features of the B texts, and the sentence embeddings (B, D) of their masked copies."""
    if not features.pop(_COPIES, False):
        return features, None
    features.pop("cls_token_embeddings", None)
    embeddings = features["sentence_embedding"]  # (2B, D)
    rows = len(embeddings)
    halved = {name: _rows(value, rows, lambda x: x[: rows // 2]) for name, value in features.items()}
    return halved, embeddings[rows // 2 :]


def _rows(value: Any, rows: int, function: Callable[[Tensor], Tensor]) -> Any:
    """``function`` on a tensor with ``rows`` rows, or on each of a tuple or list of them; anything else as it is."""
    if isinstance(value, Tensor):
        return function(value) if value.ndim and value.shape[0] == rows else value
    if isinstance(value, (tuple, list)) and value and all(isinstance(item, Tensor) for item in value):
        return type(value)([_rows(item, rows, function) for item in value])
    return value


def refuse_training(module: nn.Module) -> None:
    """ValueError where gradients would be taken through a post-processed model in training mode."""
    if module.training and torch.is_grad_enabled():
        raise ValueError(
            "a model with RepAL attached cannot be trained: it is a post-processing of a finished encoder. Train "
            "RepALPostProcessor.detach(model) and attach RepAL again; to run it as it is, call model.eval() first"
        )


class JoinedParts(Module):
    """Ends a pass that wants both embeddings: (2B, D) -> (B, 2D)."""

    lambda_1 = 1.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Put the embedding of each masked copy beside that of its text."""
        features, redundant = split_copies(features)
        if redundant is not None:
            features["sentence_embedding"] = torch.cat([features["sentence_embedding"], redundant], dim=1)
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Never part of a saved model."""


def joined_modules(modules: Sequence[Any]) -> list[Any]:
    """``modules``, masked copies made whatever the weights, and both embeddings side by side at the end."""
    if not modules or not isinstance(modules[0], PartialMaskTransformer):
        raise ValueError("the model has no PartialMaskTransformer: build it with RepALPostProcessor.attach")
    joined = JoinedParts()
    first: PartialMaskTransformer = same_encoder(modules[0], PartialMaskTransformer)
    first.make_copies_for(joined)
    return [first, *modules[1:], joined]


def plain_modules(modules: Sequence[Any]) -> list[Any]:
    """``modules`` with a stock ``Transformer`` in place of the masking one."""
    if not modules or not isinstance(modules[0], PartialMaskTransformer):
        return list(modules)
    first = same_encoder(modules[0], Transformer)
    first.unpad_inputs = None
    return [first, *modules[1:]]
