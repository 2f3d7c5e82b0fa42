import pytest

from benchmarks.studies import named_study
from benchmarks.tables.questions import QUESTIONS


@pytest.mark.parametrize("own", [False, True], ids=["layers", "own"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_rows_are_methods_of_studies(name, own):
    for source in " ".join(QUESTIONS[name](own).rows.values()).split():
        study, method = source.split("/")
        base = study.removesuffix("_own")
        twins = {study, base, f"{base}_own"} if base.startswith("mechanisms_") else {study}
        known = {"start"}.union(*(named_study(twin)["methods"] for twin in twins))  # some are of one encoder alone
        assert method in known, source
