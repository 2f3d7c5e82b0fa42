"""Encoding queries and documents with the prompts that an encoder has for them, whatever it calls them."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol

from sentence_transformers import SentenceTransformer

from st_extras.encoders.structure import fix_padding_side
from st_extras.text.corpus import check_sentence

Role = Literal["query", "document"]
_NAMES: dict[Role, tuple[str, ...]] = {  # by which Sentence Transformers finds them: encode_query, encode_document
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
_WORDS = {
    "query": {"query", "queries", "question"},
    "document": {"document", "documents", "doc", "docs", "passage", "passages", "corpus"},
}
_PLURALS: dict[Role, str] = {"query": "queries", "document": "documents"}
logger = logging.getLogger(__name__)


class HasPrompts(Protocol):
    """What a SentenceTransformer has: prompts by their names."""

    prompts: dict[str, str | None]


def encode_as(model: SentenceTransformer, role: Role, texts: Sequence[str], **options: Any) -> Any:
    """Return the embeddings of queries or documents by ``encode_query`` or ``encode_document``.

    Each text gets the encoder's prompt for the role, see :func:`other_prompt`, and padding changes no embedding, see
    :func:`~st_extras.encoders.structure.fix_padding_side`.

    Args:
        model: a SentenceTransformer.
        role: "query" or "document".
        texts: N of them.
        **options: further arguments of ``encode``.

    Raises:
        ValueError: if a text or the prompt is no valid text: it holds a lone surrogate.
    """
    for row, text in enumerate(texts):
        check_sentence(text, f"{_PLURALS[role]}, row {row}")
    check_sentence(prompt_for(model, role), f"the prompt for {_PLURALS[role]}")
    fix_padding_side(model)
    encode = model.encode_query if role == "query" else model.encode_document
    return encode(list(texts), prompt=other_prompt(model, role), **options)


def prompt_for(model: HasPrompts, role: Role) -> str:
    """Return the prompt that :func:`encode_as` puts before each text of a role; "" if there is none."""
    named = (model.prompts[name] for name in _NAMES[role] if name in model.prompts)  # the first that is there
    return other_prompt(model, role) or next(named, None) or ""


def name_prompts(model: HasPrompts) -> None:
    """Give an encoder's prompts for queries and documents the names by which Sentence Transformers finds them."""
    for role in _NAMES:
        if (prompt := other_prompt(model, role)) is not None:
            model.prompts[role] = prompt


def other_prompt(model: HasPrompts, role: Role) -> str | None:
    """Return the prompt that an encoder has for queries or documents under a name that Sentence Transformers ignores.

    ``encode_query`` looks for "query"; ``encode_document`` takes the first of "document", "passage" and "corpus" that
    is there, even if it is empty, as "document" is by default. Encoders also call them "s2p_query",
    "search_query", "Query" or "search_document": such a name is taken if no other could be meant.

    Args:
        model: a SentenceTransformer.
        role: "query" or "document".

    Returns:
        The prompt; None if Sentence Transformers finds one, there is none, or several differ, which is warned of.
    """
    usual = [model.prompts.get(name) for name in _NAMES[role]]
    if usual[0]:
        return None
    if named := next(filter(None, usual), None):
        return named
    found = {
        name: prompt
        for name, prompt in model.prompts.items()
        if prompt and _WORDS[role] & set(re.split(r"[^a-z]+", name.lower()))
    }
    if len(set(found.values())) > 1:
        names = ", ".join(found)
        _warn_once(
            f"the encoder's prompts {names} could each be meant for a {role}, and none is used: give {role}_prompt."
        )
        return None
    return next(iter(found.values()), None)


@lru_cache(maxsize=100)
def _warn_once(message: str) -> None:
    """Log a warning once."""
    logger.warning(message)
