"""Encoders that pool tokens inside: the terms on tokens are refused, the others work."""

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import FunnelBaseModel, FunnelConfig

from st_extras.losses import FrequencyAdversarialLoss, PaSeRLoss, SLTFAILoss
from tests.helpers import generator
from tests.losses.phrases import features, make_loss


def test_terms_on_tokens_need_one_embedding_for_each_token(encoder, sentences, frequency_table, tmp_path):
    """A Funnel without its decoder gives half as many token embeddings as tokens."""
    size = len(encoder.tokenizer)
    config = FunnelConfig(vocab_size=size, block_sizes=[1, 1], d_model=16, n_head=2, d_head=8, d_inner=32)
    FunnelBaseModel(config).save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    funnel = SentenceTransformer(modules=[Transformer(str(tmp_path), max_seq_length=16), Pooling(16)], device="cpu")
    rows, table = [funnel.preprocess(sentences)], {"frequency_table": frequency_table}
    for loss, batch, remedy in (
        (FrequencyAdversarialLoss(funnel, **table), rows, "adversarial_weight=0"),
        (SLTFAILoss(funnel, **table), rows, "adversarial_weight=0"),
        (PaSeRLoss(funnel, num_decoder_layers=1), features(funnel), "mlm_weight=0"),
    ):
        with pytest.raises(ValueError, match=rf"one token embedding for each token, .*{remedy}"):
            loss(batch)
    able = SLTFAILoss(funnel, **table, adversarial_weight=0, generator=generator())
    assert all(term.isfinite() for term in able(rows).values())
    assert make_loss(funnel)(features(funnel)).isfinite()
