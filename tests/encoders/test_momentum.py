from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.modules import Module
from torch import Tensor, nn

from st_extras.encoders.heads import projection_head
from st_extras.encoders.momentum import MomentumEncoder
from tests.helpers import differing, snapshot

MakeEncoder = Callable[..., SentenceTransformer]


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
    "nothing": lambda model: None,
    "trained": shift,
    "loaded": lambda model: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
    "double": lambda model: model.double(),
    "bfloat16": lambda model: model.bfloat16(),
    "peft": wrap_in_peft,
    "adapter": add_adapter,
}


@pytest.mark.parametrize("change", CHANGES)
def test_copy_is_exact_when_made_and_at_the_first_update(
    encoder: SentenceTransformer, sentences: list[str], change: str
) -> None:
    momentum_encoder = MomentumEncoder(encoder, 0.9)
    assert_exact_copy(momentum_encoder.encoder, encoder)
    CHANGES[change](encoder)
    momentum_encoder.update(encoder)
    assert_exact_copy(momentum_encoder.encoder, encoder)
    encoder.eval(), momentum_encoder.eval()
    features = encoder.preprocess(sentences)
    torch.testing.assert_close(momentum_encoder(features), encoder(dict(features))["sentence_embedding"].detach())


def test_the_first_update_takes_over_settings_as_well_and_keeps_the_tensors(encoder: SentenceTransformer) -> None:
    momentum_encoder = MomentumEncoder(encoder, 0.9)
    before = storages(momentum_encoder.encoder)
    encoder[1].pooling_mode = "cls"
    shift(encoder)
    momentum_encoder.update(encoder)
    assert momentum_encoder.encoder[1].pooling_mode == "cls"
    parameters = {parameter.data_ptr() for parameter in momentum_encoder.encoder.parameters()}
    assert parameters <= before


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.995, 1.0])
def test_later_updates_follow_equation_4(make_encoder: MakeEncoder, momentum: float) -> None:
    encoder = make_encoder().double()
    head = projection_head(16).double()
    momentum_encoder = MomentumEncoder(encoder, momentum, head=head)
    momentum_encoder.update(encoder, head)
    history = [(snapshot(encoder), snapshot(head))]
    for step in range(4):
        shift(encoder, 0.1 * (step + 1))
        shift(head, 0.2)
        momentum_encoder.update(encoder, head)
        history.append((snapshot(encoder), snapshot(head)))
    for which, own in enumerate((momentum_encoder.encoder, momentum_encoder.projection_head)):
        assert own is not None
        for name, value in own.named_parameters():
            # theta_p(k) = m^k theta_q(0) + (1 - m) sum_{s=1..k} m^(k-s) theta_q(s)
            expected = momentum**4 * history[0][which][name] + sum(
                (1 - momentum) * momentum ** (4 - s) * history[s][which][name] for s in range(1, 5)
            )
            torch.testing.assert_close(value.data, expected, rtol=0, atol=1e-12)


def test_buffers_are_copied_and_dtype_is_followed(encoder: SentenceTransformer) -> None:
    encoder.register_buffer("statistic", torch.zeros(3))
    momentum_encoder = MomentumEncoder(encoder, 0.9)
    momentum_encoder.update(encoder)
    encoder.statistic += 1.5
    encoder.double()
    momentum_encoder.update(encoder)
    assert momentum_encoder.encoder.statistic.tolist() == [1.5] * 3
    assert {p.dtype for p in momentum_encoder.encoder.parameters()} == {torch.float64}
    assert momentum_encoder.encoder.statistic.data_ptr() != encoder.statistic.data_ptr()


def test_half_precision_is_warned_about(encoder: SentenceTransformer, caplog: pytest.LogCaptureFixture) -> None:
    momentum_encoder = MomentumEncoder(encoder.bfloat16(), 0.995)
    with caplog.at_level(logging.WARNING):
        momentum_encoder.update(encoder)
        momentum_encoder.update(encoder)
    assert sum("half precision" in record.message for record in caplog.records) == 1


