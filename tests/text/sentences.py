"""Sentences for the tests of this folder: any text that Hypothesis can think of, and real ones."""

from hypothesis import strategies as st

ANY_SENTENCE = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(["a", "A", "cat", "CAT", "the", "red", ",", " ", " ", "-", "'", "ß", "SS", "é", "İ", "\n", "_"])
    ).map("".join),
)
