"""README's tables are those of the result files, and the studies' configurations can be run."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

pytest.importorskip("tomllib", reason="the benchmarks need Python 3.11")
from benchmarks import readme, sts, tables
from benchmarks.records import records

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = sorted((ROOT / "benchmarks" / "configs").glob("*.toml"))


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_pages_are_in_step(page: Path) -> None:
    text = page.read_text(encoding="utf8")
    assert len(readme.BLOCK.findall(text)) >= 2
    assert readme.updated(text) == text


def test_a_changed_figure_is_seen() -> None:
    text = readme.PAGES[0].read_text(encoding="utf8")
    changed = re.sub(r"\| SimCSE \| \d+ \|", "| SimCSE | 99 |", text)
    assert changed != text
    assert readme.updated(changed) == text


def test_differences_by_hand() -> None:
    assert tables.difference({0: 2.0, 1: 4.0, 7: 9.0}, {0: 1.0, 1: 2.0, 2: 5.0}) == "+1.50 [-4.85, +7.85]"  # t = 12.71
    assert tables.difference({0: 2.0}, {0: 2.5}) == "-0.50"
    assert tables.difference({3: 2.0}, {0: 2.5}) == ""


def test_space_rows_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bias = dict.fromkeys(("low_centre_distance", "high_centre_distance", "low_neighbour_distance"), 1.0)
    for seed, accuracy in ((0, 0.5), (1, 0.75)):
        space = {"frequency_bias": {"probe_accuracy": accuracy, "high_neighbour_distance": 2.0, **bias}}
        record = {"method": "simcse", "seed": seed, **space}
        (tmp_path / "study").mkdir(exist_ok=True)
        (tmp_path / "study" / f"simcse-{seed}.json").write_text(json.dumps(record), encoding="utf8")
    monkeypatch.setattr(tables, "records", lambda study: records(study, tmp_path))
    assert tables.space_table("study").splitlines()[2] == "| simcse | 2 | 0.625 | 1.000 | 1.000 | 1.000 | 2.000 |"
    with_geometry = record | {"method": "a", "geometry": {"mean_cosine": 0.25, "iso_score": 0.5, "uniformity": -3.0}}
    for seed in (0, 1):
        (tmp_path / "study" / f"simcse-{seed}.json").write_text(json.dumps(with_geometry), encoding="utf8")
    lines = tables.space_table("study").splitlines()
    assert lines[0].endswith("| mean cosine | IsoScore | uniformity |")
    assert lines[2].endswith("| 0.250 | 0.500 | -3.000 |")


def test_recipes_stand_in_the_order_of_dev_by_genre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def after(genres: float, average: float) -> dict[str, float]:
        return {"dev_by_genre": genres, "stsb_dev": 80.0, "average": average}

    cells = {  # (method, seed): seven sets as trained, the sentence term's dev by genre and seven sets
        ("simcse", 0): (60.0, 50.0, 61.0),
        ("simcse", 1): (62.0, 50.0, 63.0),
        ("dclr", 0): (63.0, 70.0, 64.0),
        ("dclr", 1): (64.0, 72.0, 68.0),
    }
    (tmp_path / "own_encoder").mkdir()
    for (method, seed), (plain, genres, refined) in cells.items():
        variants = {"plain": after(genres - 1, plain), "sentence term pooled": after(genres, refined)}
        record = {"method": method, "seed": seed, "average": plain, "post_processing": variants}
        (tmp_path / "own_encoder" / f"{method}-{seed}.json").write_text(json.dumps(record), encoding="utf8")
    monkeypatch.setattr(tables, "records", lambda study: records(study, tmp_path))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    lines = tables.ranked_table("own_encoder").splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| dclr", "sentence term pooled"],
        ["| dclr", "plain"],
        ["| SimCSE", "sentence term pooled"],
        ["| SimCSE", "plain"],
    ]
    difference = "+5.00 [-7.71, +17.71]"  # 4 and 6; t = 12.71
    assert (
        lines[0] == f"| dclr | sentence term pooled | 2 | 71.00 ± 1.41 | 80.00 ± 0.00 | 66.00 ± 2.83 | {difference} |"
    )
    assert len(tables.ranked_table("own_encoder", top=3).splitlines()) == 5


def test_combinations_of_both_encoders_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {  # (study, method, seed): dev by genre and seven sets behind the sentence term, seven sets as trained
        ("foundation", "simcse", 0): (70.0, 65.0, 60.0),
        ("recipes", "dclr-no-guide", 0): (74.0, 67.0, 63.0),
        ("own_encoder", "simcse", 0): (60.0, 52.0, 50.0),
        ("own_encoder", "simcse", 1): (62.0, 54.0, 52.0),
        ("own_encoder", "dclr-no-guide", 0): (61.0, 57.0, 55.0),
        ("own_encoder", "dclr-no-guide", 1): (62.0, 55.0, 53.0),
        ("own_encoder", "adcse", 0): (99.0, 99.0, 99.0),  # on one encoder alone
    }
    for (study, method, seed), (genres, refined, plain) in cells.items():
        (tmp_path / study).mkdir(exist_ok=True)
        variants = {"sentence term pooled": {"dev_by_genre": genres, "average": refined}}
        record = {"method": method, "seed": seed, "average": plain, "post_processing": variants}
        (tmp_path / study / f"{method}-{seed}.json").write_text(json.dumps(record), encoding="utf8")
    monkeypatch.setattr(tables, "records", lambda study: records(study, tmp_path))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.both_encoders_table().splitlines()[2:] == [
        "| dclr-no-guide | sentence term pooled | 74.00 (1) | 61.50 (2) | 67.75 | +7.00 | +5.00 [-20.41, +30.41] |",
        "| SimCSE | sentence term pooled | 70.00 (1) | 61.00 (2) | 65.50 | +5.00 | +2.00 [+2.00, +2.00] |",
    ]
    assert len(tables.both_encoders_table(top=1).splitlines()) == 3
    (tmp_path / "whitening").mkdir()
    for encoder, genres, average in (
        ("recipes/dclr-no-guide-0", 73.0, 66.0),
        ("own_encoder/dclr-no-guide-1", 68.0, 60.0),
        ("own_encoder/dclr-0", 99.0, 99.0),
    ):
        scores = {variant: {"dev_by_genre": genres, "average": average} for variant in tables.FITTED}
        grid = {"encoders": {encoder: {"english, general fit": scores}}}
        file = tmp_path / "whitening" / f"{encoder.replace('/', ' ')}.json"
        file.write_text(json.dumps(grid), encoding="utf8")
    rows = [line for line in tables.both_encoders_table().splitlines() if "whitened on the text |" in line]
    assert rows == ["| dclr-no-guide | whitened on the text | 73.00 (1) | 68.00 (1) | 70.50 | +6.00 | +8.00 |"]


def test_whitening_rows_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scores(first: float) -> dict[str, object]:
        names = ("plain", "sentence term pooled", *tables.FITTED)
        rows = {name: {"average": first + i, "stsb_dev": 10 * first + i} for i, name in enumerate(names)}
        return {"english, general fit": rows}

    (tmp_path / "whitening").mkdir()
    for file, encoders in (
        ("a", {"minilm-3-mean": scores(3.0), "own_encoder/simcse-0": scores(5.0)}),
        ("b", {"own_encoder/simcse-1": scores(7.0)}),
    ):
        (tmp_path / "whitening" / f"{file}.json").write_text(json.dumps({"encoders": encoders}), encoding="utf8")
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    first, second = (line.split(" | ") for line in tables.whitening_table().splitlines()[2:])
    assert first == ["| foundation/start", "1", "3.00", "4.00", "5.00", "6.00", "31.00", "33.00 |"]
    assert second[:4] == ["| own_encoder/simcse", "2", "6.00 ± 1.41", "7.00 ± 1.41"]
    assert second[-1] == "63.00 ± 14.14 |"


def test_claims_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {  # (study, method): seven sets by seed
        ("foundation", "start"): {0: 50.0},
        ("foundation", "simcse"): {0: 60.0, 1: 62.0},
        ("foundation", "dclr"): {0: 61.0, 1: 63.0, 2: 99.0},  # SimCSE lacks the last
        ("own_encoder", "simcse"): {0: 40.0},
        ("own_encoder_wiki", "start"): {0: 45.0},
        ("own_encoder_wiki", "simcse"): {0: 40.0},
        ("own_encoder_wiki", "dclr-no-guide"): {0: 38.5},
    }
    for (study, method), found in cells.items():
        (tmp_path / study).mkdir(exist_ok=True)
        for seed, average in found.items():
            record = {"method": method, "seed": seed, "average": average}
            if method == "simcse":
                record["post_processing"] = {"plain": {"average": 60.0}, "RepAL pooled": {"average": 60.0 + seed}}
            (tmp_path / study / f"{method}-{seed}.json").write_text(json.dumps(record), encoding="utf8")
    monkeypatch.setattr(tables, "records", lambda study: records(study, tmp_path))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in tables.claims_table().splitlines()[2:]}
    assert rows["| SimCSE, minus start"] == ["", "+11.00 [-1.71, +23.71] (2)", "", "-5.00 (1) |"]
    assert rows["| DCLR, minus SimCSE"] == ["+1.90", "+1.00 [+1.00, +1.00] (2)", "", " |"]
    assert rows["| DCLR, no guide, minus SimCSE"] == ["+1.90", "", "", "-1.50 (1) |"]
    assert rows["| ConSERT, minus SimCSE"] == ["", "", "", " |"]
    refined = ["+0.33", "+0.50 [-5.85, +6.85] (2)", "+0.00 (1)", "+0.00 (1) |"]
    assert rows["| RepAL pooled after SimCSE, minus plain"] == refined


def test_the_grid_stands_in_for_records_without_post_processing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study").mkdir()
    for seed in (0, 1, 2):
        own = {"post_processing": {"plain": {"average": 1.0, "dev_by_genre": 1.0}}} if seed == 0 else {}
        record = {"method": "dclr", "seed": seed, **own}
        (tmp_path / "study" / f"dclr-{seed}.json").write_text(json.dumps(record), encoding="utf8")
    monkeypatch.setattr(tables, "records", lambda study: records(study, tmp_path))
    grid = {"dclr": {0: {"plain": {"average": 5.0}}, 1: {"plain": {"average": 2.0}}, 9: {"plain": {"average": 9.0}}}}
    monkeypatch.setattr(tables, "refined_records", lambda: grid)
    assert tables.averages(tables.refined("study/dclr"), "plain") == {0: 1.0, 1: 2.0}


def test_the_pretraining_curve_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.pretraining_table("mine") == "Not run yet."
    seen = {"stsb_dev_spearman_cosine": 0.5, "corpus_mean_cosine": 0.75, "corpus_iso_score": 0.05}
    settings = {"layers": 4, "width": 256, "steps": 30, "batch_size": 8, "learning_rate": 1e-3}
    record = {"settings": settings, "parameters": 11_000_000, "sha256": "0123456789abcdef0", "curve": []}
    record["curve"] = [{"step": 10, "loss": 7.125, **seen}, {"step": 17, "loss": 6.5}]
    (tmp_path / "pretraining").mkdir()
    (tmp_path / "pretraining" / "mine.json").write_text(json.dumps(record), encoding="utf8")
    lines = tables.pretraining_table("mine").splitlines()
    assert lines[2:4] == ["| 10 | 7.12 | 50.00 | 0.75 | 0.05 |", "| 17 | 6.50 |  |  |  |"]
    assert "11,000,000 parameters; 30 steps of 8 sentences, learning rate 0.001; sha256" in lines[-1]
    assert lines[-1].endswith(" 0123456789abcdef.")


def test_preparation_rows_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(name: str, sentences: int, speed: float, **more: object) -> None:
        cases = {"loop": {"wall": {"per_second": speed, "x loop": [1.0, 1.0, 1.0]}}}
        record = {"sentences": sentences, "rounds": 2, "cases": cases, **more}
        (tmp_path / "preparation" / name).write_text(json.dumps(record), encoding="utf8")

    (tmp_path / "preparation").mkdir()
    write("2-masking.json", 3000, 20000.0, memory=[{"texts": 3000, "peak_MiB": 12.3}])
    write("1-masking.json", 3000, 1.0)
    write("0-masking.json", 500, 1500.4)
    write("3-counting.json", 7, 1.0)
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.preparation_table("masking").splitlines() == [
        "| masking | 500 sentences, rounds: 2 | 3,000 sentences, rounds: 2 |",
        "|---|---:|---:|",
        "| loop | 1,500/s (1.00 x) | 20,000/s (1.00 x) |",
        "",
        "Peak memory: 3,000 texts 12 MiB.",
    ]


def test_unrun_rows_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs").mkdir()
    for name in ("first", "smoke"):
        (tmp_path / "configs" / f"{name}.toml").write_text(
            "[training]\nseeds = [0, 1, 2]\n[methods.simcse]\n[methods.dclr]\nseeds = [1]\n", "utf8"
        )
    (tmp_path / "first").mkdir()
    for name, seed in (("simcse", 1), ("dclr", 1), ("dclr", 7), ("start", 0)):
        (tmp_path / "first" / f"{name}-{seed}.json").write_text(json.dumps({"method": name, "seed": seed}), "utf8")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "records", lambda study: records(study, tmp_path))
    assert tables.unrun_table().splitlines()[2:] == ["| first | 2 of 4 | simcse (0, 2) |"]


def test_refined_rows_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scores(**averages: float) -> dict[str, object]:
        rows = {name.replace("_", " "): {"average": average} for name, average in averages.items()}
        rows["RepAL pooled"] |= {"lambda_1": 0.5, "lambda_2": 2.0}
        return {"english, target fit": rows}

    trained, untrained = tmp_path / "repal_trained" / "a.json", tmp_path / "repal" / "b.json"
    consert = scores(plain=60.0, RepAL_pooled=62.0, sentence_term_pooled=64.0)
    for file, encoders in (
        (trained, {"consert-0": consert, "consert-slt-fai-0": scores(plain=1.0, RepAL_pooled=2.0)}),
        (untrained, {"simcse": scores(plain=65.0, RepAL=67.0, RepAL_pooled=70.0), "minilm": scores(RepAL_pooled=9.0)}),
        (trained.with_name("c.json"), {"simcse-3": scores(plain=66.0, RepAL_pooled=73.0, whitened_256=64.0)}),
    ):
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"encoders": encoders}), encoding="utf8")
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.refined_table().splitlines()[2:] == [
        "| SimCSE | 2 | 65.50 ± 0.71 | 67.00 (1) |  | 71.50 ± 2.12 | 64.00 (1) |"
        "  | +6.00 [-6.71, +18.71] | 0.50, 2.00 |",
        "| ConSERT | 1 | 60.00 |  | 64.00 | 62.00 |  | +4.00 | +2.00 | 0.50, 2.00 |",
        "| SLT-FAI over ConSERT | 1 | 1.00 |  |  | 2.00 |  |  | +1.00 | 0.50, 2.00 |",
    ]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configurations_name_real_losses(path: Path) -> None:
    study = sts.load_study(path)
    assert study["methods"]
    for method in study["methods"].values():
        assert sts.loss_class(method["loss"])
        assert set(method.get("seeds", [])) <= set(study["training"]["seeds"])


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").glob("*/*-[0-9].json")), ids=lambda p: p.stem)
def test_records_are_whole(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf8"))
    assert f"{record['method']}-{record['seed']}" == path.stem
    if record.get("settings", {}).get("test", True):
        assert record["average"] == pytest.approx(statistics.mean(record["scores"].values()))
        assert len(record["scores"]) == 7
    assert "dirty" not in record["revision"]
    if record["steps"]:
        curve = dict(record["curve"])
        assert curve[record["best_step"]] == pytest.approx(record["dev"], abs=1e-3)
        assert max(value for step, value in curve.items() if step) == pytest.approx(record["dev"], abs=1e-3)


def test_pictures_show_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import pictures

    steps, values = pictures.mean_curves()["SimCSE"]
    curves = [dict(record["curve"]) for record in tables.row_records(tables.ROWS["SimCSE"][0])]
    assert steps[:2] == [0, 25]
    assert values[1] == pytest.approx(statistics.mean(curve[25] for curve in curves))
    curves, picks = pictures.picked_curves()
    assert picks.keys() == curves.keys()
    assert all(picks[name] in steps for name, (steps, _) in curves.items())
    monkeypatch.setattr(pictures, "DOCS", tmp_path / "docs")
    pictures.main()
    assert {file.name for file in (tmp_path / "docs").iterdir()} == {"training_curves.png", "label_free_selection.png"}
