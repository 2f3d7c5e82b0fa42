"""Frozen guide encoders, which see each sentence as they would see it alone."""

from __future__ import annotations

import json
from math import inf
from os import PathLike
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device, truncate_embeddings
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from st_extras.checks import shown
from st_extras.encoders.loading import load_encoder
from st_extras.encoders.rows import Features, content_mask, reported_prompt_length, token_rows
from st_extras.encoders.structure import fix_padding_side, unwrap

_FRAME = ("prompt_length", "modality")  # features that describe the tokens around the sentences


class FrozenEncoder(nn.Module):
    """A guide: a SentenceTransformer in evaluation mode, without gradients.

    It sees a sentence as it would see it alone: without the trained model's prompt (unless that stands inside a chat
    template) and with its own default prompt, padding side, special tokens, chat template and ``max_seq_length``. If
    its tokenizer equals the trained model's, it gets the token ids as they are; otherwise the texts are recovered from
    them, without unknown tokens. It does not see what the trained model's ``max_seq_length`` cuts off.

    It goes where the features are, and keeps its precision. It is not a registered submodule: the optimizer does not
    see it, and checkpoints do not contain it.

    Args:
        complementary_model: the guide, a SentenceTransformer or the path or hub id of one.
        model: the trained model, whose features it will be given.

    Attributes:
        name: where the guide was loaded from, or what it is if that is not known; for the model card.
        must_retokenize: whether the two tokenize texts differently, so that the guide gets recovered texts.

    Raises:
        ValueError: if the guide is the trained model or no encoder, or the trained model has no tokenizer of the
            transformers library.
    """

    def __init__(self, complementary_model: SentenceTransformer | str | PathLike[str], model: nn.Module) -> None:
        super().__init__()
        trained = unwrap(model)
        if complementary_model is trained:
            raise ValueError(
                "complementary_model must be another encoder than the trained one, got that one: pass "
                '"self" to the loss.'
            )
        if not isinstance(trained.tokenizer, PreTrainedTokenizerBase):
            raise ValueError(
                f"model must have a transformers tokenizer, got {type(trained.tokenizer).__name__}: use "
                'complementary_model="self".'
            )
        guide = complementary_model
        if isinstance(guide, str | PathLike):
            self.name = str(guide)
            guide = load_encoder(guide, device=str(trained.device))
        elif isinstance(guide, SentenceTransformer):
            self.name = _name_of(guide)
        else:
            raise ValueError(f"complementary_model must be an encoder or the path of one, got {shown(guide)}.")
        for encoder in (guide, trained):
            fix_padding_side(encoder)
        self._hidden = [guide, trained]  # in a list, so that nn.Module does not register them
        self.must_retokenize = (
            bool(_default_prompt(guide))
            or (guide.max_seq_length or inf) < (trained.max_seq_length or inf)  # None: no limit
            or (tokenization := _tokenization(guide)) is None
            or tokenization != _tokenization(trained)
        )

    @property
    def encoder(self) -> SentenceTransformer:
        """The guide."""
        return self._hidden[0]

    def forward(self, features: Features) -> Tensor:
        """Return (B, D) embeddings of the features' sentences, on the features' device, to which the guide moves."""
        guide, trained = self._hidden
        guide.eval()
        if guide.device != features["input_ids"].device:
            guide.to(features["input_ids"].device)
        is_padded = "attention_mask" in features
        with torch.no_grad():
            if self.must_retokenize or not is_padded or reported_prompt_length(features):
                texts = recover_texts(trained, features)
                features = batch_to_device(guide.preprocess(texts, prompt=_default_prompt(guide)), guide.device)
            embeddings: Tensor = guide(dict(features))["sentence_embedding"]
            return truncate_embeddings(embeddings, guide.truncate_dim)


def _default_prompt(model: SentenceTransformer) -> str | None:
    """Return the prompt that ``encode`` puts before texts by default; None if there is none."""
    return model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None


def _name_of(guide: SentenceTransformer) -> str:
    body = guide.transformers_model
    return getattr(body.config if body else None, "name_or_path", "") or (
        f"a {type(guide).__name__} over {type(body or guide[0]).__name__}"
    )


def _tokenization(model: SentenceTransformer) -> dict[str, Any] | None:
    """Return all that decides which token ids a model makes of a text without a prompt.

    None where it is not known: a chat template is around the texts, or the tokenizer is none of the tokenizers library.
    """
    tokenizer: Any = model.tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or "message" in model.modalities:
        return None
    settings: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return settings | {"padding": None, "truncation": None}  # those of the last call


def recover_texts(model: SentenceTransformer, features: Features) -> list[str]:
    """Decode the content tokens of each sentence, without prompt, chat template and special tokens.

    Args:
        model: the model whose tokenizer made the features.
        features: what it gave for one column.
    """
    rows = [torch.tensor(row, dtype=torch.long) for row in token_rows(features)]
    padded = {
        "input_ids": pad_sequence(rows, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in rows], batch_first=True),
    }
    framed = reported_prompt_length(features) or features.get("modality") == "message"
    content = content_mask(model, padded | {key: features[key] for key in _FRAME if key in features})
    kept = [ids[mask].tolist() for ids, mask in zip(padded["input_ids"], content, strict=True)]
    texts = model.tokenizer.batch_decode(kept, skip_special_tokens=True)
    # after a prompt, byte-level and SentencePiece tokenizers put the space before a word into its first token
    return [text.strip() for text in texts] if framed else texts
