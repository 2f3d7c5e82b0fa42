from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from st_extras.encoders.forward import Encoded, forward_pass, without_dropout
from st_extras.encoders.heads import apply_head, projection_head
from tests.helpers import Wrapped, draw


def test_a_pass_leaves_the_features_alone(still_encoder, sentences):
    features = still_encoder.preprocess(sentences)
    keys, ids = set(features), features["input_ids"].clone()
    output = forward_pass(still_encoder, features)
    torch.testing.assert_close(output["sentence_embedding"], still_encoder(dict(features))["sentence_embedding"])
    assert set(features) == keys
    assert torch.equal(features["input_ids"], ids)
    assert torch.equal(
        forward_pass(Wrapped(still_encoder), features)["sentence_embedding"], output["sentence_embedding"]
    )


def test_given_embeddings_replace_the_ids(still_encoder, sentences):
    features = still_encoder.preprocess(sentences)
    words = still_encoder.transformers_model.get_input_embeddings()(features["input_ids"])
    expected = forward_pass(still_encoder, features)["sentence_embedding"]
    same = forward_pass(still_encoder, {**features, "inputs_embeds": words})["sentence_embedding"]
    torch.testing.assert_close(same, expected)
    other = forward_pass(still_encoder, {**features, "inputs_embeds": 0 * words})["sentence_embedding"]
    assert not torch.allclose(other, expected)


def test_without_dropout_restores_every_modules_mode(encoder):
    encoder.train()
    encoder[0].eval()
    before = [module.training for module in encoder.modules()]
    assert len(set(before)) == 2
    with suppress(RuntimeError), without_dropout(encoder):
        assert not any(module.training for module in encoder.modules())
        encoder.train()  # what is done inside is undone too
        raise RuntimeError
    assert [module.training for module in encoder.modules()] == before


class DroppingLayer(GradientCheckpointingLayer):
    """Dropout by a module and by a function that reads the layer's own mode, as BART has them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4, dtype=torch.float64), nn.Dropout(0.5)
        self.passes: list[bool] = []

    def forward(self, hidden: Tensor) -> Tensor:
        self.passes.append(torch.is_grad_enabled())
        return nn.functional.dropout(self.dropout(self.linear(hidden)), 0.5, training=self.training)


@pytest.mark.parametrize("reentrant", [False, True])
def test_without_dropout_layers_are_still_checkpointed(reentrant):
    layers = nn.Sequential(DroppingLayer(), DroppingLayer())
    expected = layers[1].linear(layers[0].linear(draw(3, 4)))
    expected.sum().backward()
    gradients = [parameter.grad.clone() for parameter in layers.parameters()]
    layers.zero_grad()

    def checkpoint(function, *inputs):
        return torch.utils.checkpoint.checkpoint(function, *inputs, use_reentrant=reentrant)

    for layer in layers:
        layer.gradient_checkpointing, layer._gradient_checkpointing_func = True, checkpoint
    hidden = draw(3, 4).requires_grad_()
    with without_dropout(layers):
        output = layers(hidden)
    assert torch.equal(output, expected)
    assert all(module.training for module in layers.modules())
    output.sum().backward()  # each layer runs again, outside of the context
    assert [len(layer.passes) for layer in layers] == [2, 2]
    for parameter, gradient in zip(layers.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert all(module.training for module in layers.modules())
    assert all(layer._gradient_checkpointing_func is checkpoint for layer in layers)
    with torch.no_grad(), without_dropout(layers):
        assert not any(module.training for module in layers.modules())


def encoded_rows(rows: int = 6) -> Encoded:
    ids = torch.arange(3 * rows).view(rows, 3)
    return Encoded(draw(rows, 4), draw(rows, 3, 4, seed=1), ids, ids % 2 == 0)


@pytest.mark.parametrize("count", [1, 3])
def test_split_into_equal_blocks(count):
    whole = encoded_rows()
    blocks = whole.split(count)
    assert [len(block.sentence) for block in blocks] == [6 // count] * count
    for name, value in vars(whole).items():
        assert torch.equal(torch.cat([getattr(block, name) for block in blocks]), value)
        assert torch.equal(getattr(whole[2:5], name), value[2:5])


def test_apply_head_to_every_view_with_gradients():
    head = projection_head(4)
    views = [draw(3, 4).float().requires_grad_(), draw(2, 4, seed=1).float()]
    got = apply_head(head, views)
    assert [x.shape for x in got] == [(3, 4), (2, 4)]
    for x, view in zip(got, views, strict=True):
        torch.testing.assert_close(x, torch.tanh(view @ head[0].weight.T + head[0].bias))
    sum(x.sum() for x in got).backward()
    assert views[0].grad.any()
    assert all(parameter.grad.any() for parameter in head.parameters())


def test_another_dimension_is_refused():
    with pytest.raises(ValueError, match="4 dimensions, got 3"):
        apply_head(projection_head(4), [draw(2, 3)])
