"""The input module of RepAL: it encodes each text twice, once unchanged and once with its keywords masked."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import Transformer

from st_extras.checks import check_choice, check_instance
from st_extras.modules.encoder_class import check_importable, class_path, import_encoder_class, shared_module
from st_extras.modules.keyword_tokens import check_offsets, tokens_of_spans
from st_extras.modules.keywords_file import KEYWORDS_FILE, read_keywords, write_keywords
from st_extras.modules.masked_copies import COPIES, MaskedCopyReader, refuse_training, with_pooled_copies
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
            the attention mask, so that f(x*) is only approximated, at about the usual cost. "cls" and "lasttoken"
            pooling then see the mean of the tokens that are left (``MaskedCopyPooling``).
        on_missing_mask: what to do if the tokenizer has no mask token: "error", or "delete" to delete the keywords
            instead.
        **kwargs: as for ``Transformer``.

    Works with:
        Any encoder that starts with a ``Transformer``, a user's subclass of it (whose behaviour is kept) or a Router
        over one, with any pooling. Prompts and chat templates are never masked. Unpadded (flattened) inputs are turned
        off. ``redundancy="pooled"`` needs a fast tokenizer, and a chat template that changes no more of a text than the
        white space around it. Inputs must be strings. A model with masked copies cannot be trained; a callable
        extractor and a subclass that cannot be imported cannot be saved.

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

    config_keys: list[str] = [*Transformer.config_keys, "redundancy", "on_missing_mask", "encoder_class"]  # noqa: RUF012
    encoder_type: type[Transformer] = Transformer
    """What this class makes masked copies for: ``Transformer`` or a subclass of it."""

    def __init__(
        self,
        model_name_or_path: str,
        *,
        keywords: Any = "jieba",
        redundancy: str = "encoder",
        on_missing_mask: str = "error",
        **kwargs: Any,
    ) -> None:
        kwargs.pop("encoder_class", None)  # in a saved model's settings; this class is made for that one
        super().__init__(model_name_or_path, **kwargs)
        self._configure(build_extractor(keywords), redundancy, on_missing_mask)

    @staticmethod
    def share(
        encoder: Transformer, extractor: Extractor, redundancy: str, on_missing_mask: str
    ) -> PartialMaskTransformer:
        """Turn an encoder into a masking one that shares its weights and tokenizer, and keeps what a subclass does.

        Raises:
            ValueError: if a setting does not fit the encoder.
        """
        shared: PartialMaskTransformer = shared_module(encoder, masking_class(type(encoder)))
        shared._configure(extractor, redundancy, on_missing_mask)
        return shared

    def _configure(self, extractor: Extractor, redundancy: str, on_missing_mask: str) -> None:
        check_choice("redundancy", redundancy, _REDUNDANCY)
        check_choice("on_missing_mask", on_missing_mask, _ON_MISSING_MASK)
        tokenizer: Any = self.tokenizer
        if tokenizer is None:
            raise ValueError("model must have a tokenizer, got an encoder without one.")
        if redundancy == "encoder" and on_missing_mask == "error" and tokenizer.mask_token is None:
            raise ValueError(
                f"the tokenizer must have a mask token to put in place of keywords, got a {type(tokenizer).__name__} "
                'with no mask token: pass on_missing_mask="delete" to delete the keywords instead.'
            )
        if redundancy == "pooled":
            check_offsets(self)
        self.extractor, self.redundancy, self.on_missing_mask = extractor, redundancy, on_missing_mask
        self._given_unpad_inputs = self.unpad_inputs
        self.unpad_inputs = False
        self.make_copies_for(None)

    def plain_encoder(self) -> Transformer:
        """Return the encoder that this one was made from, its setting of ``unpad_inputs`` too; weights are shared."""
        plain: Transformer = shared_module(self, self.encoder_type)
        plain.unpad_inputs = self._given_unpad_inputs
        return plain

    @property
    def card_settings(self) -> dict[str, Any]:
        """The settings that the model card names."""
        known = hasattr(self.extractor, "config")
        name = extractor_config(self.extractor)["name"] if known else "a function of the user's"
        return {"keywords": name, "redundancy": self.redundancy, "on_missing_mask": self.on_missing_mask}

    @property
    def encoder_class(self) -> str:
        """Where to import the class of the encoder from."""
        return class_path(self.encoder_type)

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
        spans = [keyword_spans(text, self.extractor) for text in texts]
        tokenize = functools.partial(super().preprocess, texts, prompt=prompt)
        features, keyword_tokens = tokens_of_spans(self, tokenize, texts, spans, prompt, kwargs)
        return {**features, _KEYWORD_TOKENS: keyword_tokens}

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

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings to save, with the encoder's own setting of ``unpad_inputs``."""
        config: dict[str, Any] = super().get_config_dict()
        config.pop("unpad_inputs", None)
        return config if self._given_unpad_inputs is None else {**config, "unpad_inputs": self._given_unpad_inputs}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Save the encoder as its own class does, and the keyword extractor beside it.

        Raises:
            ValueError: if the extractor cannot be saved, or the encoder's class could not be imported again.
        """
        keywords = extractor_config(self.extractor)
        check_importable(self.encoder_type)
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
            check_instance("encoder_class", config.setdefault("encoder_class", class_path(Transformer)), str)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        return config

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> PartialMaskTransformer:
        """Load the encoder and its keyword extractor from a folder or the Hub.

        Raises:
            ValueError: if the file of keywords is missing, broken, of another version or holds a wrong setting; or the
                encoder is of a class outside Sentence Transformers, without ``trust_remote_code=True``.
        """
        hub = hub_options(kwargs)
        extractor = read_keywords(find_file(cls, KEYWORDS_FILE, model_name_or_path, hub))
        name = cls.load_config(model_name_or_path, **hub)["encoder_class"]
        trusted = kwargs.get("trust_remote_code", False)
        encoder_type = import_encoder_class(name, model_name_or_path, trusted, hub)
        kind = masking_class(encoder_type)
        module = super(PartialMaskTransformer, kind).load(model_name_or_path, *args, **kwargs)
        module.extractor = extractor
        return module

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle an instance of a class that ``masking_class`` made by what it was made from."""
        if type(self) is PartialMaskTransformer:
            return super().__reduce_ex__(protocol)
        return _without_state, (self.encoder_type,), self.__dict__


@functools.cache
def masking_class(encoder_type: type[Transformer]) -> type[PartialMaskTransformer]:
    """Return the class that makes masked copies and otherwise does what ``encoder_type`` does.

    It has the name of ``PartialMaskTransformer``, under which Sentence Transformers lists it in a saved model.
    """
    if encoder_type is Transformer:
        return PartialMaskTransformer
    keys = dict.fromkeys([*encoder_type.config_keys, *PartialMaskTransformer.config_keys])
    members = {"__module__": __name__, "encoder_type": encoder_type, "config_keys": list(keys)}
    return type(PartialMaskTransformer.__name__, (PartialMaskTransformer, encoder_type), members)


def _without_state(encoder_type: type[Transformer]) -> PartialMaskTransformer:
    kind = masking_class(encoder_type)
    return kind.__new__(kind)
