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

from tests.packaging.project import ROOT

TOOLS = ("build", "hatchling", "hatch_fancy_pypi_readme", "pip", "twine")
MISSING = [name for name in TOOLS if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}, of the extra dev")]


class Built(NamedTuple):
    """The distributions: the wheel is built from the source distribution, ``from_tree`` from the repository."""

    sdist: Path
    wheel: Path
    from_tree: Path


def _run(*words: str, folder: Path = ROOT, **variables: str) -> str:
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"} | variables
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    build = (sys.executable, "-m", "build", "--no-isolation", str(ROOT))
    _run(*build, "--outdir", str(folder / "both"))  # the wheel from the sdist
    _run(*build, "--wheel", "--outdir", str(folder / "tree"))
    return Built(*(next(folder.glob(name)) for name in ("both/*.tar.gz", "both/*.whl", "tree/*.whl")))


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built.wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = Parser().parsestr(archive.read(f"{_info(archive)}/METADATA").decode())
        assert f"{_info(archive)}/licenses/LICENSE" in archive.namelist()
    package = [path for path in (ROOT / "st_extras").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert files == {path.relative_to(ROOT).as_posix() for path in package}
    assert built.wheel.read_bytes() == built.from_tree.read_bytes()
    # PyPI shows the README away from the repository, where a relative link leads nowhere
    targets = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", str(metadata.get_payload()))
    assert [link for pair in targets for link in pair if link and not link.startswith(("https://", "#"))] == []
    assert len(targets) > 10


def _info(archive: zipfile.ZipFile) -> str:
    return next(name for name in archive.namelist() if ".dist-info/" in name).partition("/")[0]


def test_the_source_distribution_holds_the_repository(built):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone: git cannot say which files are the repository's")
    wanted = {name for name in _run("git", "ls-files").splitlines() if not name.startswith((".ci/", ".gitignore"))}
    with tarfile.open(built.sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted - files == set()
    assert not [name for name in files if name.startswith((".ci", "runs/", "dist/", ".git/")) or name.endswith(".pyc")]


def test_the_index_takes_them(built):
    words = ("-m", "twine", "check", "--strict", str(built.sdist), str(built.wheel))
    assert _run(sys.executable, *words, COLUMNS="200").count("PASSED") == 2


def test_the_wheel_works_without_the_repository(built, tmp_path):
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path / "site"))
    _run(sys.executable, *install, str(built.wheel))
    code = "import st_extras, sys; from st_extras.cli.app import main; print(st_extras.__file__); main()"
    words = (sys.executable, "-c", code, "demo", "--files", "samples")
    first, *_ = _run(*words, folder=tmp_path, PYTHONPATH=str(tmp_path / "site")).splitlines()
    assert first == f"{tmp_path / 'site' / 'st_extras' / '__init__.py'}"
    assert len((tmp_path / "samples" / "sentences.txt").read_text(encoding="utf8").splitlines()) > 3000
