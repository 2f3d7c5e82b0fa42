from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from st_extras.losses.parts.phrase_decoder import PhraseDecoder
from tests.losses.phrases import attend, loop_decoder


def decoder_of(width: int, dimension: int, layers: int = 1, words: int = 7, **options: Any) -> PhraseDecoder:
    return PhraseDecoder(nn.Embedding(words, width), dimension, layers=layers, dropout=0.0, max_length=9, **options)


def test_the_decoder_is_a_transformer_decoder_layer():
    """Of two heads, over a signal of other dimensions; one head: tests/losses/test_paser.py."""
    torch.manual_seed(0)
    decoder = decoder_of(128, 5).double()
    layer: Any = decoder.layers.layers[0]
    assert layer.self_attn.num_heads == 2
    words, signal = torch.randn(3, 5, 128).double(), torch.randn(3, 4, 5).double()
    expected = torch.stack([torch.stack(loop_decoder(decoder, w, s)) for w, s in zip(words, signal, strict=True)])
    torch.testing.assert_close(decoder(words, signal), expected)


def test_pre_norm_normalises_before_each_sublayer_and_once_at_the_end():
    torch.manual_seed(0)
    decoder = decoder_of(16, 16, 1, pre_norm=True).double()
    layer: Any = decoder.layers.layers[0]
    for norm in (layer.norm1, layer.norm2, layer.norm3, decoder.layers.norm):
        nn.init.normal_(norm.weight)  # so that each is seen to act in its place
    words, signal = torch.randn(5, 16).double(), torch.randn(4, 16).double()
    xs = [decoder.norm(words[t] + decoder.positions.weight[t]) for t in range(5)]
    out = []
    for t, x in enumerate(xs):
        normed = [layer.norm1(y) for y in xs[: t + 1]]
        x = x + attend(layer.self_attn, normed[-1], normed)
        x = x + attend(layer.multihead_attn, layer.norm2(x), list(signal))
        x = x + layer.linear2(F.gelu(layer.linear1(layer.norm3(x))))
        out.append(decoder.layers.norm(x))
    torch.testing.assert_close(decoder(words.unsqueeze(0), signal.unsqueeze(0))[0], torch.stack(out))


# ---- the output layer


def test_its_own_output_layer_is_berts_head_as_a_loop():
    torch.manual_seed(0)
    words = nn.Embedding(7, 4).double()
    decoder = decoder_of(4, 4, output="own").double()
    dense, _, norm, last = decoder.head  # type: ignore[misc]
    for parameter in decoder.head.parameters():  # type: ignore[union-attr]
        nn.init.normal_(parameter)
    hidden = torch.randn(3, 4).double()
    logits = F.linear(*decoder.output(hidden, words))
    for i in range(3):
        x = F.gelu(torch.stack([dense.weight[j] @ hidden[i] + dense.bias[j] for j in range(4)]))
        mean = x.mean()
        x = norm.weight * (x - mean) / ((x - mean).square().mean() + norm.eps).sqrt() + norm.bias
        for word in range(7):
            expected = last.weight[word] @ x + last.bias[word]
            assert logits[i, word].item() == pytest.approx(expected.item())


def test_a_resized_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"must have 7 words .*got 9"):
        decoder_of(4, 4, output="own").output(torch.randn(3, 4), nn.Embedding(9, 4))


# ---- generating


def test_a_phrase_may_repeat_the_opening_token_and_one_row_does_not_wait_for_another():
    class Fixed(PhraseDecoder):
        """Generates the tokens that are prescribed for each row."""

        def forward(self, words: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
            places = range(words.size(1))
            return torch.stack([torch.eye(16)[[row[min(t, len(row) - 1)] for t in places]] for row in phrases])

    phrases = [[3, 0, 5, 1, 7], [1, 4, 4, 4, 4], [2, 2, 2, 2, 2]]
    words = nn.Embedding(16, 16)
    with torch.no_grad():
        words.weight[:] = torch.eye(16)
    signal = torch.zeros(3, 4, 16)
    decoder = Fixed(words, 16, layers=1, dropout=0.0, max_length=9)
    assert decoder.generate(words, signal, (0, 1), 5) == [[3, 0, 5], [], [2] * 5]
    assert decoder.generate(words, signal, (0, 1), 1) == [[3], [], [2]]
    assert decoder.generate(words, signal, (1, 1), 4) == [[3, 0, 5], [], [2] * 4]  # one token opens and closes
