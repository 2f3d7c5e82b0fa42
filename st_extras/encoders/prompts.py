"""Which prompts of an encoder belong to queries and to documents, whatever it calls them."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Literal, Protocol

Role = Literal["query", "document"]
_NAMES: dict[Role, tuple[str, ...]] = {  # by which Sentence Transformers finds them: encode_query, encode_document
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
_WORDS = {
    "query": {"query", "queries", "question"},
    "document": {"document", "documents", "doc", "docs", "passage", "passages", "corpus"},
}
logger = logging.getLogger(__name__)


class HasPrompts(Protocol):
    """What a SentenceTransformer has: prompts by their names."""

    prompts: dict[str, str | None]


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
        _warn(f"the encoder's prompts {names} could each be meant for a {role}, and none is used: give {role}_prompt.")
        return None
    return next(iter(found.values()), None)


@lru_cache(maxsize=100)
def _warn(message: str) -> None:
    """Log a warning once."""
    logger.warning(message)
