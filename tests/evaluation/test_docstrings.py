"""Every example of a docstring in ``st_extras.evaluation`` runs as written."""

import doctest

import pytest

import st_extras.evaluation
from tests.modules.test_docstrings import examples, run


@pytest.mark.parametrize("docstring", examples(st_extras.evaluation), ids=lambda docstring: docstring.name)
def test_examples_run(docstring: doctest.DocTest) -> None:
    run(docstring)
