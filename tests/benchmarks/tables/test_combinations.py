from __future__ import annotations

from pathlib import Path

from benchmarks.names import FITTED
from benchmarks.records import write_json
from benchmarks.tables import combinations


def test_recipes_stand_in_the_order_of_dev_by_genre(results: Path) -> None:
    def after(genres: float, average: float) -> dict[str, float]:
        return {"dev_by_genre": genres, "stsb_dev": 80.0, "average": average}

    cells = {  # (method, seed): seven sets as trained, the sentence term's dev by genre and seven sets
        ("simcse", 0): (60.0, 50.0, 61.0),
        ("simcse", 1): (62.0, 50.0, 63.0),
        ("dclr", 0): (63.0, 70.0, 64.0),
        ("dclr", 1): (64.0, 72.0, 68.0),
    }
    for (method, seed), (plain, genres, refined) in cells.items():
        variants = {"plain": after(genres - 1, plain), "sentence term pooled": after(genres, refined)}
        record = {"method": method, "seed": seed, "average": plain, "post_processing": variants}
        write_json(results / "own_encoder" / f"{method}-{seed}.json", record)
    lines = combinations.ranked_table("own_encoder").splitlines()[2:]
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
    assert len(combinations.ranked_table("own_encoder", top=3).splitlines()) == 5


def test_combinations_of_both_encoders_by_hand(results: Path) -> None:
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
        variants = {"sentence term pooled": {"dev_by_genre": genres, "average": refined}}
        record = {"method": method, "seed": seed, "average": plain, "post_processing": variants}
        write_json(results / study / f"{method}-{seed}.json", record)
    assert combinations.both_encoders_table().splitlines()[2:] == [
        "| dclr-no-guide | sentence term pooled | 74.00 (1) | 61.50 (2) | 67.75 | +7.00 | +5.00 [-20.41, +30.41] |",
        "| SimCSE | sentence term pooled | 70.00 (1) | 61.00 (2) | 65.50 | +5.00 | +2.00 [+2.00, +2.00] |",
    ]
    assert len(combinations.both_encoders_table(top=1).splitlines()) == 3
    for encoder, genres, average in (
        ("recipes/dclr-no-guide-0", 73.0, 66.0),
        ("own_encoder/dclr-no-guide-1", 68.0, 60.0),
        ("own_encoder/dclr-0", 99.0, 99.0),
    ):
        scores = {variant: {"dev_by_genre": genres, "average": average} for variant in FITTED}
        grid = {"encoders": {encoder: {"english, general fit": scores}}}
        file = results / "whitening" / f"{encoder.replace('/', ' ')}.json"
        write_json(file, grid)
    rows = [line for line in combinations.both_encoders_table().splitlines() if "whitened on the text |" in line]
    assert rows == ["| dclr-no-guide | whitened on the text | 73.00 (1) | 68.00 (1) | 70.50 | +6.00 | +8.00 |"]


def test_claims_by_hand(results: Path) -> None:
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
        for seed, average in found.items():
            record = {"method": method, "seed": seed, "average": average}
            if method == "simcse":
                record["post_processing"] = {"plain": {"average": 60.0}, "RepAL pooled": {"average": 60.0 + seed}}
            write_json(results / study / f"{method}-{seed}.json", record)
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in combinations.claims_table().splitlines()[2:]}
    assert rows["| SimCSE, minus start"] == ["", "+11.00 [-1.71, +23.71] (2)", "", "-5.00 (1) |"]
    assert rows["| DCLR, minus SimCSE"] == ["+1.90", "+1.00 [+1.00, +1.00] (2)", "", " |"]
    assert rows["| DCLR, no guide, minus SimCSE"] == ["+1.90", "", "", "-1.50 (1) |"]
    assert rows["| ConSERT, minus SimCSE"] == ["", "", "", " |"]
    refined = ["+0.33", "+0.50 [-5.85, +6.85] (2)", "+0.00 (1)", "+0.00 (1) |"]
    assert rows["| RepAL pooled after SimCSE, minus plain"] == refined
