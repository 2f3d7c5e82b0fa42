"""What every loss keeps, over all cases of ``cases.py``.

Several processes against one: tests/training/test_distributed.py. Mini-batches with dropout, and their memory:
parts/test_gradient_cache.py. What the settings may be, and that each acts: test_settings.py.
"""

import copy
import functools
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch import Tensor
from torch.overrides import TorchFunctionMode

import st_extras
from st_extras.losses import AdCSELoss, ConSERTLoss, DCLRLoss
from tests.fixtures import SENTENCES
from tests.helpers import Wrapped, count_rows, differing, fit, snapshot, some_fast, train
from tests.losses.cases import (
    CASES,
    EDGES,
    EVERY_TOKEN,
    MINI_BATCHED,
    PLAIN,
    STATES,
    instruments,
    owned,
    settings_of,
    step,
    total,
)

PACKAGE = str(Path(st_extras.__file__).parent)
every = pytest.mark.parametrize("name", some_fast(CASES, PLAIN))
trains = pytest.mark.parametrize("name", some_fast(STATES, ("adcse", "slt-fai", "paser")))


@pytest.fixture
def encoder(make_encoder):
    return make_encoder(layers=1)


@pytest.fixture
def still_encoder(make_encoder):
    return make_encoder(layers=1, dropout=0.0)


def unused(name: str) -> bool:
    """BERT's pooler, which no sentence embedding of these encoders passes."""
    return ".pooler." in name


@every
def test_one_pass_a_step_and_gradients_where_they_belong(make_encoder, name):
    for count in (1, 2):
        encoder, case = make_encoder(layers=1).train(), CASES[name]
        loss, features = case.make(encoder), case.features(encoder, count)
        before = copy.deepcopy(features)
        step(loss, features, rate=0.01)  # a warm-up of one step ends here
        with count_rows(encoder) as passes:
            value = step(loss, features)
        assert passes == [case.rows[count - 1] * len(SENTENCES)]
        assert value.dim() == 0
        assert value.isfinite()
        for column, kept in zip(features, before, strict=True):
            assert column.keys() == kept.keys()
            assert all(torch.equal(column[key], kept[key]) for key in kept if isinstance(kept[key], Tensor))
        own = owned(loss, encoder)
        assert [n for n, p in own.items() if p.grad is None or not p.grad.any()] == []
        assert [n for n, p in encoder.named_parameters() if p.grad is None and not unused(n)] == []
        assert all(p.grad is None for p in loss.parameters() if not p.requires_grad)
        assert all(module.training for module in encoder.modules())


class Waits(TorchFunctionMode):
    """Notes the lines of the package that make a tensor of Python's numbers, or numbers of a tensor.

    On a GPU, each of them waits until the GPU has done all that it was given before.
    """

    NAMES = ("tensor", "as_tensor", "new_tensor", "scalar_tensor", "item", "tolist", "nonzero", "where")
    NUMBERS = ("__int__", "__float__", "__bool__", "__index__")

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        caller, name = sys._getframe(1), getattr(func, "__name__", "")
        waits = name in (*self.NAMES, *self.NUMBERS) and not (name == "where" and len(args) > 1)
        if name in ("__setitem__", "__getitem__"):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            tensors = [place for place in places if isinstance(place, Tensor)]
            waits = any(place.dtype == torch.bool for place in tensors)
            waits |= name == "__setitem__" and bool(tensors) and not isinstance(args[2], Tensor)
        if waits and caller.f_code.co_filename.startswith(PACKAGE):
            self.lines.append(f"{caller.f_code.co_filename}:{caller.f_lineno} {name}")
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.cached])
def test_a_step_does_not_wait_for_the_gpu(encoder, name):
    """After the first, which may look at its batch."""
    loss, features = CASES[name].make(encoder.train()), CASES[name].features(encoder)
    for _ in range(3):
        step(loss, features, rate=0.01)
    with Waits() as waits:
        step(loss, features)
    assert waits.lines == []


@pytest.mark.parametrize(
    "line", ["torch.tensor(3)", "x.new_tensor(1.0)", "int(x[0])", "x[x > 0]", "x[x.long()] = 1.0", "bool(x.any())"]
)
def test_a_line_that_waits_is_seen(line):
    with Waits() as waits:
        exec(compile(line, f"{PACKAGE}/planted.py", "exec"), {"torch": torch, "x": torch.zeros(3)})
    assert len(waits.lines) == 1


