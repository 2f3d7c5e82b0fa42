"""Run every loss for a few steps on the sample sentences, and leave nothing behind.

    python -m benchmarks.smoke

It runs ``configs/smoke.toml`` with data that the package contains, in a temporary folder. It shows that the studies
run; the figures mean nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.sts import run_study
from benchmarks.studies import named_study
from benchmarks.tables.quality import study_table
from st_extras.evaluation import SEVEN_STS
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.samples.encoder import raw_encoder
from st_extras.text.frequency import FrequencyTable


def write_data(folder: Path) -> None:
    """Write sentences, their token counts, some graded pairs as STS-B dev, and a seventh of them as each test set."""
    sentences = sample_sentences()[::8]
    (folder / "sentences.txt").write_text("\n".join(sentences), encoding="utf8")
    FrequencyTable.count(sentences, raw_encoder("cpu").tokenizer).save(folder / "frequencies.tsv")
    pairs = list(zip(*graded_pairs(), strict=True))[::4]
    sets = {"stsb_dev": pairs} | {name: pairs[i :: len(SEVEN_STS)] for i, name in enumerate(SEVEN_STS)}
    for name, rows in sets.items():
        lines = [f"sample\t{score}\t{first}\t{second}" for first, second, score in rows]
        (folder / f"{name}.tsv").write_text("\n".join(["subset\tscore\tsentence1\tsentence2", *lines]), encoding="utf8")


def run_smoke(folder: Path) -> dict[str, Any]:
    """Run the study with everything that it reads and writes in ``folder``, print its table, and return the study."""
    study = named_study("smoke")
    data = folder / "data"
    data.mkdir()
    write_data(data)
    run_study(study, list(study["methods"]), None, data, folder / "work", folder / "results")
    print(study_table(study["name"], folder / "results"))
    return study


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run_smoke(Path(folder))


if __name__ == "__main__":
    main()
