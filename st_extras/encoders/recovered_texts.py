"""From token ids back to sentences: what a loss knows of them, as it sees no texts."""

from __future__ import annotations

from itertools import pairwise

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from st_extras.encoders.rows import Features
from st_extras.encoders.structure import content_mask, unwrap

# the empty one shows what a chat template puts before a text; the others show case, accents, padding and special tokens
_PROBE = ["", "b", "A Café of the 2"]
_FRAME = ("prompt_length", "modality")  # what features tell of the tokens around the sentences


def token_rows(features: Features) -> list[list[int]]:
    """Return the token ids of each sentence, without padding; the features may be flattened (``unpad_inputs``)."""
    ids = features["input_ids"]
    if "cu_seq_lens_q" in features:
        starts = features["cu_seq_lens_q"].tolist()
        flat = ids.flatten().tolist()
        return [flat[start:end] for start, end in pairwise(starts)]
    pairs = zip(ids.tolist(), features["attention_mask"].tolist(), strict=True)
    return [[token for token, kept in zip(row, mask, strict=True) if kept] for row, mask in pairs]


def has_prompt(features: Features) -> bool:
    """Whether a prompt stands before the sentences; one inside a chat template is not told."""
    length = features.get("prompt_length", 0)
    return bool(length.flatten()[0] if isinstance(length, Tensor) else length)


def has_template(features: Features) -> bool:
    """Whether the sentences stand in a chat template."""
    return features.get("modality") == "message"


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
    framed = has_prompt(features) or has_template(features)
    content = content_mask(model, padded | {key: features[key] for key in _FRAME if key in features})
    kept = [ids[mask].tolist() for ids, mask in zip(padded["input_ids"], content, strict=True)]
    options = {"clean_up_tokenization_spaces": False} if exact else {}
    texts = unwrap(model).tokenizer.batch_decode(kept, skip_special_tokens=not exact, **options)
    # behind a prompt, byte-level and SentencePiece tokenizers put the space before a word into its first token
    return [text.strip() for text in texts] if framed else texts


def probe_rows(model: SentenceTransformer, prompt: str | None = None) -> tuple[list[list[int]], list[int] | None]:
    """Return the token ids of three short texts, and their attention mask (None if they are flattened).

    Two models that give the same treat all texts alike: special tokens, letter case, templates, padding side.
    """
    features = model.preprocess(_PROBE, prompt=prompt)
    mask = features.get("attention_mask")
    return token_rows(features), None if mask is None else mask.flatten().tolist()
