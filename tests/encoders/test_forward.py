from contextlib import suppress

import pytest
import torch

from st_extras.encoders.forward import forward_pass, without_dropout
from st_extras.encoders.heads import apply_head, projection_head
from tests.helpers import draw


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


def test_a_head_refuses_truncated_embeddings():
    with pytest.raises(ValueError, match="4 dimensions, got 3"):
        apply_head(projection_head(4), [draw(2, 3)])
