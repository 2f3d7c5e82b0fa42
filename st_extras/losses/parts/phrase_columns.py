"""PaSeR's columns: the tokens around a phrase, and checks of the tokenizer and of the columns."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from st_extras.encoders import structure
from st_extras.encoders.rows import Features, content_mask, prompt_length

_ORDER = "the columns must be sentence, masked, phrase in this order, as PhraseMasking writes them"


def _written_brackets(tokenizer: Any) -> tuple[int, int] | None:
    """Return the special tokens that the tokenizer puts around every text, such as [CLS] and [SEP]; None without."""
    ids: list[int] = tokenizer("a")["input_ids"]
    return (ids[0], ids[-1]) if len(ids) > 2 and {ids[0], ids[-1]} <= set(tokenizer.all_special_ids) else None


def phrase_brackets(model: SentenceTransformer) -> tuple[int, int]:
    """Return the tokens that open and close a phrase: those around every text, such as [CLS] and [SEP].

    If the tokenizer does not write both (decoders), they are its tokens that begin and end a sequence. One that only
    ends it is used for both.

    Raises:
        ValueError: if the tokenizer has neither.
    """
    tokenizer: Any = structure.unwrap(model).tokenizer
    if (written := _written_brackets(tokenizer)) is not None:
        return written
    closing = tokenizer.sep_token_id if tokenizer.eos_token_id is None else tokenizer.eos_token_id
    opening = next((i for i in (tokenizer.bos_token_id, tokenizer.cls_token_id, closing) if i is not None), None)
    if opening is None or closing is None:
        raise ValueError(
            f"PaSeRLoss needs a tokenizer with a token that ends a sequence, got a {type(tokenizer).__name__} without "
            "one: set model.tokenizer.eos_token."
        )
    return opening, closing


def check_tokenizer(model: SentenceTransformer, on_missing_mask: str = "error") -> str:
    """Return ``on_missing_mask`` if the model's tokenizer can mask, open and close a phrase.

    Raises:
        ValueError: if the model has no transformer or several, its tokenizer has no token that ends a sequence, or
            there is no mask token and ``on_missing_mask`` is "error".
    """
    structure.token_embedding_dimension(model)
    alternatives = "in PhraseMasking too, and use mlm_weight=0"
    structure.check_mask_token(structure.unwrap(model), on_missing_mask, "phrases", alternatives)
    phrase_brackets(model)
    return on_missing_mask


def bracketed(model: nn.Module, phrase: Features) -> Features:
    """Return the phrases' input_ids and attention_mask, (B, T): opening token, content, closing token, padding.

    A prompt is left out. If the tokenizer wrote both brackets and the padding on the right, the rest is unchanged.
    """
    tokenizer = structure.unwrap(model).tokenizer
    if _written_brackets(tokenizer) is not None and tokenizer.padding_side == "right":
        begin = max(prompt_length(structure.unwrap(model), phrase), 1)  # after the opening token and the prompt
        read = ("input_ids", "attention_mask")  # the decoder reads nothing else
        return {key: torch.cat([phrase[key][:, :1], phrase[key][:, begin:]], dim=1) for key in read}
    opening, closing = phrase_brackets(structure.unwrap(model))
    content = content_mask(structure.unwrap(model), phrase)
    lengths = content.sum(dim=1, keepdim=True)  # (B, 1)
    words = phrase["input_ids"].gather(1, (~content).long().argsort(dim=1, stable=True))
    places = torch.arange(int(lengths.max()) + 2, device=words.device)
    ids = F.pad(words, (1, 1), value=opening)[:, : len(places)]
    return {"input_ids": torch.where(places > lengths, closing, ids), "attention_mask": (places < lengths + 2).long()}


def check_phrase_columns(columns: list[Features], model: nn.Module, max_length: int, *, with_base: bool) -> Tensor:
    """Check the columns of a batch, and return the rows whose masked phrase lies within the encoder's length.

    Args:
        columns: the tokenized columns of a batch: the sentence first, masked and phrase last.
        model: the encoder.
        max_length: most tokens of a phrase, opening and closing token included.
        with_base: allow columns of a base loss between the sentence and the others.

    Returns:
        (B,) bool; False if ``max_seq_length`` cut off the masks (without a mask token: the place of the deletion).

    Raises:
        ValueError: if columns are missing or in another order, or a phrase is empty or too long.
    """
    if len(columns) < 3 or (len(columns) > 3 and not with_base):
        raise ValueError(f"PaSeRLoss got {len(columns)} columns: {_ORDER}.")
    sentence, masked, phrase = columns[0], *columns[-2:]
    for name, column in (("sentence", sentence), ("masked", masked), ("phrase", phrase)):
        if "input_ids" not in column or column["input_ids"].ndim != 2 or "attention_mask" not in column:
            raise ValueError(f"PaSeRLoss needs (B, L) input_ids in column {name!r}: use unpad_inputs=False.")
    encoder = structure.unwrap(model)
    mask_token, mask_id = encoder.tokenizer.mask_token, encoder.tokenizer.mask_token_id
    content = content_mask(structure.unwrap(model), phrase)
    bare = bracketed(model, phrase)
    lengths = [column["attention_mask"].sum(dim=1) for column in (sentence, masked, bare)]
    shown = _differ(sentence, masked) if mask_id is None else (masked["input_ids"] == mask_id).any(dim=1)
    holds = torch.zeros_like(shown) if mask_id is None else phrase["input_ids"] == mask_id
    cut = lengths[1] >= (encoder.max_seq_length or torch.inf)
    lacks = (
        f"a row without {mask_token}" if mask_id is not None else "a row equal to its sentence, with no phrase deleted"
    )
    wrong = {
        f"'phrase' holds {mask_token}: {_ORDER}": holds.any(),
        f"'masked' has {lacks}: {_ORDER}": ~(shown | cut).all(),
        f"'phrase' is longer than the sentences: {_ORDER}": lengths[2].sum() > lengths[0].sum() + len(shown),
        "'phrase' has an empty phrase: leave such rows out, as PhraseMasking does": ~content.any(dim=1).all(),
    }
    for problem, is_found in zip(wrong, torch.stack(list(wrong.values())).tolist(), strict=True):
        if is_found:
            raise ValueError(f"Column {problem}.")
    if (width := bare["input_ids"].size(1)) > max_length:
        raise ValueError(
            f"A phrase must have at most {max_length} tokens, as many as the encoder reads or 512, got {width}: leave "
            "its row out."
        )
    return shown


def _differ(first: Features, second: Features) -> Tensor:
    """Return which rows of two columns have different tokens, (B,) bool, on whichever side their padding is."""
    width = max(column["input_ids"].size(1) for column in (first, second))
    rows = []
    for column in (first, second):
        present = column["attention_mask"].bool()
        order = (~present).long().argsort(dim=1, stable=True)
        ids = column["input_ids"].masked_fill(~present, -1).gather(1, order)
        rows.append(F.pad(ids, (0, width - ids.size(1)), value=-1))
    return (rows[0] != rows[1]).any(dim=1)
