"""Every loss inside Sentence Transformers' loss modifiers: each pair works, or is refused in one sentence."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import AdaptiveLayerLoss, Matryoshka2dLoss, MatryoshkaLoss
from torch import nn

from st_extras.losses import DCLRLoss, SimCSELoss, SLTFAILoss
from tests.helpers import columns, differing, snapshot, some_fast
from tests.losses.cases import CASES, FAST, HEAD

WRAPPERS: dict[str, Callable[[SentenceTransformer, nn.Module], nn.Module]] = {
    "Matryoshka": lambda model, loss: MatryoshkaLoss(model, loss, [16, 8]),
    "AdaptiveLayer": lambda model, loss: AdaptiveLayerLoss(model, loss, n_layers_per_step=-1),
    "Matryoshka2d": lambda model, loss: Matryoshka2dLoss(
        model, loss, [16, 8], n_layers_per_step=-1, n_dims_per_step=-1
    ),
}


@pytest.mark.parametrize("name", some_fast(CASES, FAST))
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_it_works_or_is_refused(encoder, name, wrapper):
    case = CASES[name]
    loss = case.make(encoder.train())
    wrapped, features = WRAPPERS[wrapper](encoder, loss), case.features(encoder)
    if case.refused and not (case.refused == HEAD and wrapper == "AdaptiveLayer"):  # all layers have one dimension
        before = snapshot(loss)
        with pytest.raises(
            ValueError, match=case.refused.replace("MatryoshkaLoss", "(MatryoshkaLoss|AdaptiveLayerLoss)")
        ):
            wrapped(features, None)
        assert "adversary" not in str(differing(before, snapshot(loss)))
        return
    before = snapshot(encoder)
    optimizer = torch.optim.SGD([parameter for parameter in wrapped.parameters() if parameter.requires_grad], lr=0.01)
    for _ in range(2):  # the first may be a warm-up
        value = wrapped(features, None)
        assert value.dim() == 0
        assert value.isfinite()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert differing(before, snapshot(encoder))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("make", "options"), [(SimCSELoss, {}), (DCLRLoss, {"noise_ratio": 0}), (SimCSELoss, {"projection": True})]
)
def test_each_layer_is_the_encoder_cut_there(make_encoder, sentences, count, make, options):
    encoder = make_encoder(dropout=0.0, layers=3).eval()  # where equal views are meant
    features = [encoder.preprocess(texts) for texts in columns(sentences, count).values()]
    loss = make(encoder, **options)
    value = AdaptiveLayerLoss(encoder, loss, n_layers_per_step=-1, kl_temperature=0)(features, None)
    parts = []
    for layers in range(4):
        cut: Any = copy.deepcopy(encoder)
        cut.transformers_model.encoder.layer = cut.transformers_model.encoder.layer[:layers]
        loss.model = cut
        parts.append(loss(features))
    torch.testing.assert_close(value, parts[3] + sum(parts[:3]) / 3)


def test_over_layers_the_terms_on_tokens_count_once(make_encoder, sentences, frequency_table):
    encoder = make_encoder(layers=3)
    features = [encoder.preprocess(sentences)]
    loss = SLTFAILoss(encoder, frequency_table=frequency_table)
    wrapped = AdaptiveLayerLoss(encoder, loss, n_layers_per_step=-1)
    for _ in range(3):
        wrapped(features, None).backward()
    state = loss.state_dict()
    assert state["steps"] == state["adversarial.steps"] == 3
    with pytest.raises(ValueError, match=r"^AdaptiveLayerLoss takes this combination .* with one column, got 2\.$"):
        wrapped(features * 2, None)
