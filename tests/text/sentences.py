"""Sentences for the tests of this folder: any text that Hypothesis can think of, and real ones."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from hypothesis import strategies as st

from st_extras.text.files import read_lines

ANY_SENTENCE = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(["a", "A", "cat", "CAT", "the", "red", ",", " ", " ", "-", "'", "ß", "SS", "é", "İ", "\n", "_"])
    ).map("".join),
)


def real_sentences(folder: Path, name: str, stop: int, step: int = 1) -> list[str]:
    return [line.rstrip("\n") for _, line in islice(read_lines(folder / f"{name}.txt.gz"), 0, stop, step)]
