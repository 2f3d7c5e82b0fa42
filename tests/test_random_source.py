"""Where random numbers of a loss come from, and the state that a checkpoint keeps."""

import pytest
import torch

from st_extras.random_source import RandomSource
from tests.helpers import generator

CPU = torch.device("cpu")


def draws(source: RandomSource, count: int = 3) -> list[float]:
    return [torch.rand((), generator=source.on(CPU)).item() for _ in range(count)]


def test_it_follows_torchs_seed_without_moving_it():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = draws(RandomSource())
    assert torch.equal(torch.get_rng_state(), state)
    assert draws(RandomSource()) == first
    assert draws(RandomSource(salt=1)) != first
    torch.manual_seed(6)
    assert draws(RandomSource()) != first


def test_the_users_generator_is_the_one_that_draws():
    given = generator(1)
    source = RandomSource(given)
    assert source.on(CPU) is given
    twin = generator(1)
    assert draws(source) == [torch.rand((), generator=twin).item() for _ in range(3)]
    with pytest.raises(ValueError, match=r"^generator must be on the embeddings' device"):
        source.on(torch.device("meta"))


def test_each_process_has_a_stream_of_its_own(monkeypatch):
    torch.manual_seed(5)
    alone = draws(RandomSource())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    streams = []
    for rank in (0, 1, 2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        streams.append(draws(RandomSource()))
    assert streams[0] == alone
    assert len({*map(tuple, streams)}) == 3


def test_its_state_continues():
    source, twin = RandomSource(generator(1)), RandomSource()
    draws(source)
    twin.load_state_dict(source.state_dict())
    assert torch.equal(twin.get_extra_state(), source.get_extra_state()), "before the first draw too"
    assert draws(twin) == draws(source)
    source = RandomSource(generator(1))
    source.set_extra_state(RandomSource().get_extra_state())  # an empty one changes nothing
    assert draws(source) == draws(RandomSource(generator(1)))


def test_no_state_moves_without_gradients():
    source = RandomSource(generator(1))
    with torch.no_grad():
        seen = draws(source, 1)
        assert draws(source, 1) == seen
    assert draws(source, 1) == seen
    assert draws(source, 1) != seen


@pytest.mark.parametrize("shape", [(-1,), (0, 1)])
def test_a_damaged_state_is_refused(shape):
    size = torch.get_rng_state().numel()
    damaged = torch.zeros(size + shape[0], *shape[1:], dtype=torch.uint8)
    with pytest.raises(ValueError, match=rf"^a random state must have {size} bytes"):
        RandomSource().set_extra_state(damaged)
