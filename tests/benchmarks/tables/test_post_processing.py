from __future__ import annotations

from pathlib import Path

from benchmarks.names import FITTED, UNSEEN
from benchmarks.records import write_json
from benchmarks.tables import post_processing


def test_whitening_rows_by_hand(results: Path) -> None:
    def scores(first: float) -> dict[str, object]:
        names = ("plain", "sentence term pooled", *FITTED)
        rows = {name: {"average": first + i, "stsb_dev": 10 * first + i} for i, name in enumerate(names)}
        return {"english, general fit": rows}

    for file, encoders in (
        ("a", {"minilm-3-mean": scores(3.0), "own_encoder/simcse-0": scores(5.0)}),
        ("b", {"own_encoder/simcse-1": scores(7.0)}),
    ):
        write_json(results / "whitening" / f"{file}.json", {"encoders": encoders})
    first, second = (line.split(" | ") for line in post_processing.whitening_table().splitlines()[2:])
    assert first == ["| foundation/start", "1", "3.00", "4.00", "5.00", "6.00", "31.00", "33.00 |"]
    assert second[:4] == ["| own_encoder/simcse", "2", "6.00 ± 1.41", "7.00 ± 1.41"]
    assert second[-1] == "63.00 ± 14.14 |"


def test_what_was_fitted_without_the_test_sentences_gets_a_column_once_it_has_a_record(results: Path) -> None:
    plain = {"plain": {"average": 1.0, "stsb_dev": 2.0, "dev_by_genre": 2.0}}
    names = ("plain", "sentence term pooled", *FITTED)
    rows = {name: {"average": 3.0, "stsb_dev": 4.0} for name in names}
    write_json(results / "whitening" / "a.json", {"encoders": {"minilm-3-mean": {"english, general fit": rows}}})
    write_json(results / "foundation" / "start-0.json", {"method": "start", "seed": 0, "post_processing": plain})
    label = UNSEEN["whitened 256"]
    assert label not in post_processing.whitening_table()
    found = plain | {label: {"average": 55.0, "stsb_dev": 2.0, "dev_by_genre": 2.0}}
    write_json(results / "foundation" / "start-0.json", {"method": "start", "seed": 0, "post_processing": found})
    titles, _, row = (line.split(" | ") for line in post_processing.whitening_table().splitlines())
    assert row[titles.index(label)] == "55.00"
    assert UNSEEN["whitened 256 + sentence term pooled"] not in titles
    assert len(row) == len(titles)


def test_the_grid_stands_in_for_records_without_post_processing(results: Path) -> None:
    for seed in (0, 1, 2):
        own = {"post_processing": {"plain": {"average": 1.0, "dev_by_genre": 1.0}}} if seed == 0 else {}
        record = {"method": "dclr", "seed": seed, **own}
        write_json(results / "study" / f"dclr-{seed}.json", record)
    averages = {"dclr-0": 5.0, "dclr-1": 2.0, "dclr-9": 9.0}
    grid = {name: {"english, target fit": {"plain": {"average": average}}} for name, average in averages.items()}
    write_json(results / "repal_trained" / "grid.json", {"encoders": grid})
    assert post_processing.averages(post_processing.refined("study/dclr"), "plain") == {0: 1.0, 1: 2.0}


def test_refined_rows_by_hand(results: Path) -> None:
    def scores(**averages: float) -> dict[str, object]:
        rows = {name.replace("_", " "): {"average": average} for name, average in averages.items()}
        rows["RepAL pooled"] |= {"lambda_1": 0.5, "lambda_2": 2.0}
        return {"english, target fit": rows}

    trained, untrained = results / "repal_trained" / "a.json", results / "repal" / "b.json"
    consert = scores(plain=60.0, RepAL_pooled=62.0, sentence_term_pooled=64.0)
    for file, encoders in (
        (trained, {"consert-0": consert, "consert-slt-fai-0": scores(plain=1.0, RepAL_pooled=2.0)}),
        (untrained, {"simcse": scores(plain=65.0, RepAL=67.0, RepAL_pooled=70.0), "minilm": scores(RepAL_pooled=9.0)}),
        (trained.with_name("c.json"), {"simcse-3": scores(plain=66.0, RepAL_pooled=73.0, whitened_256=64.0)}),
    ):
        write_json(file, {"encoders": encoders})
    cells = (("foundation/simcse", 0), ("more_seeds/simcse", 3), ("slt_fai/consert", 0), ("slt_fai/consert-slt-fai", 0))
    for source, seed in cells:
        write_json(results / f"{source}-{seed}.json", {"method": source.partition("/")[2], "seed": seed})
    assert post_processing.refined_table().splitlines()[2:] == [
        "| SimCSE | 2 | 65.50 ± 0.71 | 67.00 (1) |  | 71.50 ± 2.12 | 64.00 (1) |"
        "  | +6.00 [-6.71, +18.71] | 0.50, 2.00 |",
        "| ConSERT | 1 | 60.00 |  | 64.00 | 62.00 |  | +4.00 | +2.00 | 0.50, 2.00 |",
        "| SLT-FAI over ConSERT | 1 | 1.00 |  |  | 2.00 |  |  | +1.00 | 0.50, 2.00 |",
    ]


def test_rows_without_the_pairs_of_dev_by_hand(results: Path) -> None:
    def scores(plain: float) -> dict[str, object]:
        rows = {name: {"average": plain + i, "without_dev": plain / 2 + i / 4} for i, name in enumerate("ab")}
        return {"english, target fit": {"plain" if name == "a" else name: row for name, row in rows.items()}}

    assert post_processing.without_dev_table() == "Not run yet."
    for file, encoders in (
        ("a", {"minilm": scores(8.0), "study/dclr-0": scores(2.0)}),
        ("b", {"study/dclr-3": scores(4.0)}),
    ):
        write_json(results / "repal_pairs" / f"{file}.json", {"encoders": encoders})
    assert post_processing.without_dev_table().splitlines()[2:] == [
        "| minilm | 1 | plain | 8.00 |  | 4.00 |  |",
        "| minilm | 1 | b | 9.00 | +1.00 | 4.25 | +0.25 |",
        "| study/dclr | 2 | plain | 3.00 ± 1.41 |  | 1.50 ± 0.71 |  |",
        "| study/dclr | 2 | b | 4.00 ± 1.41 | +1.00 [+1.00, +1.00] | 1.75 ± 0.71 | +0.25 [+0.25, +0.25] |",
    ]
