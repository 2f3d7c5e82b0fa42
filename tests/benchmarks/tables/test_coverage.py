from benchmarks.records import write_json
from benchmarks.tables import coverage


def test_unrun_rows_by_hand(results, tmp_path, monkeypatch):
    training = "[training]\nseeds = [0, 1, 2]\nsteps = 300\nbatch_size = 128\n"
    for name in ("first", "smoke"):
        text = f'{training}[methods.simcse]\nloss = "A"\n[methods.dclr]\nloss = "B"\nseeds = [1]\n'
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf8")
    for name, seed in (("simcse", 1), ("dclr", 1), ("dclr", 7), ("start", 0)):
        write_json(results / "first" / f"{name}-{seed}.json", {"method": name, "seed": seed})
    for seed, (loss, seconds) in enumerate((("A", 450.0), ("A", 600.0), ("A", 1000.0), ("B", 9000.0))):
        record = {"study": "foundation", "steps": 100, "seconds": seconds, "settings": {"loss": loss}}
        write_json(results / "foundation" / f"{seed}.json", record)
    monkeypatch.setattr("benchmarks.studies.CONFIGS", tmp_path)
    # 2 cells of 300 steps, 6 seconds each with batches of 64, twice as long
    assert coverage.unrun_table().splitlines()[2:] == ["| first | 2 of 4 | 2.0 | simcse (0, 2) |"]
