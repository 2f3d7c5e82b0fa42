"""Every study of the repository can be read, and the entrance hands it to the module of its kind."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as entrance
from benchmarks import studies
from benchmarks.studies import Options, named_study, study_names
from st_extras.evaluation import STSDataset

TRAININGS = [study for study in map(named_study, study_names()) if study["kind"] == "training"]


def faults(study: dict[str, Any]) -> list[str]:
    """What is wrong with the methods of a study, beyond what building them shows."""
    found = [] if study["methods"] or study["training"].get("post_processing") else [f"{study['name']} runs nothing"]
    for name, own in study["methods"].items():
        method = study["training"] | own
        wrong = {
            "no seeds": not method["seeds"],
            "the last step is not evaluated": method["steps"] % method["eval_steps"] != 0,
            "no such start": method.get("start", name) not in study["methods"],
        }
        found += [f"{study['name']}/{name}: {fault}" for fault, is_there in wrong.items() if is_there]
    return found


def test_methods_name_what_is_there():
    assert [fault for study in TRAININGS for fault in faults(study)] == []


@pytest.mark.parametrize("name", study_names())
def test_every_study_says_what_it_asks_and_who_runs_it(name):
    study = named_study(name)
    assert study["name"] == name
    assert study["about"]
    assert callable(importlib.import_module(f"benchmarks.{study['kind']}").run)


def test_a_study_builds_on_another(tmp_path):
    (tmp_path / "first.toml").write_text(
        'kind = "k"\nencoder.layers = 3\n[training]\nsteps = 4\ncorpus = "a"\n[methods.simcse]\nloss = "SimCSELoss"\n'
    )
    (tmp_path / "second.toml").write_text(
        'base = "first.toml"\nabout = "x"\n[training]\ncorpus = "b"\n[methods.dclr]\nloss = "DCLRLoss"\n'
    )
    assert studies.load_study(tmp_path / "second.toml") == {
        "name": "second",
        "kind": "k",
        "about": "x",
        "encoder": {"layers": 3},
        "training": {"steps": 4, "corpus": "b"},
        "methods": {"simcse": {"loss": "SimCSELoss"}, "dclr": {"loss": "DCLRLoss"}},
    }


def test_the_entrance_hands_a_study_and_the_options_on(tmp_path, monkeypatch):
    handed: list[tuple[str, Options]] = []
    monkeypatch.setattr("benchmarks.word_baselines.run", lambda study, options: handed.append((study["name"], options)))
    words = ["--work", "w", "--results", "r", "--methods", "a", "b", "--seeds", "3", "--encoders", "e", "--sets", "s"]
    entrance.main(["run", "floors", "--data", str(tmp_path), *words])
    assert handed == [("floors", Options(tmp_path, Path("w"), Path("r"), ["a", "b"], [3], ["e"], ["s"]))]
    with pytest.raises(ValueError, match="'floor'"):
        entrance.main(["run", "floor", "--data", str(tmp_path)])
    monkeypatch.delenv("ST_EXTRAS_DATA", raising=False)
    with pytest.raises(SystemExit, match="--data"):
        entrance.main(["run", "floors", "--data", ""])


def test_unseen_sentences_are_short_ones_that_no_scored_set_holds(tmp_path, monkeypatch):
    pairs = STSDataset("any", ["A cat ."], ["a dog"], [1.0], ["any"])
    monkeypatch.setattr("st_extras.evaluation.load_sts", lambda *_: pairs)
    (tmp_path / "sts_unlabeled.txt").write_text(f"a cat\none\n{'long ' * 30}\ntwo\n", encoding="utf8")
    assert studies.corpus_sentences({"corpus": "sts-unseen", "sentences": 9}, tmp_path) == ["one", "two"]
