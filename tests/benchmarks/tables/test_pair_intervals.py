from benchmarks.records import write_json
from benchmarks.tables.pair_intervals import pairs_table


def test_pair_intervals_by_hand(results):
    drawn = [float(number) for number in range(101)]  # its 2.5 and 97.5 % quantiles are 2.5 and 97.5
    for method, seed, average, resampled in (
        ("simcse", 0, 50.0, drawn),
        ("simcse", 1, 52.0, [value + 2 for value in drawn]),
        ("dclr", 0, 53.0, [value + 3 for value in drawn]),
        ("dclr", 2, 99.0, [value + 9 for value in drawn]),  # SimCSE lacks this seed
        ("old", 0, 99.0, []),
    ):
        record = {"method": method, "seed": seed, "average": average, "without_dev": {"average": average - 1}}
        write_json(results / "foundation" / f"{method}-{seed}.json", record | {"resampled": resampled})
    row = {"kind": "characters", "encoder": "", "text": "sts", "average": 60.0, "resampled": [9.0] * 101}
    write_json(results / "floors" / "a.json", row | {"without_dev": {"average": 59.0}})
    assert pairs_table("foundation").splitlines()[2:] == [
        "| floor: TF-IDF of characters 3-5 | 1 | 60.00 | [9.00, 9.00] | 59.00 | +9.00 [-89.50, +5.50] |",
        "| dclr | 2 | 76.00 ± 32.53 | [8.50, 103.50] | 75.00 ± 32.53 | +3.00 [+3.00, +3.00] |",
        "| simcse | 2 | 51.00 ± 1.41 | [3.50, 98.50] | 50.00 ± 1.41 |  |",
    ]
    assert pairs_table("a study without a configuration") == "Not run yet."
