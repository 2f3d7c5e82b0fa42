import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import FunnelBaseModel, FunnelConfig

from st_extras.losses import FrequencyAdversarialLoss, PaSeRLoss, SLTFAILoss
from tests.helpers import generator
from tests.losses.phrases import features, make_loss


@pytest.fixture
def funnel(encoder, tmp_path):
    """A tiny Funnel without its decoder: it gives half as many token embeddings as tokens."""
    size = len(encoder.tokenizer)
    config = FunnelConfig(vocab_size=size, block_sizes=[1, 1], d_model=16, n_head=2, d_head=8, d_inner=32)
    FunnelBaseModel(config).save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    return SentenceTransformer(modules=[Transformer(str(tmp_path), max_seq_length=16), Pooling(16)], device="cpu")


def test_tokens_pooled_inside_are_refused_with_what_to_do(funnel, sentences, frequency_table):
    message = r"needs an encoder with one token embedding for each token, got \d+ for \d+ tokens"
    rows = [funnel.preprocess(sentences)]
    for loss, batch, remedy in (
        (FrequencyAdversarialLoss(funnel, frequency_table=frequency_table), rows, "adversarial_weight=0"),
        (SLTFAILoss(funnel, frequency_table=frequency_table), rows, "adversarial_weight=0"),
        (PaSeRLoss(funnel, num_decoder_layers=1), features(funnel), "set mlm_weight=0"),
    ):
        with pytest.raises(ValueError, match=rf"{message}.*{remedy}"):
            loss(batch)


def test_the_terms_that_need_no_tokens_work(funnel, sentences, frequency_table):
    loss = SLTFAILoss(funnel, frequency_table=frequency_table, adversarial_weight=0, generator=generator())
    assert all(term.isfinite() for term in loss([funnel.preprocess(sentences)]).values())
    assert make_loss(funnel)(features(funnel)).isfinite()