def test_no_hooks_come_along_and_hidden_states_still_work(encoder: SentenceTransformer, sentences: list[str]) -> None:
    features = encoder.preprocess(sentences)
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    encoder[0].model(**inputs, output_hidden_states=True)  # transformers installs hooks of its own here
    calls: list[int] = []
    encoder[0].register_forward_hook(lambda *args: calls.append(1))
    encoder[0].register_forward_pre_hook(lambda *args: calls.append(2))
    encoder.register_full_backward_hook(lambda *args: calls.append(3))
    momentum_encoder = MomentumEncoder(encoder)
    for _ in range(2):
        momentum_encoder(features)
        assert not calls
        states = momentum_encoder.encoder[0].model(**inputs, output_hidden_states=True).hidden_states
        assert len(states) == 3
        momentum_encoder.update(encoder)
    assert len(encoder[0].model(**inputs, output_hidden_states=True).hidden_states) == 3
    encoder(dict(features))
    assert calls, "the original lost its hooks"


def test_shared_tensors_stay_shared(encoder: SentenceTransformer) -> None:
    layers = encoder[0].model.encoder.layer
    layers[1].attention.self.query.weight = layers[0].attention.self.query.weight
    momentum_encoder = MomentumEncoder(encoder, 0.5)
    momentum_encoder.update(encoder)
    momentum_encoder.update(encoder)
    own = momentum_encoder.encoder[0].model.encoder.layer
    assert own[0].attention.self.query.weight is own[1].attention.self.query.weight
    assert len(list(momentum_encoder.parameters())) == len(list(encoder.parameters()))


def test_tokenizer_is_shared(encoder: SentenceTransformer) -> None:
    momentum_encoder = MomentumEncoder(encoder)
    momentum_encoder.update(encoder)
    assert momentum_encoder.encoder.tokenizer is encoder.tokenizer


@pytest.mark.parametrize("dropout", [True, False])
def test_dropout_as_asked(encoder: SentenceTransformer, sentences: list[str], dropout: bool) -> None:
    momentum_encoder = MomentumEncoder(encoder, dropout=dropout)
    features = encoder.preprocess(sentences)

    def varies() -> bool:
        return not torch.equal(momentum_encoder(features), momentum_encoder(features))

    momentum_encoder.train()
    assert varies() == dropout
    momentum_encoder.eval()
    assert not varies()


def test_gradient_checkpointing_is_left_to_the_original(encoder: SentenceTransformer) -> None:
    encoder[0].model.gradient_checkpointing_enable()
    momentum_encoder = MomentumEncoder(encoder)
    assert not any(getattr(m, "gradient_checkpointing", False) for m in momentum_encoder.modules())
    assert any(getattr(m, "gradient_checkpointing", False) for m in encoder.modules())


def test_trainer_does_not_replace_it(encoder: SentenceTransformer) -> None:
    holder = nn.Module()
    holder.model = encoder
    holder.momentum_encoder = MomentumEncoder(encoder)
    own = holder.momentum_encoder.encoder
    sentinel = nn.Identity()
    SentenceTransformerTrainer.override_model_in_loss(
        SentenceTransformerTrainer.__new__(SentenceTransformerTrainer), holder, sentinel
    )
    assert holder.model is sentinel
    assert holder.momentum_encoder.encoder is own


class Nested(Module):
    config_keys: list[str] = []  # noqa: RUF012

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return features

    def save(self, *args: Any, **kwargs: Any) -> None: ...


def test_refuses_what_the_trainer_would_replace(encoder: SentenceTransformer, make_encoder: MakeEncoder) -> None:
    encoder.append(Nested(make_encoder()))
    with pytest.raises(ValueError, match=r"'2\.model'"):
        MomentumEncoder(encoder)


def test_restored_state_is_kept_at_the_first_update(encoder: SentenceTransformer, make_encoder: MakeEncoder) -> None:
    first = MomentumEncoder(encoder, 0.9)
    first.update(encoder)
    shift(encoder)
    first.update(encoder)
    second = MomentumEncoder(encoder, 0.9)
    second.load_state_dict(first.state_dict())
    encoder.double()  # moved after the restore: values are kept, in the new dtype
    shift(encoder)
    for copied in (first, second):
        copied.update(encoder)
    assert not differing(snapshot(first), snapshot(second))
    third = MomentumEncoder(encoder, 0.9)
    third.update(encoder)
    assert differing(snapshot(first), snapshot(third))


