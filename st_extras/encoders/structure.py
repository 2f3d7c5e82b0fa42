"""What an encoder is made of: its modules, dimensions and tokenizer, and what losses and modules require of them."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Router
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from st_extras.checks import check_choice, shown

logger = logging.getLogger(__name__)
_FEWEST_CHECKED = 8  # texts; fewer show nothing about the others
_LATIN, _HAN = "LATIN", "CJK"
_FEW_WORDS, _FEW_HAN = 200, 2000
"""Words of a script that a tokenizer needs, and characters of Chinese and Japanese, each of which is one.

English tokenizers have below 50 and 700 (BERT's, SmolLM2's), multilingual ones thousands.
"""
_MUCH_UNKNOWN = 0.2  # share of unknown tokens
_TEXTS_READ, _LETTERS_READ = 2000, 500  # of each text


def unwrap(model: nn.Module) -> SentenceTransformer:
    """Return the SentenceTransformer inside DistributedDataParallel and ``torch.compile`` wrappers.

    Raises:
        ValueError: if there is none.
    """
    inner = model
    while not isinstance(inner, SentenceTransformer):  # torch.compile's wrapper has no public name for what it wraps
        following = getattr(inner, "module", None) or getattr(inner, "_orig_mod", None)
        if following is None:
            raise ValueError(f"model must be a SentenceTransformer or a wrapper of one, got {type(model).__name__}.")
        inner = following
    return inner


@contextmanager
def keep_modes(model: nn.Module) -> Iterator[None]:
    """Give every module its own training or evaluation mode back at the end."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def fix_padding_side(model: nn.Module) -> None:
    """Let a model's tokenizers, of every route, pad on the right, in place.

    Padding on the left moves a text in the batch. An encoder with absolute positions that counts them by place (BERT,
    GPT-2) then makes another embedding of it, depending on the longest text of the batch. On the right, padding moves
    nothing, and attention masks hide it; encoders with relative or rotary positions make the same embedding either way.

    Whatever takes an encoder calls it: loading, losses, modules, guides, searches; not evaluators, which change no
    encoder.
    """
    for module in unwrap(model).modules():
        tokenizer: Any = getattr(module, "tokenizer", None)
        if getattr(tokenizer, "padding_side", "right") != "right":
            tokenizer.padding_side = "right"
            logger.info("The tokenizer pads on the right now, where padding moves no text.")


