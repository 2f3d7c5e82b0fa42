"""Every loss in two processes, by each launcher, against one process: every_loss_worker.py runs in each."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.conftest import build_encoder
from tests.helpers import run_in_two_processes
from tests.training.every_loss import CASES, gradients, owned, short_training, weights
from tests.training.every_loss_worker import SHARDED

pytestmark = pytest.mark.slow
WORKER = "tests.training.every_loss_worker"
OWNERS = {"simcse, head", "simcse, mini-batches", "dclr", "adcse", "adcse, tied", "frequency", "incomplete", "slt-fai"}
OWNERS |= {
    "dclr, mini-batches",
    "adcse, mini-batches",
    "incomplete, drawn",
    "slt-fai over adcse",
    "frequency, balanced confusion",
    "paser",
    "paser, own output, warmed up",
    "paser, masked words",
}


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The folders of the encoder and of a guide, without dropout."""
    folder = tmp_path_factory.mktemp("encoders")
    for seed, name in enumerate(("encoder", "guide")):
        build_encoder(folder / f"{name}_parts", dropout=0.0, seed=seed).save(str(folder / name))
    return str(folder / "encoder"), str(folder / "guide")


@pytest.fixture(scope="module")
def alone(
    tmp_path_factory: pytest.TempPathFactory, encoders: tuple[str, str]
) -> Callable[[str], tuple[dict[str, Tensor], set[str]]]:
    """What one process comes to, and the names of the parameters that the loss owns, by case."""

    @functools.cache
    def trained(name: str) -> tuple[dict[str, Tensor], set[str]]:
        run = short_training(CASES[name], *encoders, tmp_path_factory.mktemp("alone") / "run", [0, 1])
        return weights(run), owned(run)

    return trained


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory: pytest.TempPathFactory, encoders: tuple[str, str]) -> Path:
    """The folder with what every_loss_worker.py came to in two gloo processes."""
    folder = tmp_path_factory.mktemp("torchrun")
    run_in_two_processes(WORKER, *encoders, str(folder), "torchrun")
    return folder


@pytest.fixture(scope="module")
def accelerate(tmp_path_factory: pytest.TempPathFactory, encoders: tuple[str, str]) -> Path:
    """The same by accelerate's launcher, one case of each loss."""
    folder = tmp_path_factory.mktemp("accelerate")
    launch_with_accelerate(WORKER, *encoders, str(folder), "accelerate")
    return folder


def launch_with_accelerate(module: str, *arguments: str) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"]
    command += ["--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", f"--main_process_port={port}"]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command += ["--module", module, *arguments]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode:
        raise AssertionError((done.stdout + done.stderr)[-3000:])


@pytest.mark.parametrize(
    ("launcher", "name"),
    [("torchrun", name) for name in CASES] + [("accelerate", name) for name in CASES if "," not in name],
)
def test_two_processes_do_what_one_does(
    request: pytest.FixtureRequest,
    alone: Callable[[str], tuple[dict[str, Tensor], set[str]]],
    launcher: str,
    name: str,
) -> None:
    """After three steps of SGD, all that is trained is equal on both ranks, and what one process has."""
    folder = request.getfixturevalue(launcher)
    first, second = (load_file(folder / f"{name}.{rank}.safetensors") for rank in (0, 1))
    assert [key for key in first if not torch.equal(first[key], second[key])] == []
    expected, parameters = alone(name)
    assert bool(parameters) == (name in OWNERS)
    assert expected.keys() == first.keys()
    for key, value in expected.items():
        if CASES[name].draws and ("confusion" in key or key.endswith("steps")):
            continue  # the one process has counted two forward passes a step
        torch.testing.assert_close(first[key], value, rtol=0, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", SHARDED)
def test_shards_have_the_gradients_of_one_process(torchrun: Path, encoders: tuple[str, str], name: str) -> None:
    """FSDP 2, for the losses that own no parameters."""
    expected = gradients(CASES[name], *encoders, [0, 1])
    for rank in (0, 1):
        found = load_file(torchrun / f"{name}.{rank}.sharded.safetensors")
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=0, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}")


def test_all_ranks_stop_where_one_diverges(torchrun: Path) -> None:
    messages = [(torchrun / f"diverged.{rank}.txt").read_text(encoding="utf8") for rank in (0, 1)]
    assert messages[0] == messages[1]
    assert messages[0].startswith("Training diverged at step 2: the loss is not finite, and no model is saved")
