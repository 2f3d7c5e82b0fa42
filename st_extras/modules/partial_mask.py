"""The input module of RepAL: it encodes each text twice, once unchanged and once with its keywords masked."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn

from st_extras.checks import check_choice
from st_extras.encoders.structure import check_mask_token
from st_extras.modules.masked_pooling import POOLED, MaskedCopyPooling, check_offsets, copy_pooling, tokens_of_spans
from st_extras.modules.pipeline import OF_THE_HUB, shared_module
from st_extras.text.keywords import Extractor, build_extractor, extractor_config, keyword_spans
from st_extras.text.words import replace_spans

logger = logging.getLogger(__name__)

_COPIES = "masked_copies"
"""Feature key: present if the second half of the rows are masked copies of the first half."""
_KEYWORD_TOKENS = "keyword_tokens"
"""Feature key: (B, L) bool, the tokens of keywords, for ``redundancy="pooled"``."""
_KEYWORDS_FILE = "repal_keywords.json"
_WATCHED = 1000  # texts whose keywords are counted


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
            the attention mask, so that f(x*) is only approximated, at about the cost of one pass. "cls" and "lasttoken"
            pooling then see the mean of the tokens that are left (``MaskedCopyPooling``).
        on_missing_mask: what to do if the tokenizer has no mask token: "error", or "delete" to delete the keywords
            instead.
        **kwargs: as for ``Transformer``.

    Works with:
        Any encoder that starts with a ``Transformer``, with any pooling. Prompts and chat templates are never masked.
        Inputs are padded, never flattened. ``redundancy="pooled"`` needs a fast tokenizer. Inputs must be strings.
        Refused: a subclass of ``Transformer``, training, saving with a callable extractor, and ``redundancy="pooled"``
        with a prompt template or a chat template.

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
        super().__init__(model_name_or_path, **kwargs)
        self.configure(build_extractor(keywords), redundancy, on_missing_mask)

    def configure(self, extractor: Extractor, redundancy: str, on_missing_mask: str) -> None:
        """Set how the copies are made.

        Raises:
            ValueError: if a setting does not fit the encoder.
        """
        check_choice("redundancy", redundancy, ("encoder", "pooled"))
        if self.tokenizer is None:
            raise ValueError("model must have a tokenizer, got an encoder without one.")
        if redundancy == "pooled":
            check_choice("on_missing_mask", on_missing_mask, ("error", "delete"))
            check_offsets(self)
        else:
            check_mask_token(self, on_missing_mask, "keywords", 'or use redundancy="pooled"')
        self.extractor, self.redundancy, self.on_missing_mask = extractor, redundancy, on_missing_mask
        self.make_copies_for(None)

    @property
    def masking(self) -> dict[str, Any]:
        """The settings of the copies, for the model card."""
        known = hasattr(self.extractor, "config")
        name = extractor_config(self.extractor)["name"] if known else "a function of the user's"
        return {"keywords": name, "redundancy": self.redundancy, "on_missing_mask": self.on_missing_mask}

    def on_model_ready(self, model: Any) -> None:
        """Find the module that reads the masked copies; without one, none are made."""
        self.make_copies_for(next((part for part in model if hasattr(part, "wants_masked_copies")), None))

    def make_copies_for(self, reader: Any) -> None:
        """Make masked copies whenever ``reader.wants_masked_copies`` is true, or never if it is None."""
        object.__setattr__(self, "_reader", reader)  # not a child of this module: it comes later in the pipeline

    def partial_mask(self, text: str) -> str:
        """Return x*: ``text`` with each keyword replaced by the mask token, or deleted if there is no mask token."""
        mask_token = getattr(self.tokenizer, "mask_token", None) or ""
        return replace_spans(text, keyword_spans(text, self.extractor), mask_token)

    def watch_keywords(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield ``texts``, and warn if most of the first thousand have no keyword, or nothing but keywords.

        Without keywords x* = x, and the sentence term subtracts a share of f(x) itself; with nothing else, it is the
        same for every text.
        """
        seen = without = only = 0
        for text in texts:
            if seen < _WATCHED and any(map(str.isalnum, text)):
                spans = keyword_spans(text, self.extractor)
                without += not spans
                only += bool(spans) and not any(map(str.isalnum, replace_spans(text, spans, "")))
                seen += 1
            yield text
        if max(without, only) > seen / 2:
            logger.warning(
                "Of %d texts, %.0f %% are without a keyword, so that they equal their masked copies, and %.0f %% are "
                "nothing but keywords: give keywords=TfidfKeywords.fit(corpus, max_df=0.05), which leaves frequent "
                "words, or a function that knows the language, or use the corpus term alone, lambda_1=0.",
                seen,
                100 * without / seen,
                100 * only / seen,
            )

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
        if self.redundancy == "encoder":
            texts = [*inputs, *map(self.partial_mask, inputs)]
            return {**super().preprocess(texts, prompt=prompt, **kwargs), _COPIES: True}
        spans = [keyword_spans(text, self.extractor) for text in inputs]
        tokenize = functools.partial(super().preprocess, list(inputs), prompt=prompt)
        features, keyword_tokens = tokens_of_spans(tokenize, spans, prompt, kwargs)
        return {**features, _KEYWORD_TOKENS: keyword_tokens}

    def _should_flatten_inputs(self, *args: Any, **kwargs: Any) -> bool:
        """Return False: copies are rows. ``unpad_inputs=False`` would be saved, and would outlive RepAL.

        Sentence Transformers names this method for subclasses to override.
        """
        return False

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Encode; for ``redundancy="pooled"``, repeat the encoded rows without the keywords' tokens."""
        copies = features.pop(_COPIES, False)
        keyword_tokens = features.pop(_KEYWORD_TOKENS, None)
        features = super().forward(features, **kwargs)
        if keyword_tokens is not None:
            features = _with_pooled_copies(features, keyword_tokens)
        if copies:
            features[_COPIES] = True
        return features

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Save the encoder, and the keyword extractor beside it.

        Raises:
            ValueError: if the extractor cannot be saved.
        """
        keywords = extractor_config(self.extractor)
        super().save(output_path, *args, safe_serialization=safe_serialization, **kwargs)
        Path(output_path, _KEYWORDS_FILE).write_text(json.dumps(keywords, ensure_ascii=False, indent=2), "utf8")

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> PartialMaskTransformer:
        """Load the encoder and its keyword extractor from a folder or the Hub.

        Raises:
            ValueError: if the file of keywords is missing, or holds a wrong setting.
        """
        hub = {name: kwargs[name] for name in OF_THE_HUB if name in kwargs}
        path = cls.load_file_path(model_name_or_path, _KEYWORDS_FILE, **hub)
        if path is None:
            raise ValueError(f"{model_name_or_path} must contain {_KEYWORDS_FILE}: save the whole model again.")
        extractor = build_extractor(json.loads(Path(path).read_text("utf8")))
        module = super().load(model_name_or_path, *args, **kwargs)
        module.extractor = extractor
        return module


# --- modules that make masked copies, in place of a model's own ---


def masking_modules(
    modules: Sequence[nn.Module], extractor: Extractor, redundancy: str, on_missing_mask: str
) -> list[nn.Module]:
    """Return ``modules`` with an encoder that makes masked copies in place of theirs.

    Raises:
        ValueError: if the modules do not start with a ``Transformer``, or a setting does not fit them.
    """
    first = next(iter(modules), None)
    if type(first) is not Transformer:
        raise ValueError(
            f"model must start with Sentence Transformers' own Transformer module, got {type(first).__name__}: use "
            "whitening or all_but_the_top, which work on any embeddings."
        )
    masking = shared_module(first, PartialMaskTransformer)
    masking.configure(extractor, redundancy, on_missing_mask)
    if redundancy == "pooled":
        modules = [copy_pooling(module) if isinstance(module, Pooling) else module for module in modules]
    return [masking, *modules[1:]]


def masking_encoder(modules: Sequence[nn.Module]) -> PartialMaskTransformer | None:
    """Return the first of the modules if it makes masked copies; None if it does not."""
    first = next(iter(modules), None)
    return first if isinstance(first, PartialMaskTransformer) else None


def plain_modules(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Return ``modules`` as they were before ``masking_modules``."""

    def plain(module: Any) -> Any:
        if isinstance(module, PartialMaskTransformer):
            return shared_module(module, Transformer)
        if isinstance(module, MaskedCopyPooling):
            return Pooling(module.embedding_dimension, module.pooling_mode, module.include_prompt)
        return module

    return [plain(module) for module in modules]


