"""A kill of kill_resume.py, which tries forty on command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_killed_training_ends_with_the_same_weights():
    command = [sys.executable, "-m", "tests.training.kill_resume", "--kills", "1", "simcse"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 ended with equal weights" in done.stdout
