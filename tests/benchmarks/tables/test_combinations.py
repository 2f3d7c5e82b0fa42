from __future__ import annotations

from pathlib import Path

from benchmarks.names import FITTED
from benchmarks.records import write_json
from benchmarks.tables import combinations


def after(genres: float, average: float) -> dict[str, float]:
    return {"dev_by_genre": genres, "stsb_dev": 80.0, "average": average}


def test_recipes_stand_in_the_order_of_dev_by_genre(results: Path) -> None:
    cells = {  # (method, seed): seven sets as trained, the sentence term's dev by genre and seven sets
        ("start", 0): (40.0, 60.0, 45.0),
        ("simcse", 0): (60.0, 50.0, 61.0),
        ("simcse", 1): (62.0, 50.0, 63.0),
        ("simcse", 2): (61.0, 50.0, 62.0),
        ("dclr", 0): (63.0, 70.0, 64.0),
        ("dclr", 1): (64.0, 72.0, 68.0),
        ("dclr", 2): (65.0, 71.0, 66.0),
        ("adcse", 0): (99.0, 99.0, 99.0),  # two seeds are too few to rank
        ("adcse", 1): (99.0, 99.0, 99.0),
    }
    for (method, seed), (plain, genres, refined) in cells.items():
        variants = {"plain": after(genres - 1, plain), "sentence term pooled": after(genres, refined)}
        record = {"method": method, "seed": seed, "average": plain, "post_processing": variants}
        write_json(results / "own_encoder" / f"{method}-{seed}.json", record)
    lines = combinations.ranked_table("own_encoder").splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines[:6]] == [
        ["| dclr", "sentence term pooled"],
        ["| dclr", "plain"],
        ["| start", "sentence term pooled"],
        ["| start", "plain"],
        ["| SimCSE", "sentence term pooled"],
        ["| SimCSE", "plain"],
    ]
    difference = "+5.00 [+2.52, +7.48]"  # 4, 6 and 5; t = 4.303
    assert (
        lines[0] == f"| dclr | sentence term pooled | 3 | 71.00 ± 1.00 | 80.00 ± 0.00 | 66.00 ± 2.00 | {difference} |"
    )
    assert lines[2].endswith("| 1 | 60.00 | 80.00 | 45.00 | -16.00 [-18.48, -13.52] |")  # beside all seeds of SimCSE
    few = "Not ranked where there are fewer than 3 seeds (the most that they have): adcse (2)."
    assert lines[6:] == ["", few]
    assert len(combinations.ranked_table("own_encoder", top=3).splitlines()) == 7


def test_floors_stand_first_and_the_pairs_of_dev_beneath(results: Path) -> None:
    for seed in range(3):
        variants = {"plain": after(70.0, 60.0 + seed)}
        record = {"method": "simcse", "seed": seed, "average": 60.0 + seed, "post_processing": variants}
        write_json(results / "own_encoder" / f"simcse-{seed}.json", record)
    for kind, encoder, text, average in (
        ("characters", "", "sts", 68.0),
        ("characters", "", "wiki", 50.0),
        ("sif_removed", "own", "sts", 64.0),
        ("sif_removed", "minilm", "sts", 66.0),
        ("mean", "own", "", 1.0),
    ):
        scores = {"stsb_test": 1.0}
        row = {"kind": kind, "encoder": encoder, "text": text, "dev": 70.0, "scores": scores, **after(60.0, average)}
        write_json(results / "floors" / f"{encoder}-{kind}-{text}.json", row)
    write_json(results / "pairs" / "stsb_dev.json", {"distinct": 1500, "in_tests": 1100})
    lines = combinations.ranked_table("own_encoder").splitlines()
    assert lines[2:4] == [
        "| floor: TF-IDF of characters 3-5 |  | 1 | 60.00 | 70.00 | 68.00 | +7.00 [+4.52, +9.48] |",
        "| floor: SIF of input embeddings, first direction removed |  | 1 | 60.00 | 70.00 | 64.00 "
        "| +3.00 [+0.52, +5.48] |",
    ]
    assert lines[-2:] == ["", "STS-B dev chose here; 1,100 of its 1,500 distinct pairs are in the seven sets too."]
    claims = combinations.claims_table().splitlines()
    assert claims[2] == "| floor: TF-IDF of characters 3-5, minus SimCSE |  |  | +7.00 [+4.52, +9.48] (3) |  |  |"


