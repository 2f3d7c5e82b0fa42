"""Dropout set after loading: it acts, is saved, is what a model built with it has, and nothing else changes."""

from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from st_extras.encoders.dropout import set_dropout
from tests.architectures.encoders import build
from tests.fixtures import SENTENCES
from tests.helpers import some_fast

WITHOUT = ("ALBERT", "ModernBERT", "Llama", "BLOOM", "CLIP text")
"""Architectures whose dropout is 0 unless it is set."""
WITH = ("T5 encoder", "DeBERTa-v3")


def rates(model: nn.Module) -> dict[str, Any]:
    """Every module's class and whatever number it holds that may be a rate."""
    return {
        name: (type(module).__name__, {k: v for k, v in vars(module).items() if k == "p" or "drop" in k})
        for name, module in model.named_modules()
    }


def dropout_acts(model: SentenceTransformer) -> bool:
    """Whether two passes of a text in training mode differ."""
    model.train()
    first, second = (model(dict(model.preprocess(SENTENCES)))["sentence_embedding"] for _ in range(2))
    model.eval()
    return not torch.equal(first, second)


@pytest.mark.parametrize("kind", some_fast([*WITHOUT, *WITH], ["ModernBERT", "Llama"]))
def test_it_acts_and_is_saved_and_nothing_else_changes(tmp_path, kind):
    model = build(kind, tmp_path / "enc")
    assert dropout_acts(model) == (kind in WITH)
    expected, weights, state = model.encode(SENTENCES), dict(model.named_parameters()), torch.get_rng_state()
    modes = [module.training for module in model.modules()]
    set_dropout(model, 0.25)
    assert torch.equal(state, torch.get_rng_state())
    assert modes == [module.training for module in model.modules()]
    assert all(weights[name] is value for name, value in model.named_parameters())
    assert dropout_acts(model)
    np.testing.assert_array_equal(model.encode(SENTENCES), expected)
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert rates(again) == rates(model)
    assert dropout_acts(again)
    set_dropout(again, 0)
    assert not dropout_acts(again)
    again.save(str(tmp_path / "off"))
    assert rates(SentenceTransformer(str(tmp_path / "off"), device="cpu")) == rates(again)


def test_only_the_dropouts_of_the_tokens_are_set(tmp_path):
    model = build("BART", tmp_path / "enc")
    set_dropout(model, 0.25)
    config = model[0].auto_model.config
    assert (config.dropout, config.attention_dropout) == (0.25, 0.25)
    assert (config.activation_dropout, config.classifier_dropout, config.encoder_layerdrop) == (0.0, 0.0, 0.0)


def test_an_architecture_that_takes_no_rate_is_refused(tmp_path):
    """MPT declares its rate a whole number."""
    model = build("MPT", tmp_path / "enc")
    with pytest.raises(ValueError, match=r"^dropout must be 0 or None for a MptModel"):
        set_dropout(model, 0.1)
    set_dropout(model, 0)
