"""Every example in the docstrings of ``st_extras.text`` runs, offline, and every public class has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

from st_extras import samples, text
from st_extras.text.frequency import FrequencyTable

MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (text, samples)
    for module in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("public", [*(vars(text)[name] for name in text.__all__), FrequencyTable])
def test_public_classes_have_an_example(public: object) -> None:
    if inspect.isclass(public):
        examples = doctest.DocTestParser().get_examples(inspect.getdoc(public) or "")
        assert examples
        assert not any(example.options.get(doctest.SKIP) for example in examples)
