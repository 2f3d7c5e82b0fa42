"""A single process; two real ones are in tests/training/test_distributed.py."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn

from st_extras.encoders import distributed
from st_extras.encoders.distributed import gather_rows, require_synchronised
from tests.helpers import draw


def test_rows_of_all_processes_and_where_the_own_ones_begin(monkeypatch):
    monkeypatch.setattr(distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(distributed, "get_rank", lambda: 2)
    monkeypatch.setattr(distributed, "all_gather_with_grad", lambda x: torch.cat([x, 2 * x, 3 * x]))
    x = draw(2, 4)
    rows, offset = gather_rows(x, True)
    assert (rows.shape, offset) == ((6, 4), 4)
    assert torch.equal(rows[:2], x)
    assert gather_rows(x, False) == (x, 0)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 1)
    assert gather_rows(x, True) == (x, 0)


def test_owned_parameters_need_the_callback_in_several_processes(monkeypatch):
    owned = nn.Linear(2, 2)
    require_synchronised(owned)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="LossStateCallback"):
        require_synchronised(owned)
    with torch.no_grad():
        require_synchronised(owned)
    owned.synchronised_across_processes = True  # type: ignore[assignment]
    require_synchronised(owned)


def test_the_process_group_is_closed_when_the_interpreter_ends(tmp_path, monkeypatch):
    registered: list[Callable[[], None]] = []
    distributed.leave_processes_at_exit.cache_clear()  # a training in this process may have called it
    monkeypatch.setattr(distributed.atexit, "register", registered.append)
    distributed.leave_processes_at_exit()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    for leave in registered * 2:  # a second call finds nothing to close
        leave()
    assert not dist.is_initialized()