def joined_modules(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Return ``modules`` with masked copies always on, ending in both embeddings side by side.

    Raises:
        ValueError: if the modules do not start with a ``PartialMaskTransformer``.
    """
    first, joined = masking_encoder(modules), _JoinedParts()
    if first is None:
        raise ValueError("the model has no PartialMaskTransformer: build it with RepALPostProcessor.attach.")
    always = shared_module(first, PartialMaskTransformer)
    always.make_copies_for(joined)
    return [always, *modules[1:], joined]


class _JoinedParts(nn.Module):
    """Last module of a pass that returns both embeddings of a text: (2B, D) -> (B, 2D)."""

    wants_masked_copies = True

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Put the embedding of each masked copy beside that of its text."""
        features, redundant = split_copies(features)
        features["sentence_embedding"] = torch.cat([features["sentence_embedding"], redundant], dim=1)
        return features


# --- the rows of a batch: texts, then their copies ---


def _with_pooled_copies(features: dict[str, Any], keyword_tokens: Tensor) -> dict[str, Any]:
    """Repeat each of B encoded rows, with its keywords' tokens (B, L) removed from the mask of the second one.

    A row that would have no token left keeps them all.
    """
    attention = features["attention_mask"]  # (B, L)
    kept = attention * ~keyword_tokens.to(attention.device)
    kept = torch.where(kept.any(dim=1, keepdim=True), kept, attention)
    doubled = _map_rows(features, len(attention), lambda x: torch.cat([x, x]))
    return {**doubled, "attention_mask": torch.cat([attention, kept]), POOLED: True, _COPIES: True}


def split_copies(features: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Undo the doubling: return the features of the B texts, and the embeddings (B, D) of their copies, or None."""
    if not features.pop(_COPIES, False):
        return features, None
    features.pop(POOLED, None)
    embeddings = features["sentence_embedding"]  # (2B, D)
    rows = len(embeddings)
    return _map_rows(features, rows, lambda x: x[: rows // 2]), embeddings[rows // 2 :]


def _map_rows(value: Any, rows: int, function: Callable[[Tensor], Tensor]) -> Any:
    """Apply ``function`` to each tensor of ``rows`` rows in a dict, list or tuple; leave the rest unchanged."""
    if isinstance(value, Tensor):
        return function(value) if value.ndim and value.shape[0] == rows else value
    if isinstance(value, dict):
        return {name: _map_rows(part, rows, function) for name, part in value.items()}
    if isinstance(value, (tuple, list)) and value and all(isinstance(item, Tensor) for item in value):
        return type(value)([_map_rows(item, rows, function) for item in value])
    return value
