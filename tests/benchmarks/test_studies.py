"""Every study of the repository can be read and is shown, and the entrance hands it to the module of its kind."""

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest
import tomllib

from benchmarks import __main__ as entrance
from benchmarks import records, studies
from benchmarks.studies import Options, named_study, study_names
from benchmarks.tables import pages, papers

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


def test_a_configuration_has_what_was_run():
    """A method that was never run, or whose settings are gone, says nothing."""
    wrong = []
    for study in TRAININGS:
        done = {record["method"] for record in records.records(study["name"])} - {"start"}
        used = {name for method in study["methods"].values() for name in studies.methods_needed(method, study)}
        own = tomllib.loads((studies.CONFIGS / f"{study['name']}.toml").read_text("utf8"))  # not those of its base
        wrong += [f"{study['name']}/{name} was not run" for name in own.get("methods", {}).keys() - done - used]
    assert [one for one in wrong if not one.startswith("smoke/")] == []


def test_every_study_is_shown(monkeypatch):
    """By a table, or it made an encoder of one that is; the others are known as records alone."""
    read, file_of = set(), records.file_of
    monkeypatch.setattr(records, "file_of", lambda study, root=None: read.add(study) or file_of(study, root))
    for name in pages.TABLES:
        pages.table(name).written()
    assert set(records.studies()) - read == {"pretraining", *pages.RECORDS_ALONE}
    assert set(records.studies()) - set(study_names()) == {*pages.MEASURED, *pages.RECORDS_ALONE}
    assert set(study_names()) - set(records.studies()) == {pages.SMOKE, *papers.STUDIES}, "the papers' need a GPU"


def imports() -> dict[str, set[str]]:
    """The modules of the benchmarks that each imports, at its top or inside a function."""
    folder = records.ROOT
    names = {
        ".".join(["benchmarks", *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__"): path
        for path in folder.rglob("*.py")
    }
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text("utf8"))) if isinstance(node, ast.ImportFrom)]
        given = {f"{node.module}.{alias.name}" for node in nodes for alias in node.names} | {n.module for n in nodes}
        found[name] = given & names.keys() - {name, "benchmarks", name.rpartition(".")[0]}
    return found


def circles(graph: dict[str, set[str]]) -> list[str]:
    """What is left of a graph once everything is taken out that imports nothing of what is left."""
    left = dict(graph)
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_no_files_import_each_other_in_a_circle():
    graph = imports()
    assert "benchmarks.records" in graph["benchmarks.studies"], "imports were read"
    assert circles(graph) == []
    assert circles(graph | {"benchmarks.records": {"benchmarks.tables.pages"}}), "a circle is seen"


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
