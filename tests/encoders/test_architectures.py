"""Methods on architectures: they work, warn or are refused as docs/encoders.md lists, on one encoder of each row.

``python -m tests.architectures`` tries all encoders, and writes that page.
"""

import pytest

from tests.architectures.__main__ import read
from tests.architectures.encoders import ARCHITECTURES
from tests.architectures.methods import METHODS, cells

pytestmark = pytest.mark.slow

SHORT = ("BERT", "ModernBERT", "T5 encoder", "GPT-2", "BART", "CLIP text", "Llama", "MPT", "StaticEmbedding")


@pytest.mark.parametrize("name", SHORT)
def test_every_method_works_or_is_refused_as_the_docs_say(name, tmp_path):
    assert cells(name, tmp_path / "model") == read()[name], "python -m tests.architectures"


def test_the_docs_have_every_encoder_and_every_method():
    rows = read()
    assert {*rows} == {*ARCHITECTURES}
    assert all(list(row) == list(METHODS) for row in rows.values())
