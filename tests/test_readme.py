"""The README's Python runs as it stands there, on a tiny encoder; its test command is the one that CI runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_block(
    number: int,
    encoder: SentenceTransformer,
    sentences: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "encoder"
    encoder.save(str(folder))
    rows = [f"x\t{i % 5}\t{s}\t{sentences[-1 - i]}" for i, s in enumerate(sentences)]
    (tmp_path / "stsb_dev.tsv").write_text("\n".join(["subset\tscore\tsentence1\tsentence2", *rows]), encoding="utf8")
    code = BLOCKS[number]
    for written, here in {
        "bert-base-uncased": str(folder),
        "path/to/a/simcse/encoder": str(folder),
        "path/to/sts": str(tmp_path),
    }.items():
        code = code.replace(f'"{written}"', repr(here))
    exec(compile(code, f"README.md block {number}", "exec"), {"sentences": sentences, "model": encoder})


def test_commands_are_those_of_the_project() -> None:
    tests = re.findall(r"```bash\n(pip install .*? && pytest.*?)\n```", README)
    assert len(tests) == 1
    install, run = tests[0].split(" && ")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf8")
    assert install.replace("pip install", "pip install -q") in script
    assert run in script.splitlines()
