from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from st_extras.encoders.momentum import MomentumEncoder
from tests.helpers import differing, snapshot


def shift(module: nn.Module, by: float = 0.01) -> None:
    """What an optimizer's step does, for these tests."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(by)


def storages(module: nn.Module) -> set[int]:
    return {tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers())}


def assert_exact_copy(own: nn.Module, theirs: nn.Module) -> None:
    mine, other = own.state_dict(), theirs.state_dict()
    assert mine.keys() == other.keys()
    assert not differing(other, mine)
    assert [value.dtype for value in mine.values()] == [value.dtype for value in other.values()]
    frozen = {parameter.data_ptr() for parameter in theirs.parameters() if not parameter.requires_grad}
    assert storages(own) & storages(theirs) == frozen
    assert not any(parameter.requires_grad for parameter in own.parameters())


def add_adapter(model: SentenceTransformer) -> None:
    peft = pytest.importorskip("peft")
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"]))


def wrap_in_peft(model: SentenceTransformer) -> None:
    peft = pytest.importorskip("peft")
    model[0].model = peft.get_peft_model(model[0].model, peft.LoraConfig(r=2, target_modules=["query"]))


CHANGES: dict[str, Callable[[SentenceTransformer], Any]] = {
    "trained": shift,
    "bfloat16": lambda model: model.bfloat16(),
    "peft": wrap_in_peft,
}


@pytest.mark.parametrize("change", CHANGES)
def test_copy_is_exact_when_made_and_at_the_first_update(encoder, sentences, change):
    momentum_encoder = MomentumEncoder(encoder, 0.9)
    assert_exact_copy(momentum_encoder.encoder, encoder)
    CHANGES[change](encoder)
    momentum_encoder.update(encoder)
    assert_exact_copy(momentum_encoder.encoder, encoder)
    encoder.eval(), momentum_encoder.eval()
    features = encoder.preprocess(sentences)
    torch.testing.assert_close(momentum_encoder(features), encoder(dict(features))["sentence_embedding"].detach())


def test_the_dtype_is_followed_later_too(encoder):
    momentum_encoder = MomentumEncoder(encoder, 0.9)
    momentum_encoder.update(encoder)
    momentum_encoder.update(encoder.double())
    assert {p.dtype for p in momentum_encoder.encoder.parameters()} == {torch.float64}


def test_later_updates_follow_equation_4(make_encoder):
    encoder, momentum = make_encoder().double(), 0.9
    encoder.register_buffer("statistic", torch.zeros(3))
    head = nn.Linear(16, 16).double()
    momentum_encoder = MomentumEncoder(encoder, momentum, head=head)
    momentum_encoder.update(encoder, head)
    history = [(snapshot(encoder), snapshot(head))]
    for step in range(2):
        shift(encoder, 0.1 * (step + 1))
        shift(head, 0.2)
        encoder.statistic += 1.5
        momentum_encoder.update(encoder, head)
        history.append((snapshot(encoder), snapshot(head)))
    for which, own in enumerate((momentum_encoder.encoder, momentum_encoder.projection_head)):
        assert own is not None
        for name, value in own.named_parameters():
            # theta_p(k) = m^k theta_q(0) + (1 - m) sum_{s=1..k} m^(k-s) theta_q(s)
            expected = momentum**2 * history[0][which][name] + sum(
                (1 - momentum) * momentum ** (2 - s) * history[s][which][name] for s in range(1, 3)
            )
            torch.testing.assert_close(value.data, expected, rtol=0, atol=1e-12)
    assert momentum_encoder.encoder.statistic.tolist() == [3.0] * 3  # buffers are copied


def test_no_hooks_come_along_and_hidden_states_still_work(encoder, sentences):
    features = encoder.preprocess(sentences)
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    encoder[0].model(**inputs, output_hidden_states=True)  # transformers installs hooks of its own here
    calls: list[int] = []
    encoder[0].register_forward_hook(lambda *args: calls.append(1))
    momentum_encoder = MomentumEncoder(encoder)
    momentum_encoder.update(encoder)
    momentum_encoder(features)
    assert not calls
    for model in (momentum_encoder.encoder, encoder):
        assert len(model[0].model(**inputs, output_hidden_states=True).hidden_states) == 3
    encoder(dict(features))
    assert calls, "the original lost its hooks"


def test_other_parameters_after_the_first_update_are_refused(encoder):
    momentum_encoder = MomentumEncoder(encoder)
    momentum_encoder.update(encoder)
    add_adapter(encoder)
    with pytest.raises(ValueError, match="parameters have changed"):
        momentum_encoder.update(encoder)


@pytest.mark.parametrize("frozen_before", [True, False])
def test_frozen_parameters_are_the_models_own(encoder, frozen_before):
    """LoRA: the copy holds adapters, not another base."""
    if frozen_before:
        add_adapter(encoder)
    momentum = MomentumEncoder(encoder, 0.5)
    if not frozen_before:
        add_adapter(encoder)
    momentum.update(encoder)
    pairs = zip(momentum.encoder.parameters(), encoder.parameters(), strict=True)
    assert all((mine is theirs) == (not theirs.requires_grad) for mine, theirs in pairs)
    before = snapshot(encoder)
    shift(encoder)
    momentum.update(encoder)
    for name, value in momentum.encoder.state_dict().items():
        torch.testing.assert_close(value, (before[name] + encoder.state_dict()[name]) / 2)


def test_what_is_trained_later_is_refused(encoder):
    """The copy shares it, and would follow it without a momentum."""
    weight = encoder[0].model.encoder.layer[-1].output.dense.weight.requires_grad_(False)
    momentum = MomentumEncoder(encoder, 0.5)
    momentum.update(encoder)
    momentum.update(encoder)
    weight.requires_grad_(True)
    with pytest.raises(ValueError, match="parameters have changed"):
        momentum.update(encoder)


def test_a_restored_copy_is_not_made_again(encoder):
    momentum = MomentumEncoder(encoder, 0.5)
    momentum.update(encoder)
    before, restored = snapshot(encoder), MomentumEncoder(encoder, 0.5)
    shift(encoder)
    restored.load_state_dict(momentum.state_dict())
    restored.renew(encoder)
    restored.update(encoder)
    for name, value in restored.encoder.state_dict().items():
        torch.testing.assert_close(value, (before[name] + encoder.state_dict()[name]) / 2)
