"""What README and the pages show runs as it stands there: Python on tiny encoders, and commands that exist."""

import json
import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from st_extras.cli import app
from st_extras.samples import sample_sentences, write_samples
from tests.docs.pages import PAGES, SHOWN, blocks, command_fault, commands
from tests.encoders.decoders import build_decoder
from tests.fixtures import build_encoder

PYTHON = {page: found for page, text in SHOWN.items() if (found := blocks(text, "python"))}
HERE = {
    "sentence-transformers/all-MiniLM-L6-v2": "encoder",
    "bert-base-uncased": "encoder",
    "my-search": "encoder",
    "path/to/a/simcse/encoder": "guide",
    "Qwen/Qwen2.5-0.5B": "decoder",
    "path/to/sts": "sts",
    "my-faq": "samples/search",
    "http://localhost:6333": ":memory:",
}
"""Names of the pages, and what stands for them in the folder."""
NOT_INSTALLED = ("import FastAPI", *(() if find_spec("onnx") else ("torch.onnx",)))
NUMBER = re.compile(r"\d+\.\d+")


def here(text: str) -> str:
    """An example on tiny encoders, with fewer steps and texts in a batch."""
    for written, name in HERE.items():
        text = re.sub(rf"""(?<=["'\s]){re.escape(written)}(?=["'\s])""", name, text)
    for pattern, less in {
        r"max_steps=\d+": "max_steps=2",
        r"steps_per_epoch=\d+": "steps_per_epoch=2",
        r"eval_steps=\d+": "eval_steps=1",
        "dimensions=256": "dimensions=4",
        "truncate_dim=128": "truncate_dim=4",
        "batch_size=64": "batch_size=8",
    }.items():
        text = re.sub(pattern, less, text)
    return text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with what the pages name."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("encoder", "guide")):
        build_encoder(tmp_path / name, seed=seed).save(name)
    build_decoder(tmp_path / "decoder", tie_word_embeddings=True)
    write_samples("samples")
    Path("text.txt").write_text("\n".join(sample_sentences()[:80]), encoding="utf8")
    Path("sts").mkdir()
    Path("runs").mkdir()
    for seed in (1, 2, 3):  # what `evaluate --json` writes
        run = {f"runs/simcse-{seed}": {"pairs": 66.0}, f"runs/consert-{seed}": {"difference": 2.0 + seed / 10}}
        Path("runs", f"{seed}.json").write_text(json.dumps(run), encoding="utf8")
    header, *rows = Path("samples/pairs.tsv").read_text(encoding="utf8").splitlines()
    lines = [f"subset\t{header}", *(f"x\t{row}" for row in rows)]
    Path("sts", "stsb_dev.tsv").write_text("\n".join(lines), encoding="utf8")


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page_runs_from_its_top(page, folder):
    """Every name is defined on the page, above."""
    names: dict[str, object] = {}
    count = 220 if page == "adapting.md" else 80  # the fewest, and some
    Path("my_sentences.txt").write_text("\n".join(sample_sentences()[:count]), encoding="utf8")
    shutil.copy("samples/search/corpus.jsonl", "documents.jsonl")
    for number, block in enumerate(PYTHON[page], 1):
        if not any(word in block for word in NOT_INSTALLED):
            exec(compile(here(block), f"{page}, block {number}", "exec"), names)


@pytest.mark.weekly
@pytest.mark.slow
def test_readme_and_training_print_what_they_show(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (shown,) = blocks(PAGES["training.md"], "text")
    (offline,) = (block for block in PYTHON["training.md"] if "sample_sentences()" in block)
    exec(compile(offline, "training.md", "exec"), {})
    numbers = [[*map(float, NUMBER.findall(text))] for text in (capsys.readouterr().out.splitlines()[-1], shown)]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.015)
    for line in blocks(SHOWN["README.md"], "bash")[1].splitlines():
        _run(shlex.split(line, comments=True)[1:], monkeypatch)
    table = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", SHOWN["README.md"], flags=re.MULTILINE)
    texts = table[table.index(("text", "nearest before", "nearest after")) + 1 :]
    report = Path("my-encoder", "neighbors.md").read_text(encoding="utf8")
    counts = re.search(r"changed for (\d+) of (\d+)\s+scored sample texts", SHOWN["README.md"])
    assert counts
    assert f"Of {counts[2]} texts, {counts[1]} (" in report
    for text, before, after in texts:
        nearest = report.partition(f"**Text:** {text}\n")[2].partition("---:|\n")[2].splitlines()[0]
        assert re.sub(r"\*\*new:\*\* ", "", nearest).split(" | ")[::2] == [f"| {before}", after]
    assert len(texts) == 3


@pytest.mark.parametrize("page", SHOWN)
def test_commands_exist_with_their_options(page):
    assert [fault for words in commands(SHOWN[page]) if (fault := command_fault(words))] == []


def _run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_quiet_libraries", lambda: None)
    monkeypatch.setattr(sys, "argv", ["st-extras", *words])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert not ended.value.code
