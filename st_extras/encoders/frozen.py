"""Frozen guide encoders, which see each sentence as they would see it alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from os import PathLike
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device, truncate_embeddings
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_count, shown
from st_extras.encoders.distributed import device_pool
from st_extras.encoders.loading import load_encoder
from st_extras.encoders.padding import fix_padding_side
from st_extras.encoders.rows import Features, reported_prompt_length, token_rows
from st_extras.encoders.structure import content_mask, unwrap
from st_extras.text.corpus import check_sentence

# the empty one shows what a chat template puts before a text; the others show case, accents, padding and special tokens
_PROBE = ["", "b", "A Café of the 2"]
_FRAME = ("prompt_length", "modality")  # features that describe the tokens around the sentences


class FrozenEncoder(nn.Module):
    """A guide: a SentenceTransformer in evaluation mode, without gradients.

    It sees a sentence as it would see it alone: without the trained model's prompt and with its own default prompt,
    padding side, special tokens, chat template and ``max_seq_length``. If its tokenizer treats texts as the trained
    model's does, it gets the token ids as they are; otherwise the texts are recovered from them. It does not see what
    the trained model's ``max_seq_length`` cuts off.

    It follows the loss to another device or dtype, but is not a registered submodule: the optimizer does not see it,
    and checkpoints do not contain it.

    Args:
        model: a SentenceTransformer or the path or hub id of one.
        trained_model: the model whose features it will be given.

    Attributes:
        name: where the guide was loaded from, or what it is if that is not known; for the model card.
        must_retokenize: whether the two treat texts differently, so that the guide gets recovered texts.

    Raises:
        ValueError: if the guide is the trained model, or one of the two has no tokenizer of the transformers library;
            if the guide needs a task for each text.
    """

    def __init__(self, model: SentenceTransformer | str | PathLike[str], trained_model: nn.Module) -> None:
        super().__init__()
        trained = unwrap(trained_model)
        if model is trained:
            raise ValueError('complementary_model is the trained model itself: pass "self" for self-weighting.')
        frozen = load_guide(model, trained)
        for role, candidate in (("model", trained), ("complementary_model", frozen)):
            if not isinstance(candidate.tokenizer, PreTrainedTokenizerBase):
                raise ValueError(
                    f"{role} must have a transformers tokenizer, got {type(candidate.tokenizer).__name__}: use "
                    'complementary_model="self".'
                )
        self.name = guide_name(model)
        self._hidden = [frozen, trained]  # in a list, so that nn.Module does not register them
        self.same_vocabulary = frozen.tokenizer.get_vocab() == trained.tokenizer.get_vocab()
        probe = probe_rows(trained)
        self.must_retokenize = (
            not self.same_vocabulary
            or (frozen.max_seq_length or inf) < (trained.max_seq_length or inf)  # None: no limit
            or probe_rows(frozen, default_prompt(frozen)) != probe
        )
        # features do not mark a prompt inside a chat template, but then a row begins with other tokens
        columns = zip(*probe[0], strict=False) if "message" in trained.modalities else ()
        self._opening = [ids[0] for ids in takewhile(lambda ids: len(set(ids)) == 1, columns)]

    @property
    def encoder(self) -> SentenceTransformer:
        """The guide."""
        return self._hidden[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FrozenEncoder:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.encoder._apply(fn)
        return self

    def forward(self, features: Features) -> Tensor:
        """Return (B, D) embeddings of the features' sentences, which are on the guide's device."""
        guide, trained = self._hidden
        guide.eval()
        opening = self._opening  # another one: there is a prompt inside the chat template
        other = bool(opening) and any(row[: len(opening)] != opening for row in token_rows(features))
        with torch.no_grad():
            if self.must_retokenize or other or reported_prompt_length(features):
                texts = recovered_texts(trained, features, exact=self.same_vocabulary)
                features = batch_to_device(guide.preprocess(texts, prompt=default_prompt(guide)), guide.device)
            embeddings: Tensor = guide(dict(features))["sentence_embedding"]
            return truncate_embeddings(embeddings, guide.truncate_dim)


@dataclass(frozen=True)
class TextGuide:
    """Encodes texts with a guide as a loss does in training, where the guide gets token ids.

    Of a text that the trained model's ``max_seq_length`` cuts, a guide of the same vocabulary sees what is left.

    Attributes:
        guide: the guide.
        model: the model to be trained.
        prompt: the prompt of the training.
        batch_size: texts per call.
        options: further arguments of the guide's ``encode``.
        frozen: what sees the token ids; None if the vocabularies differ.
    """

    guide: SentenceTransformer
    model: SentenceTransformer
    prompt: str | None
    batch_size: int
    options: Mapping[str, Any]
    frozen: FrozenEncoder | None

    @classmethod
    @contextmanager
    def open(
        cls, guide: Any, model: SentenceTransformer, prompt: str | None, batch_size: int, encode_options: Any
    ) -> Iterator[TextGuide]:
        """Load the guide, if it is a path or hub id, and the pool of processes that the options ask for.

        Raises:
            ValueError: if one of the arguments is not what :class:`~st_extras.encoders.EmbeddingTable` takes.
        """
        batch_size = check_count("batch_size", batch_size, at_least=1)
        allowed = {"device", "pool", "chunk_size"}
        if not isinstance(encode_options, Mapping | None) or set(encode_options or ()) - allowed:
            raise ValueError(
                "encode_options must be a dictionary of device, pool and chunk_size or None, got "
                f"{shown(encode_options)}: set the guide's prompt as its default prompt."
            )
        if prompt is not None:
            check_sentence(prompt, "prompt")
        loaded, frozen = load_guide(guide, model), None
        if isinstance(loaded.tokenizer, PreTrainedTokenizerBase):
            frozen = FrozenEncoder(copy.copy(loaded), model)  # a copy of the shell: the guide may be the model itself
            frozen = frozen if frozen.same_vocabulary else None
        with device_pool(loaded, encode_options or {}) as options:
            yield cls(loaded, model, prompt, batch_size, options, frozen)

    def keys(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, as the trained model's tokenizer gives them."""
        batches = (list(texts[start : start + self.batch_size]) for start in range(0, len(texts), self.batch_size))
        return [key for batch in batches for key in token_rows(self.model.preprocess(batch, prompt=self.prompt))]

    def _encoded(self, texts: list[str]) -> Tensor:
        options: dict[str, Any] = {"batch_size": self.batch_size, "show_progress_bar": False, "convert_to_tensor": True}
        embeddings: Tensor = self.guide.encode(texts, **options, **self.options)
        return embeddings.clone()  # of a tensor of inference mode, which cannot be changed

    def embed(self, texts: list[str], keys: list[list[int]]) -> Tensor:
        """Return the guide's embeddings, (N, D), on the guide's device."""
        embeddings = self._encoded(texts)
        if self.frozen is None:
            return embeddings
        limit = self.model.max_seq_length or inf
        cut = [row for row, key in enumerate(keys) if len(key) >= limit]
        for start in range(0, len(cut), self.batch_size):
            rows = cut[start : start + self.batch_size]
            features = self.model.preprocess([texts[row] for row in rows], prompt=self.prompt)
            embeddings[rows] = self.frozen(batch_to_device(features, self.guide.device))
        return embeddings


