"""Every loss in two processes against one process: distributed_worker.py runs in each."""

import functools

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from st_extras.functional import cosine_scores
from tests.fixtures import build_encoder
from tests.helpers import run_in_two_processes
from tests.training.distributed_worker import RUNS, SHARDED, gradients, near_pairs, short_training, weights

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The folder of the encoder, without dropout."""
    folder = tmp_path_factory.mktemp("encoders")
    build_encoder(folder / "parts", dropout=0.0).save(str(folder / "encoder"))
    return str(folder / "encoder")


@pytest.fixture(scope="module")
def alone(tmp_path_factory, encoder):
    """The results of one process, by the name of the run."""
    return functools.cache(
        lambda name: weights(short_training(name, encoder, tmp_path_factory.mktemp("alone") / "run", [0, 1]))
    )


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory, encoder):
    """The folder with the results of distributed_worker.py in two gloo processes."""
    folder = tmp_path_factory.mktemp("torchrun")
    run_in_two_processes("tests.training.distributed_worker", encoder, str(folder))
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_do_what_one_does(torchrun, alone, name):
    """After two steps of SGD, all that is trained is equal on both ranks and in one process.

    The instruments of a step are each rank's own: their mean is that of the whole batch.
    """
    first, second = (load_file(torchrun / f"{name}.{rank}.safetensors") for rank in (0, 1))
    expected = alone(name)
    assert expected.keys() == first.keys()
    for key, value in expected.items():
        measured = key.startswith("instruments.")
        if key == "instruments.labels_entropy" and name != "frequency, confusion":
            continue  # of each rank's own labels, unless the term needs those of all
        if not measured:
            assert torch.equal(first[key], second[key]), key
        found = (first[key] + second[key]) / 2 if measured else first[key]
        assert measured or value.dtype != torch.float32, "a tolerance for float32 would be wider"
        tolerance = 1e-5 if measured else 1e-9
        torch.testing.assert_close(found, value, rtol=0, atol=tolerance, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", SHARDED)
def test_shards_have_the_gradients_of_one_process(torchrun, encoder, name):
    """FSDP 2, for the losses that own no parameters."""
    expected = gradients(name, encoder, [0, 1])
    for rank in (0, 1):
        found = load_file(torchrun / f"{name}.{rank}.sharded.safetensors")
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert value.dtype == torch.float64, "a tolerance for float32 would be wider"
            torch.testing.assert_close(found[key], value, rtol=0, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}")


def test_all_ranks_stop_where_one_diverges(torchrun):
    messages = [(torchrun / f"diverged.{rank}.txt").read_text(encoding="utf8") for rank in (0, 1)]
    assert messages[0] == messages[1]
    assert messages[0].startswith("Training diverged: ")
    assert "is not finite at step 4, and no model is saved" in messages[0]


@pytest.fixture(scope="module")
def shared(torchrun):
    return [load_file(torchrun / f"shared.{rank}.safetensors") for rank in (0, 1)]


def test_each_rank_has_its_random_state_and_gets_it_back(shared):
    for rank in shared:
        assert torch.equal(rank["saved"], rank["restored"])
    assert not torch.equal(shared[0]["saved"], shared[1]["saved"])


def test_a_rank_without_a_gradient_counts_as_zero(shared):
    for rank in shared:
        assert torch.equal(rank["gradient"], torch.full((16,), 0.5))


def test_the_share_of_some_rows_leaves_out_each_rows_own_candidate(shared):
    similar, rows = cosine_scores(*near_pairs()).tolist(), (0, 1, 4, 5)
    pairs = sorted(similar[i][j] for i in rows for j in range(8) if i != j)
    for rank in shared:
        assert rank["threshold"].item() == pytest.approx(np.quantile(pairs, 0.7), abs=1e-6)
