"""PaSeR's phrase decoder: the signal that it attends to, its layers, and its output."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from st_extras.checks import check_choice, check_count
from st_extras.encoders.forward import without_dropout
from st_extras.encoders.structure import unwrap
from st_extras.functional import full_precision
from st_extras.losses.parts.masked_lm import vocabulary_cross_entropy

_DROPOUT = 0.1
_SCALE = 10.0
"""Of the difference and the product in the signal, m and n of eq. 2: the paper's."""


def word_embedding(model: nn.Module) -> nn.Embedding:
    """Return the encoder's current word embedding, (V, W): resizing the vocabulary replaces it."""
    return cast(nn.Embedding, cast(Any, unwrap(model).transformers_model).get_input_embeddings())


def draw_normal(module: nn.Module) -> None:
    """Draw the weights of a linear layer from N(0, 0.02), as BERT does, and set its biases to 0."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)


class PhraseDecoder(nn.Module):
    """A torch ``TransformerDecoder`` over the words of a phrase that attends to the decoding signal.

    Args:
        embedding: the encoder's word embedding, (V, W), whose sizes it takes; each call gets the word embedding anew.
        dimension: D, the size of the signal's vectors; a linear layer projects them to W if D is not W.
        layers: number of decoder layers.
        output: the output layer. "tied": the word embedding, trained through it. "detached": the word embedding, not
            trained through it. "own": a head like BERT's, Linear(W, W), GELU, LayerNorm and Linear(W, V), drawn from
            N(0, 0.02).
        max_length: most tokens of a phrase, opening and closing token included.

    Raises:
        ValueError: if a setting is not allowed; the message names the loss's argument.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        dimension: int,
        *,
        layers: int,
        output: str = "tied",
        max_length: int,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.config = {
            "num_decoder_layers": check_count("num_decoder_layers", layers, at_least=1, at_most=100),
            "decoder_output": check_choice("decoder_output", output, ("tied", "own", "detached")),
        }
        size, width = embedding.weight.shape
        heads = max(h for h in range(1, width + 1) if width % h == 0 and width // h >= min(64, width))
        layer = nn.TransformerDecoderLayer(width, heads, 4 * width, _DROPOUT, "gelu", batch_first=True)
        self.layers = nn.TransformerDecoder(layer, int(layers))
        for parameter in self.layers.parameters():  # nn.TransformerDecoder has made copies of one layer
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        self.positions = nn.Embedding(self.max_length, width)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(_DROPOUT)
        self.dimension = dimension
        self.fit_signal = nn.Linear(dimension, width) if dimension != width else nn.Identity()
        self.head, self.trains_words = None, output == "tied"
        if output == "own":
            transform = nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)
            self.head = nn.Sequential(*transform, nn.Linear(width, size)).apply(draw_normal)

    def forward(self, embedded: Tensor, signal: Tensor) -> Tensor:
        """Return hidden states, (B, T, W), of which position t depends on the tokens 0 ... t.

        Args:
            embedded: the word embeddings of the tokens, (B, T, W).
            signal: (B, 4, D), or less than D if MatryoshkaLoss truncates embeddings.
        """
        signal = F.pad(signal, (0, self.dimension - signal.size(-1)))
        length = embedded.size(1)
        embedded = embedded.to(self.norm.weight.dtype)
        x = self.dropout(self.norm(embedded + self.positions.weight[:length]))
        causal = nn.Transformer.generate_square_subsequent_mask(length, device=x.device, dtype=x.dtype)
        memory = self.fit_signal(signal.to(self.norm.weight.dtype))
        return cast(Tensor, self.layers(x, memory, tgt_mask=causal, tgt_is_causal=True))

    def make_signal(self, sentence: Tensor, masked: Tensor) -> Tensor:
        """Return eq. 2, [E_s, E_s', m |E_s - E_s'|, n |E_s * E_s'|]: (B, D) and (B, D) -> (B, 4, D) in float32."""
        sentence, masked = full_precision(sentence), full_precision(masked)
        difference = _SCALE * (sentence - masked).abs()
        product = _SCALE * (sentence * masked).abs()
        return torch.stack([sentence, masked, difference, product], dim=1)

    def cross_entropy(
        self, ids: Tensor, counted: Tensor, signal: Tensor, embedding: nn.Embedding, *, train_words: bool = True
    ) -> Tensor:
        """Return the mean cross-entropy of the counted tokens, each predicted from the tokens before it.

        Args:
            ids: (B, T), of the phrases.
            counted: (B, T - 1) bool, which of the tokens after the first count.
            signal: (B, 4, D).
            embedding: the encoder's word embedding.
            train_words: whether the word embedding is trained.
        """
        with nullcontext() if torch.is_grad_enabled() else without_dropout(self):
            read = embedding(ids[:, :-1])
            hidden = self(read if train_words else read.detach(), signal)  # (B, T-1, W); position t predicts t+1
            states, weight, bias = self.output(hidden[counted], embedding, train_words=train_words)
        return vocabulary_cross_entropy(states, weight, ids[:, 1:][counted], bias)

    def output(
        self, hidden: Tensor, embedding: nn.Embedding, *, train_words: bool = True
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the arguments of F.linear that computes the logits: states (N, W), weight (V, W), bias (V,) or None.

        Args:
            hidden: (N, W), the decoder's hidden states.
            embedding: the encoder's word embedding.
            train_words: whether the word embedding is trained, if the output is "tied".

        Raises:
            ValueError: if the output is "own" and the vocabulary has been resized since it was made.
        """
        if self.head is None:
            return hidden, embedding.weight if train_words and self.trains_words else embedding.weight.detach(), None
        own = cast(nn.Linear, self.head[-1])
        if len(embedding.weight) != len(own.weight):
            raise ValueError(
                f"The word embedding must have {len(own.weight)} words with decoder_output='own', as when the loss was "
                f"made, got {len(embedding.weight)}: make the loss after resizing it."
            )
        return self.head[:-1](hidden), own.weight, own.bias

    def generate(
        self, embedding: nn.Embedding, signal: Tensor, brackets: tuple[int, int], max_length: int
    ) -> list[list[int]]:
        """Return the token ids of B phrases, generated greedily.

        Args:
            embedding: the encoder's word embedding.
            signal: (B, 4, D).
            brackets: the tokens that open and close a phrase; a phrase ends before the closing one.
            max_length: most tokens of a phrase.
        """
        opening, closing = brackets
        ids = torch.full((len(signal), 1), opening, device=signal.device)
        for _ in range(min(max_length, self.max_length - 1)):
            hidden, weight, bias = self.output(self(embedding(ids), signal)[:, -1], embedding)  # (B, W), (V, W)
            logits = F.linear(hidden.to(weight.dtype), weight, bias)
            ids = torch.cat([ids, logits.argmax(dim=1, keepdim=True)], dim=1)
        return [row[1 : [*row, closing].index(closing, 1)] for row in ids.tolist()]
