"""Two kills of kill_resume.py, which tries forty on command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_killed_trainings_end_with_the_same_weights():
    command = [sys.executable, "-m", "tests.training.kill_resume", "--kills", "2", "--seed", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 ended with equal weights" in done.stdout
