"""How many sentences token counts need: the shares by hand."""

import pytest

from benchmarks.sample_sizes import equal_labels
from st_extras.text.frequency import FrequencyTable


def test_equal_labels_are_those_of_tokens_that_occur_and_of_their_occurrences():
    whole = FrequencyTable("abcd", [5, 1, 3, 0])  # low: d, which never occurs, and b
    sample = FrequencyTable("abcd", [4, 1, 0, 0])  # low: c, d and b
    assert equal_labels(sample, whole) == pytest.approx({"tokens_equal": 100 * 2 / 3, "occurrences_equal": 100 * 6 / 9})
