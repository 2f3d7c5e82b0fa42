"""Frozen guide encoders, which see each sentence as they would see it alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from math import inf
from os import PathLike

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device, truncate_embeddings
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from st_extras.checks import shown
from st_extras.encoders.loading import load_encoder
from st_extras.encoders.recovered_texts import has_prompt, probe_rows, recovered_texts, token_rows
from st_extras.encoders.rows import Features
from st_extras.encoders.structure import unwrap


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
            or _probe_guide(frozen) != probe
        )
        # a prompt inside a chat template is not told, but what stands before the text then begins differently
        self._opening: list[int] = _common_beginning(probe[0]) if has_chat_template(trained) else []

    @property
    def encoder(self) -> SentenceTransformer:
        """The guide."""
        return self._hidden[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FrozenEncoder:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.encoder._apply(fn)
        return self

    def forward(self, features: Features) -> Tensor:
        """Return (B, D) embeddings of the features' sentences.

        Raises:
            ValueError: if the features are on another device.
        """
        guide, trained = self._hidden
        device = features["input_ids"].device
        if guide.device != device:
            raise ValueError(
                f"complementary_model is on {guide.device} and the batch on {device}: move the loss with "
                f".to({str(device)!r}), as the Trainer does, or the complementary model itself."
            )
        guide.eval()
        with torch.no_grad():
            if self.must_retokenize or has_prompt(features) or self._has_other_opening(features):
                texts = recovered_texts(trained, features, exact=self.same_vocabulary)
                features = batch_to_device(guide.preprocess(texts, prompt=default_prompt(guide)), device)
            embeddings: Tensor = guide(dict(features))["sentence_embedding"]
            return truncate_embeddings(embeddings, guide.truncate_dim)

    def _has_other_opening(self, features: Features) -> bool:
        """Whether there is a prompt inside the chat template."""
        length = len(self._opening)
        return length > 0 and any(row[:length] != self._opening for row in token_rows(features))


def default_prompt(model: SentenceTransformer) -> str | None:
    """Return the prompt that ``encode`` puts before texts if it is told nothing."""
    return model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None


def has_chat_template(model: SentenceTransformer) -> bool:
    """Whether Sentence Transformers wraps the model's texts in a chat template."""
    return "message" in model.modalities


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
        return complementary_model
    if not isinstance(complementary_model, str | PathLike):
        raise ValueError(
            "complementary_model must be a SentenceTransformer or its path or hub id, got "
            f"{shown(complementary_model)}."
        )
    return load_encoder(complementary_model, device=str(trained.device))


def _common_beginning(rows: list[list[int]]) -> list[int]:
    columns = zip(*rows, strict=False)
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]


def _probe_guide(guide: SentenceTransformer) -> tuple[list[list[int]], list[int] | None]:
    try:
        return probe_rows(guide, default_prompt(guide))
    except ValueError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"complementary_model must encode sentences without a task: give its Router a default_route ({reason})."
        ) from error
