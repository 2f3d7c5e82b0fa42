"""Gradient caching of every loss that has ``mini_batch_size``; without dropout, see tests/losses/test_contract.py."""

import copy
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor

from st_extras.losses import SimCSELoss
from tests.fixtures import SENTENCES
from tests.helpers import differing, snapshot
from tests.losses.cases import CASES, MINI_BATCHED


def watched(loss: Any) -> list[Tensor]:
    """The embeddings of each mini-batch, as they come."""
    seen: list[Tensor] = []
    encode = loss.encode_view
    loss.encode_view = lambda *given: seen.append(encode(*given)) or seen[-1]
    return seen


@pytest.mark.parametrize("name", MINI_BATCHED)
def test_the_backward_pass_embeds_the_same_views_again(make_encoder, name):
    """With the dropout and draws of the forward pass, though another batch came between, and nothing else is drawn."""
    case, model = CASES[name], make_encoder(dropout=0.2).train()
    loss = case.make(model, mini_batch_size=3)
    batch, seen = case.features(model), watched(loss)
    value = loss(batch)
    first = [embeddings.detach() for embeddings in seen]
    loss(case.features(model, texts=SENTENCES[:4]))
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


def test_encoders_that_are_refused(encoder):
    with pytest.raises(ValueError, match=r"^mini_batch_num_tokens must be None"):
        SimCSELoss(encoder, mini_batch_size=4, mini_batch_num_tokens=9)
    static = SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=8)])
    flattened = copy.deepcopy(encoder)
    flattened[0].can_flatten_inputs = True  # as with flash attention
    for model, kind in ((static, "StaticEmbedding"), (flattened, "flattened")):
        with pytest.raises(ValueError, match=rf"^mini_batch_size must be None .*{kind}"):
            SimCSELoss(model, augmentations=("none", "none"), mini_batch_size=4)


def test_the_replay_is_in_the_forward_passs_precision(encoder):
    """And embeddings in half precision get their gradients in float32."""
    loss = CASES["simcse, head"].make(encoder.train(), mini_batch_size=4)
    calculate, kinds, seen = loss.calculate_loss, [], watched(loss)
    loss.calculate_loss = lambda reps, **given: kinds.append(reps[0][0].dtype) or calculate(reps, **given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss([encoder.preprocess(SENTENCES)])
    value.backward()
    assert [embeddings.dtype for embeddings in seen] == [torch.bfloat16] * 8
    assert kinds == [torch.float32]