def test_combinations_of_both_encoders_by_hand(results: Path) -> None:
    cells = {  # (study, method): dev by genre and seven sets behind the sentence term, seven sets as trained; by seed
        ("foundation", "simcse"): [(70.0, 65.0, 60.0)] * 3,
        ("recipes", "dclr-no-guide"): [(74.0, 67.0, 63.0)] * 3,
        ("recipes", "dclr-consert-views-no-guide"): [(74.0, 67.0, 63.0)] * 2,
        ("own_encoder", "simcse"): [(60.0, 52.0, 50.0), (62.0, 54.0, 52.0), (61.0, 53.0, 51.0)],
        ("own_encoder", "dclr-no-guide"): [(61.0, 57.0, 55.0), (62.0, 55.0, 53.0), (61.5, 56.0, 54.0)],
        ("own_encoder", "dclr-consert-views-no-guide"): [(61.0, 57.0, 55.0)] * 3,
        ("own_encoder", "adcse"): [(99.0, 99.0, 99.0)] * 3,  # on one encoder alone
    }
    for (study, method), found in cells.items():
        for seed, (genres, refined, plain) in enumerate(found):
            variants = {"sentence term pooled": {"dev_by_genre": genres, "average": refined}}
            record = {"method": method, "seed": seed, "average": plain, "post_processing": variants}
            write_json(results / study / f"{method}-{seed}.json", record)
    few = "fewer than 3 seeds (the most that they have): dclr-consert-views-no-guide (2)."
    gains = ("+7.00 [+7.00, +7.00]", "+5.00 [+0.03, +9.97]", "+5.00 [+5.00, +5.00]", "+2.00 [+2.00, +2.00]")
    assert combinations.both_encoders_table().splitlines()[2:] == [
        f"| dclr-no-guide | sentence term pooled | 74.00 (3) | 61.50 (3) | 67.75 | {gains[0]} | {gains[1]} |",
        f"| SimCSE | sentence term pooled | 70.00 (3) | 61.00 (3) | 65.50 | {gains[2]} | {gains[3]} |",
        "",
        f"Not ranked where there are {few}",
    ]
    assert len(combinations.both_encoders_table(top=1).splitlines()) == 5
    for seed in range(3):
        scores = {variant: {"dev_by_genre": 73.0, "average": 66.0} for variant in FITTED}
        encoders = {
            f"{study}/dclr-no-guide-{seed}": {"english, general fit": scores} for study in ("recipes", "own_encoder")
        }
        write_json(results / "whitening" / f"{seed}.json", {"encoders": encoders})
    rows = [line for line in combinations.both_encoders_table().splitlines() if "whitened on the text |" in line]
    assert rows == [
        "| dclr-no-guide | whitened on the text | 73.00 (3) | 73.00 (3) | 73.00 | +6.00 [+6.00, +6.00] "
        "| +15.00 [+12.52, +17.48] |"
    ]


def test_claims_by_hand(results: Path) -> None:
    cells = {  # (study, method): seven sets by seed
        ("foundation", "start"): {0: 50.0},
        ("foundation", "simcse"): {0: 60.0, 1: 62.0},
        ("foundation", "dclr"): {0: 61.0, 1: 63.0, 2: 99.0},  # SimCSE lacks the last
        ("own_encoder", "simcse"): {0: 40.0},
        ("own_encoder_wiki", "start"): {0: 45.0},
        ("own_encoder_wiki", "simcse"): {0: 40.0},
        ("own_encoder_wiki", "dclr-no-guide"): {0: 38.5},
        ("own_encoder_better", "simcse"): {0: 50.0},
        ("own_encoder_better", "dclr-no-guide"): {0: 54.0},
    }
    for (study, method), found in cells.items():
        for seed, average in found.items():
            record = {"method": method, "seed": seed, "average": average}
            if method == "simcse":
                record["post_processing"] = {"plain": {"average": 60.0}, "RepAL pooled": {"average": 60.0 + seed}}
            write_json(results / study / f"{method}-{seed}.json", record)
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in combinations.claims_table().splitlines()[2:]}
    assert rows["| SimCSE, minus start"] == ["", "+11.00 [-1.71, +23.71] (2)", "", "-5.00 (1)", " |"]
    assert rows["| DCLR, minus SimCSE"] == ["+1.90", "+1.00 [+1.00, +1.00] (2)", "", "", " |"]
    assert rows["| DCLR, no guide, minus SimCSE"] == ["+1.90", "", "", "-1.50 (1)", "+4.00 (1) |"]
    assert rows["| ConSERT, minus SimCSE"] == ["", "", "", "", " |"]
    assert rows["| SLT-FAI over ConSERT, minus ConSERT"] == ["+1.31", "", "", "", " |"]
    refined = ["+0.33", "+0.50 [-5.85, +6.85] (2)", "+0.00 (1)", "+0.00 (1)", "+0.00 (1) |"]
    assert rows["| RepAL pooled after SimCSE, minus plain"] == refined
