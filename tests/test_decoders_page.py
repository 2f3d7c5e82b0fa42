"""The code and the commands of docs/decoders.md run as they stand there, on a tiny random decoder."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.cli import app
from tests.encoders.decoders import build_decoder
from tests.fixtures import SENTENCES

pytest.importorskip("peft")
PAGE = (Path(__file__).resolve().parents[1] / "docs" / "decoders.md").read_text(encoding="utf8")
SMALLER = {"dimensions=256": "dimensions=4", "max_steps=400": "max_steps=2", "--steps 400": "--steps 2 --batch-size 4"}


def here(text: str, folder: Path) -> str:
    """The text with a tiny decoder in place of the one named there, and fewer steps."""
    for written, tiny in (SMALLER | {"Qwen/Qwen2.5-0.5B": str(folder / "decoder")}).items():
        text = text.replace(written, tiny)
    return text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_decoder(tmp_path / "decoder", tie_word_embeddings=True)
    (tmp_path / "text.txt").write_text(
        "\n".join([*SENTENCES, *(f"{text} again" for text in SENTENCES)]), encoding="utf8"
    )
    return tmp_path


@pytest.mark.slow
def test_the_python_blocks(folder):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 3
    names = {"sentences": SENTENCES}
    for number, block in enumerate(blocks):
        exec(compile(here(block, folder), f"decoders.md block {number}", "exec"), names)
    for name in ("adapted", "trained"):
        assert SentenceTransformer(name, device="cpu").encode(SENTENCES).shape == (8, 16)


@pytest.mark.slow
def test_the_commands(folder, monkeypatch, capsys):
    monkeypatch.setattr(app, "_quiet_libraries", lambda: None)
    commands = [line for line in PAGE.splitlines() if line.startswith("st-extras ")]
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(here(command, folder))
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert not ended.value.code, capsys.readouterr().err
        assert SentenceTransformer(words[words.index("-o") + 1], device="cpu").encode(SENTENCES).shape == (8, 16)
