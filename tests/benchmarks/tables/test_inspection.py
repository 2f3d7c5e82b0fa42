from __future__ import annotations

from pathlib import Path

from benchmarks.records import write_json
from benchmarks.tables import inspection


def test_space_rows_by_hand(results: Path) -> None:
    bias = dict.fromkeys(("low_centre_distance", "high_centre_distance", "low_neighbour_distance"), 1.0)
    for seed, accuracy in ((0, 0.5), (1, 0.75)):
        space = {"frequency_bias": {"probe_accuracy": accuracy, "high_neighbour_distance": 2.0, **bias}}
        record = {"method": "simcse", "seed": seed, **space}
        write_json(results / "study" / f"simcse-{seed}.json", record)
    assert inspection.space_table("study").splitlines()[2] == "| simcse | 2 | 0.625 | 1.000 | 1.000 | 1.000 | 2.000 |"
    with_geometry = record | {"method": "a", "geometry": {"mean_cosine": 0.25, "iso_score": 0.5, "uniformity": -3.0}}
    for seed in (0, 1):
        write_json(results / "study" / f"simcse-{seed}.json", with_geometry)
    lines = inspection.space_table("study").splitlines()
    assert lines[0].endswith("| mean cosine | IsoScore | uniformity |")
    assert lines[2].endswith("| 0.250 | 0.500 | -3.000 |")
