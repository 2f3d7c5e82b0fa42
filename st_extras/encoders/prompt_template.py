"""The text around each sentence: none, the tokenizer's chat template, or a template such as PromptEOL's.

Such a template is set as the tokenizer's chat template, which Sentence Transformers saves and applies.

Ting Jiang, Shaohan Huang, Zhongzhi Luan, Deqing Wang, Fuzhen Zhuang: "Scaling Sentence Embeddings with Large Language
Models", 2023, https://arxiv.org/abs/2307.16645
"""

from __future__ import annotations

import json
import logging
from typing import Any, cast

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer

from st_extras.checks import shown

logger = logging.getLogger(__name__)
PLAIN = "{}"
"""The template that adds nothing to a text."""
PROMPT_EOL = 'This sentence: "{}" means in one word: "'
"""PromptEOL's, for ``pooling="lasttoken"`` of a language model that is not trained."""
_SAMPLES = ("a", 'one two, "three".', "{{ 4 }}")


def set_prompt_template(model: SentenceTransformer, template: str) -> None:
    """Put a text around every sentence that the model encodes, in place.

    The template becomes the chat template of the tokenizer, with the special tokens that it puts around a text, and the
    model takes its texts as messages. Both are saved by Sentence Transformers, so that the saved model needs no
    package but that one. A text that is too long loses its end, not the template's. A ``prompt`` of ``encode`` stands
    inside the template, before the sentence. A chat template that the tokenizer has already is replaced.

    Args:
        model: the SentenceTransformer; its first module is a transformer.
        template: text with exactly one ``{}``, where the sentence goes; other braces and quotes stand for themselves.
            "{}": the sentence alone.

    Raises:
        ValueError: if the template has not exactly one ``{}``, or the tokenizer reads special tokens within a text as
            other ones.
    """
    if not isinstance(template, str) or template.count("{}") != 1:
        raise ValueError(
            f"prompt_template must be text with exactly one {{}}, where the sentence goes, got {shown(template)}."
        )
    before, after = template.split("{}")
    transformer = next(model.children())
    if not isinstance(transformer, Transformer) or "text" not in transformer.modality_config:
        raise ValueError(
            f"prompt_template needs an encoder that starts with a transformer for text, got "
            f"{type(transformer).__name__}."
        )
    tokenizer = cast(Any, transformer.tokenizer)
    if template == PLAIN:
        transformer.modality_config = {k: v for k, v in transformer.modality_config.items() if k != "message"}
        transformer.input_formatter.supported_modalities = list(transformer.modality_config)
        return
    if getattr(tokenizer, "chat_template", None) is not None:
        logger.info("The tokenizer's chat template is replaced by prompt_template.")
    opening, closing = _special_tokens(tokenizer)
    for gap in ("", " "):  # some tokenizers mark the first word of a text: after an opening token, a space does it
        tokenizer.chat_template = _jinja(opening + gap + before, after + closing)
        if all(_ids(tokenizer, text) == tokenizer(before + text + after)["input_ids"] for text in _SAMPLES):
            break
    else:
        raise ValueError(
            f"prompt_template cannot be used with a {type(tokenizer).__name__}, which reads special tokens within a "
            "text as other ones: put the template around the sentences yourself."
        )
    as_messages: Any = {**transformer.modality_config["text"], "format": "flat"}  # they go through the chat template
    transformer.modality_config = {**transformer.modality_config, "message": as_messages}
    transformer.input_formatter.message_format = "flat"
    transformer.input_formatter.supported_modalities = list(transformer.modality_config)


def _special_tokens(tokenizer: Any) -> tuple[str, str]:
    """Return the special tokens that the tokenizer puts before and after a text, as text."""
    special = set(tokenizer.all_special_ids)
    ids = list(tokenizer("a")["input_ids"])
    start = next((i for i, token in enumerate(ids) if token not in special), len(ids))
    stop = next((i for i in range(len(ids), start, -1) if ids[i - 1] not in special), start)
    opening, closing = (tokenizer.convert_ids_to_tokens(part) for part in (ids[:start], ids[stop:]))
    return "".join(opening), "".join(closing)


def _jinja(before: str, after: str) -> str:
    """A template that prints two texts as they stand, and between them the system message, if any, and the text."""
    first, last = (json.dumps(text, ensure_ascii=False) for text in (before, after))
    return f'{{{{ {first} }}}}{{{{ messages | map(attribute="content") | join }}}}{{{{ {last} }}}}'


def _ids(tokenizer: Any, text: str) -> list[int]:
    message = [{"role": "user", "content": text}]
    return list(tokenizer.apply_chat_template(message, tokenize=True, return_dict=True)["input_ids"])
