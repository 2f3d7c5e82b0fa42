import pytest
import torch

from st_extras.random_source import RandomSource
from tests.helpers import generator

CPU = torch.device("cpu")


class TestRandomSource:
    def draws(self, source: RandomSource, count: int = 3) -> list[float]:
        return [torch.rand((), generator=source.on(CPU)).item() for _ in range(count)]

    def test_follows_torchs_seed_without_moving_it(self):
        torch.manual_seed(5)
        state = torch.get_rng_state()
        first = self.draws(RandomSource())
        assert torch.equal(torch.get_rng_state(), state)
        assert self.draws(RandomSource()) == first
        assert self.draws(RandomSource(salt=1)) != first
        torch.manual_seed(6)
        assert self.draws(RandomSource()) != first

    def test_the_users_generator_is_the_one_that_draws(self):
        given = generator(1)
        source = RandomSource(given)
        assert source.on(CPU) is given
        twin = generator(1)
        assert self.draws(source) == [torch.rand((), generator=twin).item() for _ in range(3)]

    def test_each_process_has_a_stream_of_its_own(self, monkeypatch):
        torch.manual_seed(5)
        alone = self.draws(RandomSource())
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        streams = {}
        for rank in (0, 1, 2):
            monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
            streams[rank] = self.draws(RandomSource())
        assert streams[0] == alone
        assert len({tuple(stream) for stream in streams.values()}) == 3

    def test_state_continues(self):
        source = RandomSource(generator(1))
        self.draws(source)
        twin = RandomSource()
        twin.load_state_dict(source.state_dict())
        assert torch.equal(twin.get_extra_state(), source.get_extra_state()), "before the first draw too"
        assert self.draws(twin) == self.draws(source)

    def test_an_empty_state_changes_nothing(self):
        source = RandomSource(generator(1))
        source.set_extra_state(RandomSource().get_extra_state())
        assert self.draws(source) == self.draws(RandomSource(generator(1)))

    def test_no_state_moves_without_gradients(self):
        source = RandomSource(generator(1))
        with torch.no_grad():
            seen = self.draws(source, 1)
            assert self.draws(source, 1) == seen
        assert self.draws(source, 1) == seen
        assert self.draws(source, 1) != seen

    def test_generator_of_another_device_is_refused(self):
        with pytest.raises(ValueError, match=r"^generator must be on the embeddings' device"):
            RandomSource(torch.Generator()).on(torch.device("meta"))


@pytest.mark.parametrize("shape", [(-1,), (1,), (0, 1)])
def test_a_damaged_state_is_refused(shape):
    size = torch.get_rng_state().numel()
    damaged = torch.zeros(size + shape[0], *shape[1:], dtype=torch.uint8)
    with pytest.raises(ValueError, match=rf"^a random state must have {size} bytes on the CPU, got "):
        RandomSource().set_extra_state(damaged)
