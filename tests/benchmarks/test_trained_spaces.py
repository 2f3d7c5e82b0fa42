"""The spaces of trained encoders: cosines of a batch against a plain loop, the batches drawn, and the command."""

import itertools
import json
import sys

import pytest
from sentence_transformers.util import cos_sim

from benchmarks import trained_spaces
from st_extras.evaluation import STSDataset
from st_extras.evaluation.geometry import alignment, uniformity
from tests.conftest import SENTENCES

DEV = STSDataset("stsb_dev", SENTENCES[:4], SENTENCES[4:8], [0.5, 2.5, 4.0, 5.0], ["all"] * 4)


def test_cosines_of_a_batch_are_those_of_a_plain_loop(encoder, monkeypatch):
    monkeypatch.setattr(trained_spaces, "HIGH", 0.92)
    batches = [SENTENCES[:3], SENTENCES[3:7]]
    cosines = [
        float(cos_sim(encoder.encode(one), encoder.encode(other)))
        for batch in batches
        for one, other in itertools.combinations(batch, 2)
    ]
    assert len(cosines) == 3 + 6
    found = trained_spaces.in_batch(encoder, batches)
    above = sum(cosine > trained_spaces.HIGH for cosine in cosines)
    assert 0 < above < len(cosines)
    assert found == pytest.approx({"mean": sum(cosines) / 9, "above": 100 * above / 9})


def test_alignment_is_that_of_the_pairs_with_a_high_score(encoder):
    found = trained_spaces.described(encoder, DEV, [SENTENCES[:3]])
    first, second = (
        encoder.encode(texts, convert_to_tensor=True) for texts in (DEV.sentences1[2:], DEV.sentences2[2:])
    )
    assert found["alignment"] == pytest.approx(alignment(first, second), rel=1e-4)
    every = encoder.encode(SENTENCES[:8], convert_to_tensor=True)
    assert found["uniformity"] == pytest.approx(uniformity(every), rel=1e-4)
    assert {name for name in found["levels"] if name.startswith("mean")} == {"mean_0-1", "mean_2-3", "mean_4-5"}
    assert 0 < found["separation"] < 1


def test_the_command_records_every_encoder_once(encoder, tmp_path, monkeypatch, capsys):
    study = {"name": "toy", "encoder": {}, "training": {"corpus": "text.txt"}, "methods": {}}
    (tmp_path / "text.txt").write_text("\n".join(f"a cat and {sentence}" for sentence in SENTENCES) + "\n")
    encoder.save(str(tmp_path / "work" / "toy" / "dclr-ours-3"))
    monkeypatch.setattr(trained_spaces, "drawn_batches", lambda text: [text[:4]])
    monkeypatch.setattr(trained_spaces, "named_study", lambda name: study)
    monkeypatch.setattr(trained_spaces, "starting_encoder", lambda settings: encoder)
    monkeypatch.setattr(trained_spaces, "load_sts", lambda name, data: DEV)
    folders = ["--data", str(tmp_path), "--results", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
    monkeypatch.setattr(sys, "argv", ["trained_spaces", *folders, "--studies", "toy"])
    trained_spaces.main()
    found = {path.name: json.loads(path.read_text()) for path in (tmp_path / "results" / "trained_spaces").glob("*")}
    assert set(found) == {"toy-start-0.json", "toy-dclr-ours-3.json"}
    start, trained = found["toy-start-0.json"], found["toy-dclr-ours-3.json"]
    assert (trained["trained_in"], trained["method"], trained["seed"]) == ("toy", "dclr-ours", 3)
    assert trained["uniformity"] == pytest.approx(start["uniformity"])
    assert capsys.readouterr().out.count("alignment") == 2
    trained_spaces.main()
    assert capsys.readouterr().out == "", "an encoder with a record was scored again"
