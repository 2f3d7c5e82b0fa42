"""What PaSeR writes phrases with: the decoder, and what the tokenizer and the columns must be."""

from __future__ import annotations

from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from st_extras.encoders import check_one_encoder, content_mask, prompt_length, unwrap
from st_extras.rows import Features

_ORDER = "the columns must be sentence, masked, phrase in this order, as PhraseMasking writes them"


class PhraseDecoder(nn.Module):
    """A torch ``TransformerDecoder`` over the word embeddings of a phrase, attending to the decoding signal.

    Args:
        width: W, the size of the word embeddings, which are handed in at each call.
        dimension: D, the size of the signal's vectors; a linear layer fits them where D is not W.
        layers, dropout: of the decoder.
        max_length: tokens that a phrase may have, its opening and closing token included.
    """

    def __init__(self, width: int, dimension: int, layers: int, dropout: float, max_length: int) -> None:
        super().__init__()
        heads = max(h for h in range(1, width + 1) if width % h == 0 and width // h >= min(64, width))
        layer = nn.TransformerDecoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True)
        self.layers = nn.TransformerDecoder(layer, layers)
        for parameter in self.layers.parameters():  # nn.TransformerDecoder starts with copies of one layer
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        self.positions = nn.Embedding(max_length, width)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.dimension = dimension
        self.fit_signal = nn.Linear(dimension, width) if dimension != width else nn.Identity()

    def forward(self, words: Tensor, signal: Tensor) -> Tensor:
        """Hidden states (B, T, W) of the word embeddings (B, T, W); position t sees the words 0 ... t."""
        signal = F.pad(signal, (0, self.dimension - signal.size(-1)))  # embeddings truncated by MatryoshkaLoss
        length = words.size(1)
        words = words.to(self.norm.weight.dtype)
        x = self.dropout(self.norm(words + self.positions.weight[:length]))
        causal = nn.Transformer.generate_square_subsequent_mask(length, device=x.device, dtype=x.dtype)
        memory = self.fit_signal(signal.to(self.norm.weight.dtype))
        return cast(Tensor, self.layers(x, memory, tgt_mask=causal, tgt_is_causal=True))


def phrase_brackets(model: SentenceTransformer) -> tuple[int, int]:
    """The tokens that open and close every text, as [CLS] and [SEP]."""
    ids: list[int] = model.tokenizer("a")["input_ids"]
    return ids[0], ids[-1]


def check_phrase_tokenizer(model: SentenceTransformer) -> None:
    """ValueError unless texts can be masked, stand between two special tokens and are padded on the right."""
    check_one_encoder(model, "PaSeRLoss")
    tokenizer: Any = getattr(model, "tokenizer", None)
    if getattr(model, "transformers_model", None) is None or getattr(tokenizer, "mask_token_id", None) is None:
        raise ValueError(
            "PaSeRLoss needs a transformer whose tokenizer has a mask token (BERT, RoBERTa, MPNet and their like), "
            f"and the model's tokenizer, {type(tokenizer).__name__}, has none."
        )
    opening, closing = phrase_brackets(model)
    if not {opening, closing} <= set(tokenizer.all_special_ids) or tokenizer.padding_side != "right":
        raise ValueError(
            "PaSeRLoss needs a tokenizer that opens and closes a text with special tokens and pads on the right, got "
            f"{tokenizer.convert_ids_to_tokens([opening, closing])} and padding_side={tokenizer.padding_side!r}."
        )


def without_prompt(model: nn.Module, phrase: Features) -> Features:
    """The tokenized phrases without the prompt before them; what they are, where there is none."""
    if not (length := prompt_length(model, phrase)):
        return phrase
    read = ("input_ids", "attention_mask")  # no encoder sees a phrase
    return {key: torch.cat([phrase[key][:, :1], phrase[key][:, length:]], dim=1) for key in read}


def check_phrase_columns(columns: list[Features], model: nn.Module, max_length: int, *, with_base: bool) -> Tensor:
    """Which rows have their masked phrase within the encoder's reach.

    Args:
        columns: those of a batch, each tokenized: the sentence first, masked and phrase last.
        model: the encoder.
        max_length: tokens that a phrase may have, its opening and closing token included.
        with_base: whether a base loss's columns may stand between the sentence and the others.

    Returns:
        (B,) bool; False where ``max_seq_length`` cut the masks off.

    Raises:
        ValueError: columns that are missing or in another order, or a phrase that is empty or too long.
    """
    if len(columns) < 3 or (len(columns) > 3 and not with_base):
        raise ValueError(f"PaSeRLoss got {len(columns)} columns: {_ORDER}.")
    sentence, masked, phrase = columns[0], *columns[-2:]
    for name, column in (("sentence", sentence), ("masked", masked), ("phrase", phrase)):
        if "input_ids" not in column or column["input_ids"].ndim != 2 or "attention_mask" not in column:
            raise ValueError(f"PaSeRLoss needs (B, L) input_ids in column {name!r}: use unpad_inputs=False.")
    encoder = unwrap(model)
    mask_id = encoder.tokenizer.mask_token_id
    content = content_mask(model, phrase)
    bare = without_prompt(model, phrase)
    lengths = [column["attention_mask"].sum(dim=1) for column in (sentence, masked, bare)]
    shown: Tensor = (masked["input_ids"] == mask_id).any(dim=1)
    cut = lengths[1] >= (encoder.max_seq_length or torch.inf)
    empty, unmasked, holds_mask, longer = torch.stack([
        ~content.any(dim=1).all(),
        ~(shown | cut).all(),
        (phrase["input_ids"] == mask_id).any(),
        lengths[2].sum() > lengths[0].sum() + len(shown),
    ]).tolist()  # fmt: skip
    if holds_mask:
        raise ValueError(f"Column 'phrase' holds {encoder.tokenizer.mask_token}: {_ORDER}.")
    if unmasked:
        raise ValueError(f"Column 'masked' has a row without {encoder.tokenizer.mask_token}: {_ORDER}.")
    if longer:
        raise ValueError(f"Column 'phrase' is longer than the sentences: {_ORDER}.")
    if empty:
        raise ValueError("Column 'phrase' has an empty phrase: leave such rows out, as PhraseMasking does.")
    if (width := bare["input_ids"].size(1)) > max_length:
        raise ValueError(f"A phrase has {width} tokens, more than max_phrase_length={max_length}.")
    return shown
