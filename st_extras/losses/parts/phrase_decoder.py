"""PaSeR's phrase decoder: the signal that it attends to, its layers, and its output layer."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from st_extras.functional import full_precision

OUTPUTS = ("tied", "own", "detached")
STARTS = ("xavier", "normal")


def decoding_signal(sentence: Tensor, masked: Tensor, difference_scale: float, product_scale: float) -> Tensor:
    """Return eq. 2, [E_s, E_s', m |E_s - E_s'|, n |E_s * E_s'|]: (B, D) and (B, D) -> (B, 4, D) in float32."""
    sentence, masked = full_precision(sentence), full_precision(masked)
    difference = difference_scale * (sentence - masked).abs()
    return torch.stack([sentence, masked, difference, product_scale * (sentence * masked).abs()], dim=1)


def draw_normal(module: nn.Module) -> None:
    """Draw the weights of a layer as BERT and BART do, from N(0, 0.02), and set its biases to 0."""
    if isinstance(module, nn.MultiheadAttention):
        nn.init.normal_(module.in_proj_weight, std=0.02)
    elif isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class PhraseOutput(nn.Module):
    """The output layer of PaSeR's decoder: what its hidden states become, and the words they are compared with.

    Args:
        kind: "tied": the encoder's word embedding, which it trains. "detached": the same, not trained by it. "own": a
            head as BERT's, Linear(W, W), GELU, LayerNorm and Linear(W, V), drawn from N(0, 0.02).
        words: the encoder's word embedding, (V, W).
    """

    def __init__(self, kind: str, words: nn.Embedding) -> None:
        super().__init__()
        self.kind = kind
        self.head: nn.Module | None = None
        if kind == "own":
            size, width = words.weight.shape
            self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
            self.words = nn.Linear(width, size)
            self.apply(draw_normal)

    def forward(
        self, hidden: Tensor, words: nn.Embedding, *, train_words: bool = True
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return hidden states (N, W), a weight (V, W) and a bias (V,) or None, of which F.linear makes the logits.

        Args:
            hidden: (N, W), of the decoder.
            words: the encoder's word embedding, (V, W).
            train_words: whether the word embedding learns from it, unless the kind is "detached".

        Raises:
            ValueError: if the vocabulary has been resized since a layer of its own was made.
        """
        if self.head is None:
            trained = train_words and self.kind == "tied"
            return hidden, words.weight if trained else words.weight.detach(), None
        if len(words.weight) != len(self.words.weight):
            raise ValueError(
                f"decoder_output='own' needs the vocabulary that the loss was made with, {len(self.words.weight)} "
                f"words, got {len(words.weight)}: make the loss after resizing the word embedding."
            )
        return self.head(hidden), self.words.weight, self.words.bias


class PhraseDecoder(nn.Module):
    """A torch ``TransformerDecoder`` over the word embeddings of a phrase that attends to the decoding signal.

    Args:
        width: W, the size of the word embeddings, which are passed in at each call.
        dimension: D, the size of the signal's vectors; a linear layer fits them if D is not W.
        layers: number of decoder layers.
        dropout: dropout of the decoder.
        max_length: most tokens of a phrase, opening and closing token included.
        pre_norm: normalise before each sublayer and after the last layer, instead of after each sublayer.
        start: how weights are drawn: "xavier", or "normal" as BERT and BART draw them, N(0, 0.02) with biases 0.
    """

    def __init__(
        self,
        width: int,
        dimension: int,
        layers: int,
        dropout: float,
        max_length: int,
        *,
        pre_norm: bool = False,
        start: str = "xavier",
    ) -> None:
        super().__init__()
        heads = max(h for h in range(1, width + 1) if width % h == 0 and width // h >= min(64, width))
        layer = nn.TransformerDecoderLayer(
            width, heads, 4 * width, dropout, "gelu", batch_first=True, norm_first=pre_norm
        )
        self.layers = nn.TransformerDecoder(layer, layers, nn.LayerNorm(width) if pre_norm else None)
        for parameter in self.layers.parameters():  # nn.TransformerDecoder starts with copies of one layer
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        self.positions = nn.Embedding(max_length, width)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.dimension = dimension
        self.fit_signal = nn.Linear(dimension, width) if dimension != width else nn.Identity()
        if start == "normal":
            self.apply(draw_normal)

    def forward(self, words: Tensor, signal: Tensor) -> Tensor:
        """Return hidden states (B, T, W) for word embeddings (B, T, W); position t sees the words 0 ... t.

        ``signal`` is (B, 4, D), or smaller if MatryoshkaLoss truncates embeddings.
        """
        signal = F.pad(signal, (0, self.dimension - signal.size(-1)))
        length = words.size(1)
        words = words.to(self.norm.weight.dtype)
        x = self.dropout(self.norm(words + self.positions.weight[:length]))
        causal = nn.Transformer.generate_square_subsequent_mask(length, device=x.device, dtype=x.dtype)
        memory = self.fit_signal(signal.to(self.norm.weight.dtype))
        return cast(Tensor, self.layers(x, memory, tgt_mask=causal, tgt_is_causal=True))

    def write(
        self, output: PhraseOutput, words: nn.Embedding, signal: Tensor, brackets: tuple[int, int], max_length: int
    ) -> list[list[int]]:
        """Return the ids of B phrases, written greedily.

        Args:
            output: the output layer.
            words: the encoder's word embedding, (V, W).
            signal: (B, 4, D).
            brackets: the tokens that open and close a phrase; a phrase ends before the closing one.
            max_length: most tokens of a phrase.
        """
        opening, closing = brackets
        ids = torch.full((len(signal), 1), opening, device=signal.device)
        for _ in range(max_length):
            hidden, weight, bias = output(self(words(ids), signal)[:, -1], words)  # (B, W), (V, W)
            logits = F.linear(hidden.to(weight.dtype), weight, bias)
            ids = torch.cat([ids, logits.argmax(dim=1, keepdim=True)], dim=1)
        return [row[1 : [*row, closing].index(closing, 1)] for row in ids.tolist()]
