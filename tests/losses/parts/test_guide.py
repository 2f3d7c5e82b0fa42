"""DCLR's guides; what their cosines do to the loss: tests/losses/test_dclr.py."""

from typing import Any

import pytest
import torch

from st_extras.encoders import EmbeddingTable
from st_extras.losses import DCLRLoss, SimCSELoss
from st_extras.losses.parts.guide import make_guide
from tests.helpers import columns, train


def test_the_name_in_the_model_card(make_encoder, sentences, tmp_path):
    model, guide = make_encoder(), make_encoder(seed=1)
    guide.save(str(tmp_path))
    table = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    for option, value, name in (
        ("complementary_model", tmp_path, str(tmp_path)),
        ("complementary_model", "start", "start"),
        ("complementary_table", table, "EmbeddingTable of 8 sentences, 16 dimensions"),
    ):
        assert DCLRLoss(model, **{option: value}).get_config_dict()["complementary"] == name


def test_start_is_a_copy_of_the_model_when_the_loss_is_made(make_encoder, sentences, tmp_path):
    """Also of a trained one, which has the trainer's data in its card and autocast in place of its forward pass."""
    model = make_encoder()
    train(model, SimCSELoss(model), columns(sentences), tmp_path, bf16=True)
    expected = model.encode(sentences, convert_to_tensor=True, normalize_embeddings=True)
    guide: Any = make_guide(model.train(), "start", None)
    train(model, SimCSELoss(model), columns(sentences), tmp_path)
    assert (model.encode(sentences, convert_to_tensor=True) - expected).abs().max() > 0.01
    for embeddings in (*guide([[model.preprocess(sentences)]]), *guide([[model.preprocess(sentences)]])):
        torch.testing.assert_close(embeddings, expected, atol=1e-6, rtol=0)  # without dropout
        assert not embeddings.requires_grad
    assert not list(guide.parameters())


def test_another_guide_after_a_resume_is_refused(make_encoder):
    model = make_encoder()
    first, again, other = (DCLRLoss(model, complementary_model=make_encoder(seed=seed)) for seed in (1, 1, 2))
    again.load_state_dict(first.state_dict())
    with pytest.raises(ValueError, match=r"^complementary_model must be the encoder"):
        other.load_state_dict(first.state_dict())
