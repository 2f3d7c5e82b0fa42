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

import pytest

from tests.packaging.project import ROOT

TOOLS = ("build", "hatchling", "hatch_fancy_pypi_readme", "pip", "twine")
MISSING = [name for name in TOOLS if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}, of the extra dev")]


def _run(*words: str, folder: Path = ROOT, **variables: str) -> str:
    done = subprocess.run(words, env=os.environ | variables, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("built")
    _run(sys.executable, "-m", "build", "--no-isolation", str(ROOT), "--outdir", str(folder))
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_and_a_page_without_relative_links(built):
    with zipfile.ZipFile(built[1]) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
        info = next(name for name in archive.namelist() if ".dist-info/" in name).partition("/")[0]
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    package = [path for path in (ROOT / "st_extras").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert files == {path.relative_to(ROOT).as_posix() for path in package}
    targets = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", str(metadata.get_payload()))
    assert [link for pair in targets for link in pair if link and not link.startswith(("https://", "#"))] == []
    assert len(targets) > 10


def test_the_source_distribution_holds_the_repository(built):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone: git cannot say which files are the repository's")
    wanted = {name for name in _run("git", "ls-files").splitlines() if not name.startswith((".ci/", ".gitignore"))}
    with tarfile.open(built[0]) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted - files == set()
    assert not [name for name in files if name.startswith((".ci", "runs/", "dist/", ".git/")) or name.endswith(".pyc")]


def test_the_index_takes_them_and_the_wheel_works_without_the_repository(built, tmp_path):
    checked = _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, built), COLUMNS="200")
    assert checked.count("PASSED") == 2
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path / "site"))
    _run(sys.executable, *install, str(built[1]))
    code = "import st_extras, sys; from st_extras.cli.app import main; print(st_extras.__file__); main()"
    words = (sys.executable, "-c", code, "demo", "samples")
    first, *_ = _run(*words, folder=tmp_path, PYTHONPATH=str(tmp_path / "site")).splitlines()
    assert first == f"{tmp_path / 'site' / 'st_extras' / '__init__.py'}"
    assert len((tmp_path / "samples" / "sentences.txt").read_text(encoding="utf8").splitlines()) > 3000
