"""Methods on architectures: they work, warn or are refused as docs/encoders.md lists, on one encoder of each row.

``python -m tests.architectures`` tries all encoders, and writes that page.
"""

import logging

import pytest

from tests.architectures.__main__ import read
from tests.architectures.encoders import ARCHITECTURES
from tests.architectures.methods import METHODS, cell, cells

pytestmark = pytest.mark.slow

SHORT = ("BERT", "ModernBERT", "T5 encoder", "GPT-2", "BART", "CLIP text", "Llama", "MPT", "StaticEmbedding")


@pytest.mark.parametrize("name", SHORT)
def test_every_method_works_or_is_refused_as_the_docs_say(name, tmp_path):
    assert cells(name, tmp_path / "model") == read()[name], "python -m tests.architectures"


def test_the_docs_have_every_encoder_and_every_method():
    rows = read()
    assert {*rows} == {*ARCHITECTURES}
    assert all(list(row) == list(METHODS) for row in rows.values())


def test_what_is_silent_or_obscure_does_not_pass():
    logger = logging.getLogger("st_extras.losses")
    assert cell({"": lambda _: None}, None) == "yes"
    assert cell({"": lambda _: logger.warning("the same vector twice")}, None) == "warns"
    assert cell({"": lambda _: logger.warning("two columns would be better")}, None) == "yes"
    obscure = ValueError("Input is wrong: use another.")  # of another library
    for wrong in (obscure, RuntimeError("use another."), AssertionError("equal views")):

        def fail(_: object, wrong: Exception = wrong) -> None:
            raise wrong

        with pytest.raises((AssertionError, RuntimeError)):
            cell({"": fail}, None)
