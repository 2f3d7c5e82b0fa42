"""Attention received per word, against the encoder's own weights summed by hand."""

import pytest

from benchmarks.figures.attention import attention_received

SENTENCE = "the cats sat on a mat"  # cats: two pieces, cat and ##s


@pytest.mark.parametrize("layer", [-1, 0])
def test_shares_equal_the_sum_over_pieces(encoder, layer):
    words, shares = attention_received(encoder, SENTENCE, layer=layer)
    assert words == ["[CLS]", "the", "cats", "sat", "on", "a", "mat", "[SEP]"]
    inner = encoder.transformers_model
    inner.eval()
    inner.set_attn_implementation("eager")
    ids = encoder.tokenizer(SENTENCE, return_tensors="pt")
    weights = inner(**ids, output_attentions=True).attentions[layer][0].detach()  # (heads, L, L)
    tokens = encoder.tokenizer.convert_ids_to_tokens(ids["input_ids"][0])
    assert tokens[2:4] == ["cat", "##s"]
    heads, length, _ = weights.shape
    received = [
        sum(float(weights[h, q, k]) for h in range(heads) for q in range(length)) / heads / length
        for k in range(length)
    ]
    expected = [*received[:2], received[2] + received[3], *received[4:]]
    assert shares == pytest.approx(expected, abs=1e-6)
    assert sum(shares) == pytest.approx(1.0)
