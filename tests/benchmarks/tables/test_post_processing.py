from benchmarks.records import write_json
from benchmarks.tables import post_processing


def test_the_grid_stands_in_for_records_without_post_processing(results):
    for seed in (0, 1, 2):
        own = {"post_processing": {"plain": {"average": 1.0, "dev_by_genre": 1.0}}} if seed == 0 else {}
        record = {"method": "dclr", "seed": seed, **own}
        write_json(results / "study" / f"dclr-{seed}.json", record)
    averages = {"dclr-0": 5.0, "dclr-1": 2.0, "dclr-9": 9.0}
    grid = {name: {"english, target fit": {"plain": {"average": average}}} for name, average in averages.items()}
    write_json(results / "repal_trained" / "grid.json", {"encoders": grid})
    assert post_processing.averages(post_processing.refined("study/dclr"), "plain") == {0: 1.0, 1: 2.0}
