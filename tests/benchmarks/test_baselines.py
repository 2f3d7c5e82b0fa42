"""Other people's losses: the rows that they get, what they train."""

import copy
from typing import Any

import pytest
import torch

from benchmarks import baselines, building
from st_extras.encoders import use_length_buckets
from tests.fixtures import SENTENCES


def test_damaged_rows_keep_some_of_the_words_in_order():
    rows = baselines.damaged(SENTENCES, seed=0)
    assert list(rows["text"]) == SENTENCES
    for noisy, text in zip(rows["damaged"], SENTENCES, strict=True):
        words = iter(text.split())
        assert noisy
        assert all(word in words for word in noisy.split()), "other words, or in another order"
    kept, whole = (sum(len(text.split()) for text in rows[column]) for column in ("damaged", "text"))
    assert 0.2 < kept / whole < 0.6
    assert baselines.damaged(["a b"], seed=0, deleted=1.0)["damaged"][:] == ["a"]
    assert list(baselines.damaged(SENTENCES, seed=0, deleted=0.0)["damaged"]) == SENTENCES
    assert list(rows["damaged"]) != list(baselines.damaged(SENTENCES, seed=1)["damaged"])


def test_an_eighth_of_the_rows_of_contrastive_tension_are_a_sentence_twice():
    text = [f"sentence {number}" for number in range(4000)]
    rows = baselines.tension_pairs(text, seed=0)
    assert list(rows["first"]) == text
    same = sum(one == other for one, other in zip(rows["first"], rows["second"], strict=True)) / len(text)
    assert same == pytest.approx(1 / 8, abs=0.02)
    assert set(rows["second"]) <= set(text)


@pytest.mark.parametrize("tied", [True, False])
def test_the_decoder_starts_from_the_encoder(encoder, tied):
    torch.nn.init.normal_(encoder.transformers_model.encoder.layer[0].output.dense.weight)  # type: ignore[union-attr]
    use_length_buckets(encoder, 2)
    before = copy.deepcopy(encoder.state_dict())
    name = encoder.transformers_model.config._name_or_path  # type: ignore[union-attr]
    loss: Any = baselines.denoising_loss(encoder, tie_encoder_decoder=tied)
    own = dict(encoder.transformers_model.named_parameters())  # type: ignore[union-attr]
    decoder = dict(loss.decoder.bert.named_parameters())
    shared = own.keys() & decoder.keys()
    assert len(shared) > 10
    for key in shared:
        assert torch.equal(own[key], decoder[key])
        assert (own[key] is decoder[key]) is tied
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())
    assert encoder.transformers_model.config._name_or_path == name  # type: ignore[union-attr]


METHODS: dict[str, dict[str, Any]] = {
    "tsdae": {"loss": "DenoisingAutoEncoderLoss", "rows": {"deleted": 0.5}},
    "gist": {"loss": "GISTEmbedLoss", "complementary": "simcse", "options": {"margin": 0.1}},
}


def test_the_guide_of_gist_is_frozen(encoder, tmp_path):
    encoder.save(str(tmp_path / "simcse"))
    loss: Any = building.make_loss(encoder, METHODS["gist"], SENTENCES, {"simcse": tmp_path / "simcse"}, tmp_path)
    assert loss.margin == 0.1
    assert not any(parameter.requires_grad for parameter in loss.guide.parameters())
    assert not loss.guide.training
    assert building.has_negatives(METHODS["gist"])
    assert not building.has_negatives(METHODS["tsdae"])
    assert not building.has_negatives({"loss": "PaSeRLoss", "masking": {}})
