"""Figures are closed after each test."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")
