"""The code and the commands of docs/scale.md run as they stand there, on a tiny random encoder."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.encoders import EmbeddingTable
from tests.fixtures import SENTENCES

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = re.search(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)[1].splitlines()  # type: ignore[index]
SMALLER = {"max_steps=1000": "max_steps=2", "--steps 1000": "--steps 2 --batch-size 8", "batch_size=64": "batch_size=8"}


def smaller(text: str) -> str:
    for written, tiny in SMALLER.items():
        text = text.replace(written, tiny)
    return text


@pytest.fixture
def folder(make_encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("encoder", "guide")):
        make_encoder(seed=seed).save(name)
    Path("text.txt").write_text(
        "\n".join(f"{text} {letter}" for letter in "abcde" for text in SENTENCES), encoding="utf8"
    )
    return tmp_path


def test_the_python_blocks(folder):
    assert len(BLOCKS) == 4
    names: dict[str, object] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(smaller(block), f"scale.md block {number}", "exec"), names)
    for name in ("trained", "large-batch", "streamed", "debiased"):
        assert SentenceTransformer(name, device="cpu").encode(SENTENCES).shape == (8, 16)
    assert len(EmbeddingTable.load("table")) == 40


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands(folder, command):
    """In two processes, with this interpreter and at a free port."""
    Path("train.py").write_text(smaller(BLOCKS[0]), encoding="utf8")
    launcher, *words = shlex.split(smaller(command))
    module = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}[launcher]
    free = (
        ["--main_process_port=0"]
        if launcher == "accelerate"
        else ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    )
    words = words[1:] if launcher == "accelerate" else words
    if "--no-python" in words:
        place = words.index("--no-python")
        words[place : place + 2] = ["-m", "st_extras.cli"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", module, *free, *words],
        env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    output = "trained-too" if "trained-too" in command else "trained"
    assert SentenceTransformer(output, device="cpu").encode(SENTENCES).shape == (8, 16)
    assert (folder / output / "checkpoints").is_dir()
