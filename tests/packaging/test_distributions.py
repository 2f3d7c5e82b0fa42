"""The wheel and the source distribution: what is in them, and whether they work."""

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest

import st_extras
from tests.packaging.project import EXTRAS, PROJECT, ROOT

TOOLS = ("build", "hatchling", "hatch_fancy_pypi_readme", "pip", "twine")
MISSING = [name for name in TOOLS if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}, of the extra dev")]


class Built(NamedTuple):
    """The distributions: the wheel is built from the source distribution, ``from_tree`` from the repository."""

    sdist: Path
    wheel: Path
    from_tree: Path


def _python(*words: str, folder: Path = ROOT, **variables: str) -> str:
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"} | variables
    command = [sys.executable, *words]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    build = ("-m", "build", "--no-isolation", str(ROOT))
    _python(*build, "--outdir", str(folder / "both"))  # the wheel from the sdist
    _python(*build, "--wheel", "--outdir", str(folder / "tree"))
    (sdist,), (wheel,) = (folder / "both").glob("*.tar.gz"), (folder / "both").glob("*.whl")
    return Built(sdist, wheel, next((folder / "tree").glob("*.whl")))


def _wheel_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _sdist_files(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def _package_files() -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "st_extras").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_and_nothing_else(built):
    files = _wheel_files(built.wheel)
    assert {name for name in files if ".dist-info/" not in name} == _package_files()
    assert {"st_extras/py.typed", "st_extras/samples/sentences.txt", "st_extras/samples/graded_pairs.tsv"} <= files
    assert f"st_extras-{st_extras.__version__}.dist-info/licenses/LICENSE" in files


def test_the_source_distribution_builds_the_same_wheel(built):
    assert built.wheel.name == built.from_tree.name
    assert built.wheel.read_bytes() == built.from_tree.read_bytes()


def test_the_source_distribution_holds_what_the_tests_read(built):
    files = _sdist_files(built.sdist)
    wanted = _package_files() | {"pyproject.toml", "constraints.txt", "README.md", "PKG-INFO"}
    for folder in ("tests", "benchmarks", "docs", "notebooks", ".github"):
        wanted |= {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".md", ".toml", ".json", ".ipynb", ".yml", ".sh")
            and not {"__pycache__", ".ipynb_checkpoints"} & {*path.parts}
        }
    assert wanted - files == set()
    assert not [name for name in files if name.startswith((".ci", "runs/", "dist/", ".git/")) or name.endswith(".pyc")]


def test_the_index_takes_them(built):
    shown = _python("-m", "twine", "check", "--strict", str(built.sdist), str(built.wheel), COLUMNS="200")
    assert shown.count("PASSED") == 2


def test_the_metadata_are_whole(built):
    with zipfile.ZipFile(built.wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == st_extras.__version__
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "The st_extras developers"
    assert {*metadata.get_all("Provides-Extra", [])} == {*EXTRAS}
    assert {url.split(",")[0] for url in metadata.get_all("Project-URL", [])} == {*PROJECT["urls"]}
    assert metadata["Description-Content-Type"] == "text/markdown"
    _check_description(str(metadata.get_payload()))


def _check_description(text: str) -> None:
    """PyPI shows the README away from the repository, where a relative link leads nowhere."""
    targets = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text)
    links = [first or second for first, second in targets]
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    ours = re.compile(
        r"https://(?:raw\.githubusercontent\.com/st-extras/st-extras|"
        r"github\.com/st-extras/st-extras/blob)/main/([^#]+)"
    )
    named = [found[1] for link in links if (found := ours.match(link))]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_wheel_works_without_the_repository(built, tmp_path):
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path / "site"))
    _python(*install, str(built.wheel))
    code = (
        "import st_extras, st_extras.samples as samples; from st_extras.cli.app import main; import sys; "
        "print(st_extras.__file__, len(samples.sample_sentences()) > 1000); sys.argv = ['st-extras', '--help']; main()"
    )
    first, rest = _python("-c", code, folder=tmp_path, PYTHONPATH=str(tmp_path / "site")).split("\n", 1)
    assert first == f"{tmp_path / 'site' / 'st_extras' / '__init__.py'} True"
    assert "Usage: st-extras" in rest
