from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from st_extras.losses.parts.phrase_decoder import PhraseDecoder
from tests.losses.cases import set_decoder_dropout
from tests.losses.phrases import loop_decoder


def decoder_of(width: int, dimension: int, **options: Any) -> PhraseDecoder:
    decoder = PhraseDecoder(nn.Embedding(7, width), dimension, layers=1, max_length=9, **options)
    set_decoder_dropout(decoder, 0.0)
    return decoder


def test_the_decoder_is_a_transformer_decoder_layer():
    """Of two heads, over a signal of other dimensions."""
    torch.manual_seed(0)
    decoder = decoder_of(128, 5).double()
    layer: Any = decoder.layers.layers[0]
    assert (layer.self_attn.num_heads, layer.linear1.out_features, layer.activation) == (2, 512, F.gelu)
    assert (layer.norm_first, decoder.layers.norm) == (False, None)
    words, signal = torch.randn(3, 5, 128).double(), torch.randn(3, 4, 5).double()
    expected = torch.stack([torch.stack(loop_decoder(decoder, w, s)) for w, s in zip(words, signal, strict=True)])
    torch.testing.assert_close(decoder(words, signal), expected)


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
    decoder = Fixed(words, 16, layers=1, max_length=9)
    assert decoder.generate(words, signal, (0, 1), 5) == [[3, 0, 5], [], [2] * 5]
    assert decoder.generate(words, signal, (0, 1), 1) == [[3], [], [2]]
    assert decoder.generate(words, signal, (1, 1), 4) == [[3, 0, 5], [], [2] * 4]  # one token opens and closes
