"""Reading studies, and what every study of the repository must hold."""

from typing import Any

from benchmarks import studies
from benchmarks.building import loss_class
from st_extras.evaluation import STSDataset

MASKING = {"top_k", "augmentation", "phrases", "positives", "at_least", "on_missing_mask"}


def faults(study: dict[str, Any]) -> list[str]:
    """What is wrong with the rows of a study."""
    found = [] if study["methods"] or study["training"].get("post_processing") else [f"{study['name']} runs nothing"]
    for name, own in study["methods"].items():
        method = study["training"] | own
        losses = [part["loss"] for part in (method, method.get("base", method))]
        wrong = {
            "no such loss": any(_missing(loss) for loss in losses),
            "no seeds": not method["seeds"],
            "the last step is not evaluated": method["steps"] % method["eval_steps"] != 0,
            "no such complementary method": method.get("complementary", name) not in {*study["methods"], "minilm"},
            "no such start": method.get("start", name) not in study["methods"],
            "unknown masking": not set(method.get("masking", {})) <= MASKING,
        }
        found += [f"{study['name']}/{name}: {fault}" for fault, is_there in wrong.items() if is_there]
    return found


def _missing(loss: str) -> bool:
    try:
        return not loss_class(loss)
    except AttributeError:
        return True


def test_rows_name_what_is_there():
    read = studies.all_studies()
    assert len(read) > 15
    assert [fault for study in read for fault in faults(study)] == []


def test_a_study_builds_on_another(tmp_path):
    (tmp_path / "first.toml").write_text(
        'encoder.layers = 3\n[training]\nsteps = 4\ncorpus = "a"\n[methods.simcse]\nloss = "SimCSELoss"\n', "utf8"
    )
    (tmp_path / "second.toml").write_text(
        'base = "first.toml"\n[training]\ncorpus = "b"\n[methods.dclr]\nloss = "DCLRLoss"\n', "utf8"
    )
    assert studies.load_study(tmp_path / "second.toml") == {
        "name": "second",
        "encoder": {"layers": 3},
        "training": {"steps": 4, "corpus": "b"},
        "methods": {"simcse": {"loss": "SimCSELoss"}, "dclr": {"loss": "DCLRLoss"}},
    }


def test_the_corpus_is_cut_to_the_sentences_of_a_study(tmp_path):
    (tmp_path / "text.txt").write_text("one\ntwo\nthree\n", encoding="utf8")
    assert studies.corpus_sentences({"corpus": "text.txt"}, tmp_path) == ["one", "two", "three"]
    assert studies.corpus_sentences({"corpus": "text.txt", "sentences": 2}, tmp_path) == ["one", "two"]


def test_unseen_sentences_are_short_ones_that_no_scored_set_holds(tmp_path, monkeypatch):
    pairs = STSDataset("any", ["A cat ."], ["a dog"], [1.0], ["any"])
    monkeypatch.setattr("st_extras.evaluation.load_sts", lambda *_: pairs)
    (tmp_path / "sts_unlabeled.txt").write_text(f"a cat\none\n{'long ' * 30}\ntwo\n", encoding="utf8")
    assert studies.corpus_sentences({"corpus": "sts-unseen", "sentences": 9}, tmp_path) == ["one", "two"]
