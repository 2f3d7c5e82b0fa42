"""What README and the pages show runs as it stands there: Python on tiny encoders, and commands that exist."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.cli import app
from st_extras.samples import sample_sentences, write_samples
from tests.docs.pages import PAGES, ROOT, SHOWN, blocks, command_fault, commands
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
}
"""Names of the pages, and what stands for them in the folder."""
BEFORE = {"README.md": ["my-encoder"], "export.md": ["whitened"]}
"""Models that a command of the page, or another page, makes."""
NOT_INSTALLED = ("import ray", "torch.onnx")
NUMBER = re.compile(r"\d+\.\d+")


def here(text: str) -> str:
    """An example on tiny encoders, with fewer steps and texts in a batch."""
    for written, name in HERE.items():
        text = re.sub(rf"""(?<=["'\s]){re.escape(written)}(?=["'\s])""", name, text)
    for pattern, less in {
        r"packaged_minilm\(\), layers=3": '"encoder"',
        r"max_steps=\d+": "max_steps=2",
        r"eval_steps=\d+": "eval_steps=1",
        "dimensions=256": "dimensions=4",
        r"--steps \d+": "--steps 2 --batch-size 8",
        "--eval-steps 50": "--eval-steps 1",
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
    header, *rows = Path("samples/pairs.tsv").read_text(encoding="utf8").splitlines()
    lines = [f"subset\t{header}", *(f"x\t{row}" for row in rows)]
    Path("sts", "stsb_dev.tsv").write_text("\n".join(lines), encoding="utf8")


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page_runs_from_its_top(page, folder):
    """Every name is defined on the page, above."""
    names: dict[str, object] = {}
    count = 520 if page == "adapting.md" else 80  # the fewest, and some
    Path("my_sentences.txt").write_text("\n".join(sample_sentences()[:count]), encoding="utf8")
    shutil.copy("samples/search/corpus.jsonl", "documents.jsonl")
    for name in BEFORE.get(page, ()):
        shutil.copytree("encoder", name)
    for number, block in enumerate(PYTHON[page], 1):
        if not any(word in block for word in NOT_INSTALLED):
            exec(compile(here(block), f"{page}, block {number}", "exec"), names)


@pytest.mark.weekly
@pytest.mark.slow
def test_readme_and_training_print_what_they_show(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (shown,) = blocks(PAGES["training.md"], "text")
    exec(compile(PYTHON["training.md"][0], "training.md", "exec"), {})
    numbers = [[*map(float, NUMBER.findall(text))] for text in (capsys.readouterr().out.splitlines()[-1], shown)]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.015)
    for line in blocks(SHOWN["README.md"], "bash")[0].splitlines()[2:]:
        _run(shlex.split(line, comments=True)[1:], monkeypatch)
    printed = {tuple(re.findall(r"[\w.%+-]+", line)) for line in capsys.readouterr().out.splitlines()}
    rows = [tuple(re.findall(r"[\w.%+-]+", line)) for line in blocks(SHOWN["README.md"], "text")[1].splitlines()]
    assert {*rows[1:]} <= printed


@pytest.mark.parametrize("page", SHOWN)
def test_commands_exist_with_their_options(page):
    assert [fault for words in commands(SHOWN[page]) if (fault := command_fault(words))] == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [words for words in commands(PAGES["decoders.md"]) if "-o" in words])
def test_the_commands_of_language_models(words, folder, monkeypatch):
    pytest.importorskip("peft")
    _run(shlex.split(here(shlex.join(words))), monkeypatch)
    SentenceTransformer(words[words.index("-o") + 1], device="cpu").encode(["a text"])


def _run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_quiet_libraries", lambda: None)
    monkeypatch.setattr(sys, "argv", ["st-extras", *words])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert not ended.value.code


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.parametrize("command", blocks(PAGES["scale.md"], "bash")[0].splitlines())
def test_the_launchers_of_several_processes(command, folder):
    """In two processes, with this interpreter and at a free port."""
    Path("train.py").write_text(here(PYTHON["scale.md"][0]), encoding="utf8")
    launcher, *words = shlex.split(here(command))
    module, *free = {
        "torchrun": ("torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"),
        "accelerate": ("accelerate.commands.launch", "--main_process_port=0"),
    }[launcher]
    words = [word for word in words if word != "launch"]
    if "--no-python" in words:
        words = [*words[: words.index("--no-python")], "-m", "st_extras.cli", *words[words.index("st-extras") + 1 :]]
    command = [sys.executable, "-m", module, *free, *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert len([*Path().glob("trained*/checkpoints")]) == 1
