import pytest

from benchmarks.tables import cost, methods


@pytest.mark.parametrize("label", [label for labels in methods.METHODS.values() for label in labels])
def test_a_row_has_a_source_for_each_encoder(label):
    layers, own, wiki, better = methods.sources_of(label)
    assert layers
    study = own.partition("/")[0]
    assert study == "own_encoder" or (study.startswith("mechanisms_") and study.endswith("_own"))
    assert wiki == (own.replace("own_encoder/", "own_encoder_wiki/") if study == "own_encoder" else "")
    assert better == wiki.replace("_wiki", "_better")


def test_costs_are_those_of_the_method(monkeypatch):
    names = ("bare 2B rows", "mnrl, two columns", "simcse", "dclr", "dclr, table", "adcse", "encode", "repal")
    record = {
        "cases": {name: {"median_ms": 10.0 * place} for place, name in enumerate(names)},
        "batch": 64, "rounds": 3, "machine": "x", "revision": "y",
    }  # fmt: skip
    monkeypatch.setattr(cost, "newest_speed", lambda: record)

    def shown(table: str) -> list[str]:
        return [line.split(" | ")[0][2:] for line in table.splitlines()[2:] if line.startswith("|")]

    assert shown(methods.cost_table("dclr")) == ["mnrl, two columns", "simcse", "dclr", "dclr, table"]
    assert shown(methods.cost_table("repal")) == ["encode", "repal"]
    assert shown(cost.speed_table()) == [*names[1:]]