@every
def test_without_gradients_nothing_moves(encoder, name):
    loss, features = CASES[name].make(encoder.train()), CASES[name].features(encoder)
    for trained in (False, True):
        if trained:
            step(loss, features, rate=0.1)
        before, figures, state = snapshot(loss), instruments(loss), torch.get_rng_state()
        for training in (True, False):
            loss.train(training)
            torch.set_rng_state(state)
            with torch.no_grad():
                values = [total(loss(features)), total(loss(features))]
            assert all(value.isfinite() and not value.requires_grad for value in values)
            assert training or torch.equal(*values)
        loss.train()
        drawn = {n for n in before if n.endswith("_extra_state")} if not trained else set()
        assert differing(before, snapshot(loss)) - drawn == set()
        assert instruments(loss) == pytest.approx(figures, nan_ok=True)
    step(loss, features)
    assert all(math.isfinite(value) for value in instruments(loss).values())


@every
def test_copies_continue_alike_and_independently(make_encoder, name):
    case, model = CASES[name], make_encoder(layers=1).train()
    loss, features = case.make(model), case.features(model)
    for _ in range(2):
        step(loss, features, rate=0.1)
    twin, loaded = copy.deepcopy(loss), case.make(make_encoder(layers=1).train(), seed=4)
    loaded.load_state_dict(loss.state_dict())
    wrapped = copy.deepcopy(loss)  # as DistributedDataParallel does it
    trainer = SentenceTransformerTrainer.__new__(SentenceTransformerTrainer)
    trainer.override_model_in_loss(wrapped, Wrapped(wrapped.model))
    assert not set(map(id, twin.parameters())) & set(map(id, loss.parameters()))
    values, states, figures = [], [], []
    for each in (loss, twin, loaded, wrapped):
        torch.manual_seed(0)
        values.append([step(each, features, rate=0.1).item() for _ in range(2)])
        figures.append(instruments(each))
        states.append([value for value in each.state_dict().values() if isinstance(value, Tensor)])
    assert values[1:] == [values[0]] * 3
    assert figures[1:] == [figures[0]] * 3
    assert all(torch.equal(x, y) for state in states[1:] for x, y in zip(states[0], state, strict=True))


@every
def test_edge_batches(encoder, name):
    loss = CASES[name].make(encoder.train())
    for texts in EDGES:
        assert step(loss, CASES[name].features(encoder, texts=texts)).isfinite(), texts
        assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters()), texts
    assert all(buffer.isfinite().all() for buffer in loss.buffers())


@every
def test_half_precision(still_encoder, name):
    """Autocast leaves the value close, and in float32; an encoder in half precision trains."""
    model, found = still_encoder.train(), []
    features = CASES[name].features(model)
    for enabled in (False, True):
        loss = CASES[name].make(model)
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            value = total(loss(features))
        value.backward()
        assert value.dtype == torch.float32
        assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())
        found.append(value.item())
    assert found[1] == pytest.approx(found[0], rel=0.05)
    model.bfloat16()
    for _ in range(2):
        assert step(loss, features).isfinite()


@pytest.mark.parametrize("name", PLAIN)
def test_left_padding_becomes_right_padding(encoder, name):
    """Where a BERT's positions would move: tests/encoders/test_padding.py."""
    encoder.tokenizer.padding_side = "left"
    CASES[name].make(encoder)
    assert encoder.tokenizer.padding_side == "right"


@pytest.mark.parametrize("name", some_fast([name for name, case in CASES.items() if case.cached], MINI_BATCHED))
def test_mini_batches_change_nothing(make_encoder, name):
    case = CASES[name]
    for count, cut in ((1, {"mini_batch_size": 3}), (2, {"mini_batch_num_tokens": 20})):
        runs = []
        for options in ({}, cut):
            model = make_encoder(dropout=0.0, layers=1).train()
            loss = case.make(model, **options, **case.still or {})
            with count_rows(model) as passes:
                values = [step(loss, case.features(model, count), rate=0.1) for _ in range(2)]
            assert max(passes) <= options.get("mini_batch_size", 16)
            runs.append((torch.stack(values), loss.state_dict(), instruments(loss)))
        (expected, whole, figures), (found, cached, measured) = runs
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        for key, value in whole.items():
            torch.testing.assert_close(cached[key], value, rtol=1e-3, atol=1e-4)
        assert measured == pytest.approx(figures, rel=1e-3, abs=1e-4, nan_ok=True)


# ---- training


@pytest.fixture(scope="module")
def trained(tmp_path_factory, make_encoder):
    """``trained(name)``: the trainer after two epochs of two steps, and the loss before; ``resume``: from step 2."""

    def run(name: str, folder: Path, **options: Any) -> tuple[Any, dict[str, Tensor]]:
        model = make_encoder(layers=1)
        loss = CASES[name].make(model)
        before = snapshot(loss)
        settings = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 2, "logging_steps": 1}
        return train(model, loss, CASES[name].data(), folder, **settings | options), before

    whole = functools.cache(lambda name: run(name, tmp_path_factory.mktemp("whole")))

    def get(name: str, resume: bool = False) -> tuple[Any, dict[str, Tensor]]:
        if not resume:
            return whole(name)
        checkpoint = str(Path(whole(name)[0].args.output_dir, "checkpoint-2"))
        return run(name, tmp_path_factory.mktemp("parts"), resume=checkpoint, save_strategy="no")

    return get