def require_trainable(model: nn.Module) -> None:
    """Refuse a model without trainable parameters.

    Raises:
        ValueError: if no parameter has requires_grad=True.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            "model is frozen: none of its parameters has requires_grad=True, so there is nothing to train."
        )


def embedding_dimension(model: nn.Module) -> int:
    """Return the size D of the sentence embeddings in training, which ``truncate_dim`` does not change.

    Raises:
        ValueError: if no module of the model knows it, or none pools its token embeddings.
    """
    encoder = unwrap(model)
    with encoder.truncate_embeddings(None):
        dimension = encoder.get_embedding_dimension()
    if dimension is None or lacks_pooling(encoder):
        raise ValueError(
            "model must have a Pooling among its last modules, got one that gives a text no embedding of known size."
        )
    return int(dimension)


def lacks_pooling(model: SentenceTransformer) -> bool:
    """Return whether nothing, or only Normalize and Dense, follows a transformer that outputs token embeddings.

    A transformer that outputs a sentence embedding, as CLIP's does, needs no pooling.
    """
    first, *others = [*model] or [None]
    outputs_tokens = isinstance(first, Transformer) and first.module_output_name == "token_embeddings"
    return outputs_tokens and all(isinstance(module, Normalize | Dense) for module in others)


def token_embedding_dimension(model: nn.Module) -> int:
    """Return the size of the token embeddings that the model's first module, a transformer, passes on.

    Raises:
        ValueError: if the first module is not a transformer, or a Router with several encoders.
    """
    check_one_encoder(model, "This loss")
    if unwrap(model).transformers_model is None:
        raise ValueError(
            f"model must give token embeddings, which {type(unwrap(model)[0]).__name__} does not: use a transformer, "
            "or a contrastive loss such as SimCSELoss with pairs of sentences."
        )
    return int(cast(Any, unwrap(model)[0]).get_embedding_dimension())


def check_one_encoder(model: nn.Module, what: str) -> None:
    """Refuse a Router that has a separate encoder for each kind of text: their tokens cannot be compared.

    Raises:
        ValueError: if the Router uses several encoders; the message begins with ``what``.
    """
    first = unwrap(model)[0]
    if isinstance(first, Router) and len({cast(Any, route)[0] for route in first.sub_modules.values()}) > 1:
        raise ValueError(
            f"{what} works on the tokens of one encoder, and the model's Router has one for each of "
            f"{sorted(first.sub_modules)}: use SimCSELoss, DCLRLoss or AdCSELoss, with dropout views."
        )


def has_search_routes(model: nn.Module) -> bool:
    """Return whether queries and documents go through different modules, as ``adapt-search`` saves them."""
    return any(isinstance(part, Router) and {"query", "document"} <= {*part.sub_modules} for part in model.modules())


def check_token_embeddings(tokens: Tensor, input_ids: Tensor, what: str, otherwise: str) -> None:
    """Refuse the tokens of an encoder that pools them inside, as Funnel without its decoder does.

    Args:
        tokens: (R, L, D) token embeddings.
        input_ids: (R, L).
        what: what needs the token embeddings, for the message.
        otherwise: the alternative that the message ends with.

    Raises:
        ValueError: if there is another number of token embeddings than of tokens.
    """
    if tokens.shape[:2] != input_ids.shape:
        raise ValueError(
            f"{what} needs an encoder with one token embedding for each token, got {tokens.size(1)} for "
            f"{input_ids.size(1)} tokens: use another encoder, or {otherwise}."
        )


def check_mask_token(model: Any, on_missing_mask: str, what: str, otherwise: str) -> str:
    """Return ``on_missing_mask``.

    Args:
        model: the SentenceTransformer, or its first module.
        on_missing_mask: "error" or "delete".
        what: what the loss masks, for the message.
        otherwise: the alternatives that the message ends with.

    Raises:
        ValueError: if it is neither, or is "error" and the tokenizer has no mask token.
    """
    check_choice("on_missing_mask", on_missing_mask, ("error", "delete"))
    tokenizer: Any = getattr(model, "tokenizer", None)
    if on_missing_mask == "error" and getattr(tokenizer, "mask_token_id", None) is None:
        raise ValueError(
            f"model must have a tokenizer with a mask token to put in place of {what}, got a "
            f'{type(tokenizer).__name__} without one: pass on_missing_mask="delete" to delete them instead, '
            f"{otherwise}."
        )
    return on_missing_mask


def check_known(model: SentenceTransformer, texts: Sequence[str], name: str) -> None:
    """Refuse texts of which the tokenizer knows no token: the encoder cannot distinguish them.

    Args:
        model: the encoder. One without a tokenizer of the transformers library is not checked.
        texts: some of the texts.
        name: the argument that they are from, for the message.

    Raises:
        ValueError: if it knows no token of any of at least 8 texts.
    """
    tokenizer: Any = getattr(model, "tokenizer", None)
    if len(texts) < _FEWEST_CHECKED or not isinstance(tokenizer, PreTrainedTokenizerBase):
        return
    if (unknown := tokenizer.unk_token_id) is None:
        return
    nothing = {unknown, tokenizer.convert_tokens_to_ids("\u2581")}  # SentencePiece's space
    found = tokenizer(list(texts), add_special_tokens=False, truncation=True)["input_ids"]
    if all(map(nothing.issuperset, found)):
        raise ValueError(
            f"{name} must hold tokens that the encoder knows, got only unknown tokens, such as {shown(texts[0])}: use "
            "an encoder for their language or script."
        )


def warn_if_poorly_read(model: SentenceTransformer, texts: Sequence[str]) -> str | None:
    """Log what :func:`why_poorly_read` finds in the first 2,000 texts, and return it."""
    if (reason := why_poorly_read(model, texts[:_TEXTS_READ])) is not None:
        logger.warning("%s", reason)
    return reason


def why_poorly_read(model: SentenceTransformer, texts: Sequence[str]) -> str | None:
    """Return why an encoder can hardly tell the texts apart, as one sentence; None if nothing shows that it cannot.

    It is so where a fifth of the tokens are unknown, or most letters are of a script in which the tokenizer has hardly
    any words: it then reads single letters. A language in Latin letters that the encoder was not trained on does not
    show.

    Args:
        model: the encoder. One without a tokenizer of the transformers library is not checked.
        texts: some of the texts.
    """
    tokenizer: Any = getattr(model, "tokenizer", None)
    if len(texts) < _FEWEST_CHECKED or not isinstance(tokenizer, PreTrainedTokenizerBase):
        return None
    rows = tokenizer([*texts], add_special_tokens=False, truncation=True)["input_ids"]
    tokens = [token for row in rows for token in row]
    unknown = 0.0 if tokenizer.unk_token_id is None else tokens.count(tokenizer.unk_token_id) / max(1, len(tokens))
    letters = Counter(script for text in texts for script in map(_script, text[:_LETTERS_READ]) if script)
    script, count = letters.most_common(1)[0] if letters else ("", 0)
    known = None
    if script and script != _LATIN and count > letters.total() / 2:
        least = 1 if script == _HAN else 2  # letters of a word
        vocabulary = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        known = sum(_has_letters(tokenizer.convert_tokens_to_string([token]), script, least) for token in vocabulary)
        known = known if known < (_FEW_HAN if script == _HAN else _FEW_WORDS) else None
    if known is None and unknown < _MUCH_UNKNOWN:
        return None
    reason = f"{unknown:.0%} of their tokens are unknown"
    if known is not None:
        name = script if script == _HAN else script.title()
        reason += f", and most of their letters are {name}, in which its tokenizer has {known} words"
    return (
        f"This encoder hardly reads the texts: {reason}; use an encoder for their language, such as a multilingual one."
    )


def _script(character: str) -> str | None:
    """Return the script of a letter, by the first word of its name in Unicode; None of anything else."""
    if not character.isalpha():
        return None
    if character.isascii():
        return _LATIN
    name = unicodedata.name(character, "?").partition(" ")[0]
    return _HAN if name in ("HIRAGANA", "KATAKANA") else name


def _has_letters(token: str, script: str, least: int) -> bool:
    return sum(_script(character) == script for character in token) >= least
