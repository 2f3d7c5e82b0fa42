"""The graded pairs that the notebooks choose by and report on; the demo itself is run in test_cli."""

import pytest

from st_extras.demo import development_and_test
from st_extras.samples import graded_pairs


def rows(data):
    return list(zip(data.sentences1, data.sentences2, data.scores, strict=True))


@pytest.mark.parametrize("nowhere", [None, ""])
def test_the_sample_pairs_are_halved_and_no_pair_is_on_both_sides(nowhere):
    development, test = development_and_test(nowhere)
    assert (development.name, test.name) == ("sample_dev", "sample_test")
    assert len(development) == len(test) == len(development.subsets) == len(test.subsets) == 150
    assert sorted(rows(development) + rows(test)) == sorted(zip(*graded_pairs(), strict=True))
    assert not set(rows(development)) & set(rows(test))


def test_stsb_is_read_where_a_source_is_given(tmp_path):
    for split, score in (("dev", 4), ("test", 2)):
        lines = ["subset\tscore\tsentence1\tsentence2", f"x\t{score}\ta {split}\tb", "x\t0\tc\td"]
        (tmp_path / f"stsb_{split}.tsv").write_text("\n".join(lines), encoding="utf8")
    development, test = development_and_test(tmp_path)
    assert (development.name, test.name) == ("stsb_dev", "stsb_test")
    assert (rows(development)[0], rows(test)[0]) == (("a dev", "b", 4.0), ("a test", "b", 2.0))
