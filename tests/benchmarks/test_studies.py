"""Every study of the repository can be read and is shown, and the entrance hands it to the module of its kind."""

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest
import tomllib

from benchmarks import __main__ as entrance
from benchmarks import records, studies
from benchmarks.studies import Mistake, Options, named_study, study_names
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


def test_a_study_builds_on_one_that_builds_on_another(tmp_path):
    for name, text in {
        "a": "seeds = 1\n[training]\nsteps = 4\nrate = 1\n[training.pairs]\nothers = 2",
        "b": "seeds = 2\n[training]\nrate = 2\n[encoder]\nlayers = 3",
        "c": "[training]\nsize = 3\n[encoder]\npath = 'p'",
    }.items():
        base = {"a": "", "b": 'base = "a.toml"\n', "c": 'base = "b.toml"\n'}[name]
        (tmp_path / f"{name}.toml").write_text(base + text)
    assert studies.load_study(tmp_path / "c.toml") == {
        "name": "c",
        "kind": "training",
        "seeds": 2,
        "training": {"steps": 4, "rate": 2, "size": 3, "pairs": {"others": 2}},
        "encoder": {"layers": 3, "path": "p"},
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


@pytest.mark.parametrize(
    ("words", "variable", "expected"),
    [
        (["papers", "papers_zh"], None, "hub"),
        (["papers"], "", "hub"),
        (["papers"], "mine", "mine"),
        (["papers", "floors"], "mine", "mine"),
        (["floors", "domains", "--data", "given"], "mine", "given"),
        (["papers", "floors"], None, None),
        (["floors", "--data", "hub"], "mine", None),
    ],
)
def test_the_data_is_that_of_the_option_then_of_the_variable_and_of_papers_the_hub(
    monkeypatch, words, variable, expected
):
    handed: list[Any] = []
    for kind in ("papers", "word_baselines", "domains"):
        monkeypatch.setattr(
            f"benchmarks.{kind}.run", lambda study, options: handed.append((study["name"], options.data))
        )
    monkeypatch.delenv("ST_EXTRAS_DATA", raising=False)
    if variable is not None:
        monkeypatch.setenv("ST_EXTRAS_DATA", variable)
    if expected is None:
        with pytest.raises(SystemExit, match=r"^--data FOLDER \(or ST_EXTRAS_DATA\) must name the folder"):
            entrance.main(["run", *words])
    else:
        entrance.main(["run", *words])
    names = [] if expected is None else [word for word in words if word in study_names()]
    assert handed == [(name, Path(expected or "")) for name in names]


def test_the_options_of_the_papers_are_handed_on_and_refused_elsewhere(tmp_path, monkeypatch):
    handed: list[Options] = []
    monkeypatch.setattr("benchmarks.papers.run", lambda _, options: handed.append(options))
    monkeypatch.setattr("benchmarks.word_baselines.run", lambda _, options: handed.append(options))
    threads: list[int] = []
    monkeypatch.delenv("ST_EXTRAS_DATA", raising=False)
    monkeypatch.setattr("torch.set_num_threads", threads.append)
    given = {"encoder": ["--encoder", "e"], "plan": ["--plan"], "mini-batch-size": ["--mini-batch-size", "7"]}
    entrance.main(
        ["run", "papers", "papers_zh", "--threads", "3", *(word for words in given.values() for word in words)]
    )
    assert handed == [Options(Path("hub"), encoder="e", only_plan=True, mini_batch_size=7)] * 2
    assert threads == [3]
    for name, words in (
        *given.items(),
        ("mini-batch-size", ["--mini-batch-size", "0"]),
        ("encoder", ["--encoder", ""]),
    ):
        with pytest.raises(Mistake, match=f"^--{name} must be given to the studies papers and papers_zh alone"):
            entrance.main(["run", "papers", "floors", "--data", str(tmp_path), *words])
    assert len(handed) == 2


def test_each_command_hands_its_options_on(tmp_path, monkeypatch, capsys):
    handed: list[Any] = []
    monkeypatch.setattr("benchmarks.speed.measure_cases", handed.append)
    monkeypatch.setattr("benchmarks.scale.measure", handed.append)
    monkeypatch.setattr("benchmarks.pictures.draw", lambda: handed.append("drawn"))
    monkeypatch.setattr("benchmarks.encoders.prepare", lambda *given: handed.append(given))
    monkeypatch.setattr("benchmarks.weight_hashes.compare", lambda *given: handed.append(given))
    entrance.main(["pictures"])
    entrance.main(["hashes", "--steps", "7", "--output", "o", "--compare", "c"])
    entrance.main(["encoders", "f", "--only", "mpnet", "gemma3"])
    entrance.main(["encoders", "f"])
    folder = Path("f")
    assert handed == [
        "drawn", (7, Path("o"), Path("c")), ("mpnet", folder), ("gemma3", folder),
        *((name, folder) for name in ("smollm2", "gemma3", "mpnet")),
    ]  # fmt: skip
    words = "--cases a b --batch 3 --length 4 --rounds 5 --threads 2 --device cuda --data d --encoder e"
    entrance.main(["speed", *words.split(), "--bf16", "--no-memory", "--no-record"])
    entrance.main(["scale", "jobs", "--device", "cuda", "--encoder", "e", "--data", "d", "--rounds", "2", "--smoke"])
    speed, scale = ({key: value for key, value in vars(one).items() if key != "do"} for one in handed[-2:])
    assert speed == {
        "cases": ["a", "b"], "batch": 3, "length": 4, "rounds": 5, "threads": 2, "device": "cuda", "data": Path("d"),
        "encoder": "e", "bf16": True, "no_memory": True, "no_record": True,
    }  # fmt: skip
    assert scale == {
        "what": "jobs", "device": "cuda", "encoder": "e", "data": Path("d"), "rounds": 2, "smoke": True,
    }  # fmt: skip
    monkeypatch.setattr(
        pages, "write", lambda *, only_check: [tmp_path / "a.md", tmp_path / "b.md"][: 2 if only_check else 0]
    )
    with pytest.raises(SystemExit, match=r"^a\.md, b\.md must be what benchmarks/results gives"):
        entrance.main(["tables", "--check"])
    entrance.main(["tables"])
    assert capsys.readouterr().out.splitlines()[-1] == "changed: nothing"


def test_the_list_has_each_study_its_records_and_what_it_asks(results, monkeypatch, capsys):
    for run in ("a", "b"):
        records.append("floors", run, {})
    monkeypatch.setattr(entrance, "study_names", lambda: ["domains", "floors"])
    entrance.main(["list"])
    asked = [named_study(name)["about"] for name in ("domains", "floors")]
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert lines == [["domains", "0", asked[0]], ["floors", "2", asked[1]]]


@pytest.mark.parametrize(
    ("method", "rows", "steps"),
    [
        ({"steps": 9, "epochs": 2, "batch_size": 2}, 5, 9),
        ({"epochs": 2, "batch_size": 2}, 5, 6),
        ({"epochs": 2, "batch_size": 5}, 5, 2),
        ({"epochs": 0.5, "batch_size": 2}, 6, 2),
        ({"epochs": 1, "batch_size": 4}, 8.5, 3),
    ],
)
def test_the_steps_of_a_training_hold_the_last_batch_of_each_epoch(method, rows, steps):
    assert studies.cell_steps(method, rows) == steps


def test_what_is_chosen_is_in_the_order_of_the_study():
    assert studies.chosen(["c", "a", "c"], ["a", "b", "c"], "--methods") == ["a", "c"]
    assert studies.chosen(None, ["a", "b"], "--methods") == ["a", "b"]
    assert studies.chosen([], ["a", "b"], "--methods") == []
    with pytest.raises(Mistake, match=r"^--sets must be of a, b, got c, d\.$"):
        studies.chosen(["c", "a", "d"], ["a", "b"], "--sets")


def test_the_methods_whose_weights_are_needed_are_those_of_the_study():
    study = {"methods": {"a": {}, "b": {}}}
    both = {"complementary": "a", "base": {"complementary": "b"}}
    assert studies.methods_needed(both, study) == ["a", "b"]
    assert studies.methods_needed({"complementary": "a", "base": {"complementary": "a"}}, study) == ["a"]
    assert studies.methods_needed({"complementary": "self", "base": {}}, study) == []
