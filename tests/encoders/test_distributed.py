"""A single process; two real ones are in tests/training/test_distributed.py."""

import pytest
import torch
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
