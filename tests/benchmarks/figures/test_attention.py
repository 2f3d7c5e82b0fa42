"""Attention received per word, against the encoder's own weights summed by hand."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from benchmarks.figures.attention import attention_received

SENTENCE = "the cats sat on a mat"  # cats: two pieces, cat and ##s


@pytest.mark.parametrize("layer", [-1, 0])
def test_shares_equal_the_sum_over_pieces(encoder: SentenceTransformer, layer: int) -> None:
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


def test_without_special_tokens_the_rest_is_scaled(encoder: SentenceTransformer) -> None:
    _, shares = attention_received(encoder, SENTENCE)
    words, content = attention_received(encoder, SENTENCE, special_tokens=False)
    assert words == SENTENCE.split()
    assert content == pytest.approx([share / sum(shares[1:-1]) for share in shares[1:-1]])


def test_the_model_is_left_as_it_was(encoder: SentenceTransformer) -> None:
    inner = encoder.transformers_model
    before = inner.config._attn_implementation
    assert before != "eager"
    encoder.train()
    with torch.no_grad():
        first = encoder.encode(SENTENCE, convert_to_tensor=True)
        encoder.train()
        attention_received(encoder, SENTENCE)
        assert inner.training
        assert inner.config._attn_implementation == before
        torch.testing.assert_close(encoder.encode(SENTENCE, convert_to_tensor=True), first)


def test_bad_input_is_refused(encoder: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="at least one word, got ' '"):
        attention_received(encoder, " ")
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=4)])
    with pytest.raises(ValueError, match="got StaticEmbedding"):
        attention_received(static, SENTENCE)
