from benchmarks.records import write_json
from benchmarks.tables import combinations


def after(genres: float, average: float) -> dict[str, float]:
    return {"dev_by_genre": genres, "stsb_dev": 80.0, "average": average}


def test_recipes_stand_in_the_order_of_dev_by_genre(results):
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
