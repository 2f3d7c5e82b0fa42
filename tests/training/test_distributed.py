"""Losses, noise and heads in two processes: distributed_worker.py runs in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.losses import DCLRLoss, SimCSELoss
from tests.helpers import run_in_two_processes
from tests.training.distributed_worker import ROWS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What distributed_worker.py saw in two gloo processes."""
    from tests.conftest import build_encoder

    folder = tmp_path_factory.mktemp("distributed")
    build_encoder(folder / "parts").save(str(folder / "encoder"))
    run_in_two_processes("tests.training.distributed_worker", str(folder / "encoder"), str(folder))
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("name", ["simcse", "dclr"])
def test_gathered_loss_is_that_of_the_whole_batch(
    ranks: list[dict[str, Any]], make_encoder: Callable[..., SentenceTransformer], name: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(8, 16, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    model = make_encoder()
    loss = (
        SimCSELoss(model)
        if name == "simcse"
        else DCLRLoss(model, noise_ratio=0, complementary_model="self", threshold=0.2)
    )
    whole = loss.compute_loss_from_embeddings([a, b])
    whole.backward()
    if isinstance(loss, DCLRLoss):
        assert 0 < float(loss.instruments["masked_negatives"]) < 1
    values = torch.stack([rank[name][0] for rank in ranks])
    torch.testing.assert_close(values.mean(), whole.detach())
    # each rank averages over its own half of the anchors, so its gradients count twice
    torch.testing.assert_close(torch.cat([rank[name][1] for rank in ranks]) / 2, a.grad)
    torch.testing.assert_close(torch.cat([rank[name][2] for rank in ranks]) / 2, b.grad)


def test_each_rank_draws_its_own_noise(ranks: list[dict[str, Any]]) -> None:
    assert not torch.equal(ranks[0]["noise"], ranks[1]["noise"])


@pytest.mark.parametrize("name", ["both", "rank 0 alone"])
def test_owned_gradients_are_those_of_one_process(
    ranks: list[dict[str, Any]], make_encoder: Callable[..., SentenceTransformer], name: str
) -> None:
    """The mean of the ranks' gradients, not their sum; a rank without a gradient counts as zero."""
    head = SimCSELoss(make_encoder(), projection=True).step.projection_head
    assert head is not None
    with torch.no_grad():
        for value in head.parameters():
            value.fill_(0.1)
    (head(ROWS).square().mean() if name == "both" else head(ROWS[:4]).square().mean() / 2).backward()
    expected = torch.cat([p.grad.flatten() for p in head.parameters() if p.grad is not None])
    assert expected.abs().max() > 1e-5
    for rank in ranks:
        torch.testing.assert_close(rank["gradients"][name], expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_random_state_of_every_rank_is_restored(ranks: list[dict[str, Any]], rank: int) -> None:
    expected, restored = ranks[rank]["restored"]
    assert torch.equal(expected, restored)
    assert not torch.equal(ranks[0]["restored"][0], ranks[1]["restored"][0])


def test_owned_parameters_need_the_callback(ranks: list[dict[str, Any]]) -> None:
    assert all("LossStateCallback.attach(trainer)" in rank["refused"] for rank in ranks)


@pytest.mark.parametrize("part", ["head", "model"])
def test_parameters_are_equal_on_all_ranks(ranks: list[dict[str, Any]], part: str) -> None:
    for name, value in ranks[0][part].items():
        assert torch.equal(value, ranks[1][part][name]), name
