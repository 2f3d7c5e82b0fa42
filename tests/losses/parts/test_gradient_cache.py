"""Gradient caching of every loss that has ``mini_batch_size``; without dropout, see tests/losses/test_contract.py."""

import copy
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import AdaptiveLayerLoss, MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from st_extras.losses import AdCSELoss, SimCSELoss
from tests.fixtures import SENTENCES
from tests.helpers import columns, differing, snapshot, some_fast
from tests.losses.cases import CASES, MINI_BATCHED, instruments

CACHED = [name for name, case in CASES.items() if case.cached and "table" not in name]
"""Without a table, which has the texts of ``cases.py`` alone."""
MATRYOSHKA = ["simcse", "consert", "dclr", "dclr, guide", "dclr, share of start"]
UNEVEN = ["the " * 3, "a", "a cat", "the " * 20, "a", "a cat sat", "the mat"]


def make(name: str, model: SentenceTransformer, **more: Any) -> Any:
    """The loss of that name; its keys, which no backward pass embeds again, have no dropout."""
    still: dict[str, Any] = {"key_dropout": False} if CASES[name].kind is AdCSELoss else {}
    return CASES[name].make(model, **still | more)


def many_sentences(count: int) -> list[str]:
    """Sentences of 1 to 12 words, no two equal."""
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    return [" ".join(words[(i * 7 + j * (1 + i // 30)) % len(words)] for j in range(1 + i % 12)) for i in range(count)]


def features_of(model: SentenceTransformer, texts: list[str], count: int = 1) -> list[dict[str, Any]]:
    return [model.preprocess(column) for column in columns(texts, count).values()]


def gradients(module: nn.Module) -> Tensor:
    """The gradients of all parameters that have one, in one vector, and then forgotten."""
    found = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    module.zero_grad()
    return found


@pytest.mark.parametrize("name", some_fast(CACHED, MINI_BATCHED))
def test_the_backward_pass_embeds_the_same_views_again(make_encoder, name):
    """With the dropout and draws of the forward pass, though another batch came between, and nothing else is drawn."""
    model, seen = make_encoder(dropout=0.2).train(), []
    batch = features_of(model, many_sentences(12))
    loss: Any = make(name, model, mini_batch_size=5)
    encode = loss.step.encode_view
    loss.step.encode_view = lambda *given: seen.append(encode(*given)) or seen[-1]
    value = loss(batch)
    first = [embeddings.detach() for embeddings in seen]
    loss(features_of(model, many_sentences(4)))
    state, before = torch.get_rng_state(), snapshot(loss)
    seen.clear()
    value.backward()
    assert len(first) == len(seen) >= 3
    assert all(torch.equal(one, again) for one, again in zip(first, seen, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert differing(before, snapshot(loss)) == set()
    seen.clear()
    loss(batch)
    assert not torch.equal(first[0], seen[0])  # other views


def test_the_guide_gets_the_columns_of_the_same_rows(encoder):
    """In mini-batches as the views of each column are cut."""
    loss, seen = make("dclr, guide", encoder, mini_batch_num_tokens=12), []
    calculate = loss.calculate_loss
    loss.calculate_loss = lambda reps, **given: seen.append((reps, given["columns"])) or calculate(reps, **given)
    batch = features_of(encoder, UNEVEN, 2)
    loss(batch)
    ((reps, columns),) = seen
    assert [[len(part) for part in view] for view in reps] == [[len(part["input_ids"]) for part in c] for c in columns]
    for column, whole in zip(columns, batch, strict=True):
        rows = [row[row != 0].tolist() for part in column for row in part["input_ids"]]
        assert rows == [row[row != 0].tolist() for row in whole["input_ids"]]


def test_encoders_and_wrappers_that_are_refused(encoder):
    with pytest.raises(ValueError, match=r"^mini_batch_num_tokens must be None"):
        SimCSELoss(encoder, mini_batch_size=4, mini_batch_num_tokens=9)
    layers = AdaptiveLayerLoss(encoder, SimCSELoss(encoder, mini_batch_size=3))
    with pytest.raises(ValueError, match="AdaptiveLayerLoss"):
        layers(features_of(encoder, SENTENCES), None)
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=8)])
    flattened = copy.deepcopy(encoder)
    flattened[0].can_flatten_inputs = True  # as with flash attention
    for model, kind in ((static, "StaticEmbedding"), (flattened, "flattened")):
        with pytest.raises(ValueError, match=rf"^mini_batch_size must be None .*{kind}"):
            SimCSELoss(model, augmentations=("none", "none"), mini_batch_size=4)


def test_the_replay_is_in_the_forward_passs_precision(encoder):
    """And embeddings in half precision get their gradients in float32."""
    loss: Any = make("simcse, head", encoder.train(), mini_batch_size=4)
    kinds: list[torch.dtype] = []
    loss.step.projection_head[0].register_forward_hook(lambda module, given, output: kinds.append(output.dtype))
    calculate, seen = loss.calculate_loss, []
    loss.calculate_loss = lambda reps, **given: (
        seen.extend(part for view in reps for part in view) or calculate(reps, **given)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(features_of(encoder, many_sentences(8)))
    value.backward()
    assert kinds == [torch.bfloat16] * 8
    assert {part.dtype for part in seen} == {torch.float32}


@pytest.mark.parametrize("name", some_fast(MATRYOSHKA, ("dclr, share of start",)))
def test_matryoshka(still_encoder, name):
    batch = features_of(still_encoder.train(), many_sentences(24))
    values, found, measured = [], [], []
    for cut in ({}, {"mini_batch_size": 7}):
        inner: Any = make(name, still_encoder, **cut, **CASES[name].still or {})
        loss = MatryoshkaLoss(still_encoder, inner, [16, 4], matryoshka_weights=[1, 0.5])
        values.append(loss(batch, None))
        values[-1].backward()
        found.append(gradients(loss))
        assert "share" not in name or inner.instance_weights.batches == 1  # however many dimensions
        measured.append(instruments(inner))
    assert values[1].item() == pytest.approx(values[0].item(), rel=1e-5)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5 * float(found[0].abs().max()))
    assert measured[1] == pytest.approx(measured[0], rel=1e-3)
