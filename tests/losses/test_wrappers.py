"""Every loss inside Sentence Transformers' loss modifiers: each pair works, or is refused in one sentence."""

import copy

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import AdaptiveLayerLoss, Matryoshka2dLoss, MatryoshkaLoss

from st_extras.losses import DCLRLoss, SLTFAILoss
from tests.helpers import columns, differing, snapshot, some_fast
from tests.losses.cases import CASES, HEAD, PLAIN

WRAPPERS = {
    "Matryoshka": lambda model, loss: MatryoshkaLoss(model, loss, [16, 8]),
    "AdaptiveLayer": lambda model, loss: AdaptiveLayerLoss(model, loss, n_layers_per_step=-1),
    "Matryoshka2d": lambda model, loss: Matryoshka2dLoss(
        model, loss, [16, 8], n_layers_per_step=-1, n_dims_per_step=-1
    ),
}
ALL = [("Matryoshka", name) for name in CASES] + [("AdaptiveLayer", name) for name in PLAIN]
ALL += [("Matryoshka2d", name) for name in ("consert", "adcse")]
FAST = [pair for pair in ALL if pair[1] in ("simcse, head", "consert", "adcse", "slt-fai", "paser")]


@pytest.mark.parametrize(("wrapper", "name"), some_fast(ALL, FAST))
def test_it_works_or_is_refused(encoder, name, wrapper):
    case = CASES[name]
    loss = case.make(encoder.train())
    wrapped, features = WRAPPERS[wrapper](encoder, loss), case.features(encoder)
    before = snapshot(loss)
    if case.refused and not (case.refused == HEAD and wrapper == "AdaptiveLayer"):  # all layers have one dimension
        with pytest.raises(ValueError, match=case.refused):
            wrapped(features, None)
        assert "adversary" not in str(differing(before, snapshot(loss)))
        return
    for _ in range(2):  # the first may be a warm-up
        value = wrapped(features, None)
        assert value.dim() == 0
        assert value.isfinite()
    value.backward()
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in encoder.parameters())
    assert loss.state_dict().get("steps", 2) == 2  # however often the loss runs for one batch


@pytest.mark.parametrize("count", [1, 2])
def test_each_layer_is_the_encoder_cut_there(make_encoder, sentences, count):
    encoder = make_encoder(dropout=0.0, layers=2)
    loss = DCLRLoss(encoder, noise_ratio=0)
    features = [encoder.preprocess(texts) for texts in columns(sentences, count).values()]
    value = AdaptiveLayerLoss(encoder, loss, n_layers_per_step=-1, kl_temperature=0)(features, None)
    parts = []
    for layers in range(3):
        loss.model = copy.deepcopy(encoder)
        loss.model.transformers_model.encoder.layer = encoder.transformers_model.encoder.layer[:layers]
        parts.append(loss(features))
    torch.testing.assert_close(value, parts[2] + sum(parts[:2]) / 2)


def test_terms_on_tokens_over_layers_take_one_column(encoder, sentences, frequency_table):
    loss = AdaptiveLayerLoss(encoder, SLTFAILoss(encoder, frequency_table=frequency_table))
    with pytest.raises(ValueError, match=r"AdaptiveLayerLoss .* one column"):
        loss([encoder.preprocess(sentences)] * 2, None)