def test_match_prepares_for_a_state_of_another_structure(make_encoder: MakeEncoder) -> None:
    encoder = make_encoder()
    add_adapter(encoder)
    trained = MomentumEncoder(encoder)
    trained.update(encoder)
    shift(encoder)
    trained.update(encoder)
    later = make_encoder()
    fresh = MomentumEncoder(later)
    add_adapter(later)
    fresh.match(later)
    fresh.load_state_dict(trained.state_dict())
    assert not differing(snapshot(trained), snapshot(fresh))


def test_other_parameters_after_the_first_update_are_refused(encoder: SentenceTransformer) -> None:
    momentum_encoder = MomentumEncoder(encoder)
    momentum_encoder.update(encoder)
    add_adapter(encoder)
    with pytest.raises(ValueError, match="parameters have changed since training began"):
        momentum_encoder.update(encoder)


@pytest.mark.parametrize("momentum", [-0.1, 1.1, float("nan"), True, "0.9", None])
def test_momentum_is_checked(encoder: SentenceTransformer, momentum: Any) -> None:
    with pytest.raises(ValueError, match=rf"^momentum must be between 0 and 1, got {momentum!r}\.$"):
        MomentumEncoder(encoder, momentum)


def test_frozen_encoder_is_refused(encoder: SentenceTransformer) -> None:
    momentum_encoder = MomentumEncoder(encoder)
    encoder.requires_grad_(False)
    with pytest.raises(ValueError, match="model is frozen"):
        momentum_encoder.update(encoder)


def test_deep_copies_are_independent(encoder: SentenceTransformer) -> None:
    momentum_encoder = MomentumEncoder(encoder, 0.5)
    momentum_encoder.update(encoder)
    twin = copy.deepcopy(momentum_encoder)
    shift(encoder)
    before = snapshot(twin)
    momentum_encoder.update(encoder)
    assert not differing(before, snapshot(twin))
    twin.update(encoder)
    assert not differing(snapshot(momentum_encoder), snapshot(twin))


def bytes_of(tensors: Iterator[Tensor]) -> int:
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


def test_memory_is_one_copy_of_the_weights(encoder: SentenceTransformer) -> None:
    class Wrapped(nn.Module):  # stands for DistributedDataParallel
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    momentum_encoder = MomentumEncoder(encoder)
    for _ in range(3):
        momentum_encoder.update(Wrapped(encoder))
    assert bytes_of(momentum_encoder.parameters()) == bytes_of(encoder.parameters())
    assert all(parameter.grad is None for parameter in momentum_encoder.parameters())


def test_frozen_parameters_are_the_models_own(make_encoder: MakeEncoder) -> None:
    """LoRA: the copy holds adapters, not another base."""
    for frozen_before in (True, False):
        model = make_encoder()
        if frozen_before:
            add_adapter(model)
        momentum = MomentumEncoder(model, 0.5)
        if not frozen_before:
            add_adapter(model)
        momentum.match(model)
        momentum.update(model)
        own = [
            mine.numel()
            for mine, theirs in zip(momentum.encoder.parameters(), model.parameters(), strict=True)
            if mine is not theirs
        ]
        assert sum(own) == sum(p.numel() for p in model.parameters() if p.requires_grad)
        before = snapshot(model)
        shift(model)
        momentum.update(model)
        for name, value in momentum.encoder.state_dict().items():
            torch.testing.assert_close(value, (before[name] + model.state_dict()[name]) / 2)


def test_what_is_trained_later_gets_a_copy(encoder: SentenceTransformer) -> None:
    words = encoder[0].model.get_input_embeddings().weight.requires_grad_(False)
    momentum = MomentumEncoder(encoder, 0.5)
    momentum.update(encoder)
    shift(encoder)
    words.requires_grad_(True)
    momentum.update(encoder)
    before = words.detach().clone()
    shift(encoder)
    momentum.update(encoder)
    own = momentum.encoder[0].model.get_input_embeddings().weight
    torch.testing.assert_close(own, (before + words.detach()) / 2)
    assert not own.requires_grad
    assert words.requires_grad
