"""``python -m benchmarks.sts --smoke``: the runner on data that the package brings along, as the folder it expects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import sts
from benchmarks.common import ROOT
from benchmarks.records import table
from st_extras.demo import raw_encoder
from st_extras.evaluation import SEVEN_STS
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.text.frequency import FrequencyTable


def write_data(folder: Path) -> None:
    """Sentences, their token counts, the graded sample pairs as STS-B dev, and a seventh of them as each test set."""
    sentences = sample_sentences()[::8]
    (folder / "sentences.txt").write_text("\n".join(sentences), encoding="utf8")
    FrequencyTable.count(sentences, raw_encoder("cpu").tokenizer).save(folder / "frequencies.tsv")
    pairs = list(zip(*graded_pairs(), strict=True))
    sets = {"stsb_dev": pairs} | {name: pairs[i :: len(SEVEN_STS)] for i, name in enumerate(SEVEN_STS)}
    for name, rows in sets.items():
        lines = [f"sample\t{score}\t{first}\t{second}" for first, second, score in rows]
        (folder / f"{name}.tsv").write_text("\n".join(["subset\tscore\tsentence1\tsentence2", *lines]), encoding="utf8")


def run_smoke(folder: Path) -> dict[str, Any]:
    """Run ``configs/smoke.toml`` with everything that it writes in ``folder``; the study that was run."""
    study = sts.load_study(ROOT / "configs" / "smoke.toml")
    data = folder / "data"
    data.mkdir()
    write_data(data)
    sts.run_study(study, list(study["methods"]), None, data, folder / "work", folder / "results")
    print(table(study["name"], folder / "results"))
    return study