@trains
def test_training_moves_what_is_trained_and_is_logged_and_saved(trained, name):
    trainer, before = trained(name)
    loss, folder = trainer.loss, Path(trainer.args.output_dir, "checkpoint-4")
    changed, frozen = differing(before, snapshot(loss)), [n for n, p in loss.named_parameters() if not p.requires_grad]
    assert {n for n, _ in loss.named_parameters() if not unused(n)} - changed == set()
    assert all("momentum" in n for n in frozen)  # which follow
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]} | set(map(id, optimizer.state))
    assert not held & {id(p) for p in loss.parameters() if not p.requires_grad}
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 4
    figures = instruments(loss)
    assert {key: logged[-1].get(key) for key in figures} == pytest.approx(figures, rel=1e-3, abs=1e-3)
    if terms := [key for key in ("base", "adversarial", "incomplete", "generative", "mlm") if key in logged[-1]]:
        assert logged[-1]["loss"] == pytest.approx(sum(logged[-1][key] for key in terms), abs=0.01)
    card = (folder / "README.md").read_text(encoding="utf8")
    assert f"loss:{type(loss).__name__}" in card
    assert all(line in card for line in loss.citation.strip().splitlines())
    for key, value in loss.get_config_dict().items():
        if not isinstance(value, (list, dict)):
            assert f'"{key}": {json.dumps(value)}' in card
    saved = SentenceTransformer(str(folder), device="cpu")
    assert saved.state_dict().keys() == loss.model.state_dict().keys()
    assert torch.equal(*(model.eval().encode(SENTENCES, convert_to_tensor=True) for model in (saved, loss.model)))


@trains
def test_resuming_ends_with_the_same_weights(trained, name):
    (whole, _), (parts, _) = trained(name), trained(name, resume=True)
    assert parts.state.global_step == whole.state.global_step == 4
    assert differing(snapshot(whole.loss), snapshot(parts.loss)) == set()
    assert instruments(parts.loss) == pytest.approx(instruments(whole.loss))


@pytest.mark.parametrize("name", some_fast(PLAIN, ("dclr, guide",)))
def test_fit(encoder, tmp_path, name):
    every_sentence_counts = EVERY_TOKEN if "mask_ratio" in settings_of(CASES[name].kind) else {}
    loss = CASES[name].make(encoder, **every_sentence_counts)
    before = snapshot(loss)
    fit(encoder, loss, CASES[name].data(2), tmp_path)
    after = snapshot(loss)
    assert {n for n, p in loss.named_parameters() if p.requires_grad and not unused(n)} <= differing(before, after)
    assert all(value.isfinite().all() for value in after.values() if value.is_floating_point())


# ---- batches of one


@pytest.mark.parametrize(
    ("kind", "options", "nothing"),
    [
        (ConSERTLoss, {"include_positive": False, "mini_batch_size": 1}, True),
        (DCLRLoss, {"noise_ratio": 0.1, "include_positive": True}, True),
        (DCLRLoss, {}, False),
        (AdCSELoss, {"num_adversaries": 0}, True),
        (AdCSELoss, {"projection": False}, False),
    ],
)
def test_a_batch_of_one_that_teaches_nothing_causes_one_warning(encoder, caplog, kind, options, nothing):
    loss, one = kind(encoder, **options), [encoder.preprocess(["a cat"])]
    loss([encoder.preprocess(["a cat", "the dog"])])
    with torch.no_grad():
        loss(one)
    assert not caplog.records
    assert [loss(one).item() == 0 for _ in range(3)] == [nothing] * 3
    assert caplog.text.count(f"{kind.__name__} got a batch of one sentence") == nothing


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_without_dropout(make_encoder, reentrant):
    """Each layer runs again in the backward pass, without dropout there too, to the same gradients."""
    gradients, calls = [], []
    for checkpointed in (False, True):
        model = make_encoder(dropout=0.5).train()
        if checkpointed:
            model.transformers_model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.transformers_model.enable_input_require_grads()
        loss = CASES["consert"].make(model)
        model.transformers_model.encoder.layer[0].attention.register_forward_hook(
            lambda *_, c=checkpointed: calls.append(c)
        )
        step(loss, CASES["consert"].features(model))
        gradients.append([weight.grad for weight in model.parameters() if weight.grad is not None])
    assert calls == [False, True, True]
    torch.testing.assert_close(*gradients)