def default_prompt(model: SentenceTransformer) -> str | None:
    """Return the prompt that ``encode`` puts before texts by default; None if there is none."""
    return model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None


def guide_name(guide: SentenceTransformer | str | PathLike[str]) -> str:
    """Return where a guide was loaded from, or what it is if that is not known."""
    if not isinstance(guide, SentenceTransformer):
        return str(guide)
    body = guide.transformers_model
    return getattr(body.config if body else None, "name_or_path", "") or (
        f"a {type(guide).__name__} over {type(body or guide[0]).__name__}"
    )


def load_guide(
    complementary_model: SentenceTransformer | str | PathLike[str], trained: SentenceTransformer
) -> SentenceTransformer:
    """Return the guide, loaded to the trained model's device if it is a path or hub id.

    Raises:
        ValueError: if it is neither an encoder nor a path of one, or cannot be loaded.
    """
    if isinstance(complementary_model, SentenceTransformer):
        fix_padding_side(complementary_model)
        return complementary_model
    if not isinstance(complementary_model, str | PathLike):
        raise ValueError(
            f"complementary_model must be an encoder or the path of one, got {shown(complementary_model)}."
        )
    return load_encoder(complementary_model, device=str(trained.device))


def recovered_texts(model: SentenceTransformer, features: Features, *, exact: bool) -> list[str]:
    """Decode the content tokens of each sentence, without prompt, chat template and special tokens.

    Args:
        model: the model whose tokenizer made the features.
        features: what it gave for one column.
        exact: keep [UNK] and the spaces of the tokens, so that a tokenizer of the same vocabulary finds the same ids.
    """
    rows = [torch.tensor(row, dtype=torch.long) for row in token_rows(features)]
    padded = {
        "input_ids": pad_sequence(rows, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in rows], batch_first=True),
    }
    framed = reported_prompt_length(features) or features.get("modality") == "message"
    content = content_mask(model, padded | {key: features[key] for key in _FRAME if key in features})
    kept = [ids[mask].tolist() for ids, mask in zip(padded["input_ids"], content, strict=True)]
    options = {"clean_up_tokenization_spaces": False} if exact else {}
    texts = unwrap(model).tokenizer.batch_decode(kept, skip_special_tokens=not exact, **options)
    # after a prompt, byte-level and SentencePiece tokenizers put the space before a word into its first token
    return [text.strip() for text in texts] if framed else texts


def probe_rows(model: SentenceTransformer, prompt: str | None = None) -> tuple[list[list[int]], list[int] | None]:
    """Return the token ids of three short texts, and their attention mask (None if they are flattened).

    Two models that give the same treat all texts alike: special tokens, letter case, templates, padding side.
    """
    features = model.preprocess(_PROBE, prompt=prompt)
    mask = features.get("attention_mask")
    return token_rows(features), None if mask is None else mask.flatten().tolist()
