"""LoRA adapters: W + (alpha / r) B A, merged or removed without a trace."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

from st_extras.encoders import load_encoder
from st_extras.encoders.adapters import lora_adapters, trained_state
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot

peft = pytest.importorskip("peft")


def moved(model: SentenceTransformer, seed: int = 0) -> dict[str, torch.Tensor]:
    """Change every adapter, and return the weights that each layer then stands for, by hand."""
    generator = torch.Generator().manual_seed(seed)
    body, expected = model[0].auto_model, {}
    for name, module in body.named_modules():
        if not isinstance(module, peft.tuners.lora.LoraLayer):
            continue
        a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
        with torch.no_grad():
            b.copy_(torch.randn(b.shape, generator=generator))
        update = module.scaling["default"] * (b @ a)
        update = update.T if type(module.base_layer).__name__ == "Conv1D" else update
        expected[f"{name}.weight"] = (module.base_layer.weight + update).detach()
    return expected


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_merged_is_the_sum_by_hand(tmp_path, encoder, kind):
    model = encoder if kind == "bert" else load_encoder(build_decoder(tmp_path / kind, kind), device="cpu")
    before, plain = model.encode(SENTENCES), snapshot(model)
    layers = {
        name for name, module in model[0].auto_model.named_modules() if type(module).__name__ in ("Linear", "Conv1D")
    }
    with lora_adapters(model, 4) as merge:
        np.testing.assert_array_equal(model.encode(SENTENCES), before)
        expected = moved(model)
        assert {name.removesuffix(".weight") for name in expected} == layers
        during = model.encode(SENTENCES)
        merge()
    assert snapshot(model).keys() == plain.keys()
    assert all(parameter.requires_grad for parameter in model.parameters())
    for name, value in expected.items():
        torch.testing.assert_close(model[0].auto_model.get_parameter(name).detach(), value)
    np.testing.assert_allclose(model.encode(SENTENCES), during, atol=1e-4)
    assert np.abs(during - before).max() > 0.1
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(again.encode(SENTENCES), model.encode(SENTENCES))
    assert not list((tmp_path / "saved").rglob("adapter*"))


def test_only_adapters_and_what_follows_the_transformer_are_trained(encoder):
    dense = Dense(16, 8)
    dense.register_buffer("steps", torch.zeros(1))
    model = SentenceTransformer(modules=[*encoder, dense], device="cpu")
    model[0].auto_model.requires_grad_(False)
    with lora_adapters(model, 2):
        trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        assert {name for name in trained if ".lora_" not in name} == {"2.linear.weight", "2.linear.bias"}
        assert {*trained, "2.steps"} <= trained_state(model).keys()
        assert "0.model.embeddings.word_embeddings.weight" not in trained_state(model)
    assert not any(parameter.requires_grad for parameter in model[0].parameters())  # frozen as before
    assert all(parameter.requires_grad for parameter in model[2].parameters())


def test_adapted_removes_what_was_not_merged(encoder):
    plain = snapshot(encoder)
    with lora_adapters(encoder, 2):
        moved(encoder)
    assert differing(plain, snapshot(encoder)) == set()


def test_adapters_of_half_precision_weights_are_in_full_precision(encoder):
    with lora_adapters(encoder.bfloat16(), 2):
        assert {p.dtype for p in encoder.parameters() if p.requires_grad} == {torch.float32}
        assert {p.dtype for p in encoder.parameters() if not p.requires_grad} == {torch.bfloat16}
    assert {p.dtype for p in encoder.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("lora", [0, True, {"r": 2, "target_modules": ["nothing"]}])
def test_what_is_refused(encoder, lora):
    plain = snapshot(encoder)
    with pytest.raises(ValueError, match=r"lora|target"), lora_adapters(encoder, lora):
        pass
    assert differing(plain, snapshot(encoder)) == set()
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    with lora_adapters(encoder, 2), pytest.raises(ValueError, match=r"^lora needs a model without adapters"):
        lora_adapters(encoder, 2).__enter__()
