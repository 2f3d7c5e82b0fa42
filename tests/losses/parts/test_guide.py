"""DCLR's guides; what their cosines do to the loss: tests/losses/test_dclr.py."""

from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import EmbeddingTable
from st_extras.functional import cosine_scores
from st_extras.losses import DCLRLoss, SimCSELoss
from st_extras.losses.parts import guide as guide_module
from st_extras.losses.parts.guide import make_guide
from tests.helpers import columns, train


def cosines(guide: Any, features: dict[str, Any]) -> torch.Tensor:
    """The guide's cosines of a column's sentences."""
    sentences, candidates = guide([[features]])
    found: torch.Tensor = sentences @ candidates.T
    return found


def cosines_now(model: SentenceTransformer, sentences: list[str]) -> torch.Tensor:
    """The model's cosines, without dropout."""
    embeddings = model.encode(sentences, convert_to_tensor=True)
    return cosine_scores(embeddings, embeddings)


def test_the_name_in_the_model_card(make_encoder, sentences, tmp_path):
    model, guide = make_encoder(), make_encoder(seed=1)
    guide.save(str(tmp_path / "guide"))

    def described(encoder: Any, table: Any = None) -> Any:
        loss = DCLRLoss(model, complementary_model=encoder, complementary_table=table)
        return loss.get_config_dict()["complementary"]

    assert described(tmp_path / "guide") == str(tmp_path / "guide")
    table = EmbeddingTable.compute(model, guide, sentences, show_progress_bar=False)
    assert described(None, table) == "EmbeddingTable of 8 sentences, 16 dimensions"
    assert [described(word) for word in ("self", "start", None)] == ["self", "start", None]


def test_without_a_guide_a_log_message_names_the_alternatives(encoder, caplog):
    caplog.set_level("INFO", logger=guide_module.__name__)
    DCLRLoss(encoder, complementary_model="start")
    assert not caplog.records
    DCLRLoss(encoder)
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert all(part in record.message for part in ("no negative is left out", "path", '"start"', '"self"'))


def test_start_is_a_copy_of_the_model_when_the_loss_is_made(make_encoder, sentences, tmp_path):
    """Also of a trained one, which has the trainer's data in its card and autocast in place of its forward pass."""
    model = make_encoder()
    train(model, SimCSELoss(model), columns(sentences), tmp_path, bf16=True)
    features, expected = model.preprocess(sentences), cosines_now(model, sentences)
    guide = make_guide(model.train(), "start", None)
    train(model, SimCSELoss(model), columns(sentences), tmp_path)
    found = cosines(guide, features)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert (cosines_now(model, sentences) - expected).abs().max() > 0.01
    assert torch.equal(cosines(guide, features), found)  # without dropout
    assert not found.requires_grad
    assert not list(guide.parameters())
    assert list(guide.state_dict()) == ["_extra_state"]  # its embeddings of the probe texts


@pytest.mark.slow
def test_another_guide_after_a_resume_is_refused(make_encoder, sentences, tmp_path):
    def training(seed: int, **options: Any) -> None:
        model = make_encoder()
        make_encoder(seed=seed).save(str(tmp_path / "guide"))  # trained again at the same place
        made = DCLRLoss(model, complementary_model=tmp_path / "guide")
        settings = {"save_strategy": "steps", "save_steps": 1, "max_steps": 2}
        train(model, made, columns(sentences), tmp_path / "run", **settings, **options)

    training(1)
    checkpoint = str(tmp_path / "run" / "checkpoint-1")
    training(1, resume=checkpoint)
    with pytest.raises(ValueError, match="complementary_model must be the encoder"):
        training(2, resume=checkpoint)
