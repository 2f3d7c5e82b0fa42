"""Methods on architectures: they work, warn or are refused as tests/architectures/expected.md lists."""

from pathlib import Path

import pytest

from tests.architectures.encoders import ARCHITECTURES
from tests.architectures.methods import METHODS, cells

pytestmark = pytest.mark.slow

EXPECTED = Path(__file__).parents[1] / "architectures" / "expected.md"
SHORT = ("BERT", "ModernBERT", "T5 encoder", "GPT-2", "BART", "CLIP text", "Llama", "MPT", "StaticEmbedding")
"""One encoder of most rows; the others are tried weekly."""


def expected() -> dict[str, dict[str, str]]:
    """The cells by encoder and method; encoders with equal cells share a row."""
    rows = [line.strip("|").split("|") for line in EXPECTED.read_text(encoding="utf8").splitlines() if line[:1] == "|"]
    stripped = [[text.strip() for text in row] for row in rows]
    titles = stripped[0][1:]
    return {name: dict(zip(titles, row[1:], strict=True)) for row in stripped[2:] for name in row[0].split(", ")}


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.weekly) for name in ARCHITECTURES]
)
def test_every_method_works_or_is_refused_as_expected(name, tmp_path):
    assert cells(name, tmp_path / "model") == expected()[name]


def test_every_encoder_and_every_method_is_expected():
    rows = expected()
    assert {*rows} == {*ARCHITECTURES}
    assert all(list(row) == list(METHODS) for row in rows.values())
