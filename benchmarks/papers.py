"""The papers' own settings: BERT base, their text, batch, rate, steps and selection, ready to run.

    python -m benchmarks.papers simcse dclr --data FOLDER [--methods dclr --seeds 0]
    python -m benchmarks.papers --smoke [simcse ...]

Each name is a configuration in ``benchmarks/configs/papers`` (without a name: all of them), which says what FOLDER must
hold; ``benchmarks.sts`` runs it, on the GPU that is there, and goes on where it was stopped. Encoder and Wikipedia's
sentences come from the hub. docs/papers.md estimates what each costs. ``--smoke`` runs every method for a few steps on
a small encoder and data that the package contains, in a temporary folder; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.smoke import write_data
from benchmarks.sts import add_run_options, run_study
from benchmarks.studies import CONFIGS, load_study
from benchmarks.tables.quality import study_table

PAPERS = CONFIGS / "papers"
NAMES = tuple(sorted(path.stem for path in PAPERS.glob("*.toml")))
SMALL = {
    "corpus": "sentences.txt",
    "sentences": 200,
    "frequencies": "frequencies.tsv",
    "batch_size": 8,
    "steps": 2,
    "eval_steps": 1,
    "seeds": [0],
}


def shrunk(study: dict[str, Any]) -> dict[str, Any]:
    """Return a study with the same methods and losses on one layer of the packaged encoder, for two steps."""
    methods = {}
    for name, own in study["methods"].items():
        method = {key: value for key, value in own.items() if key not in SMALL}
        options = method.get("options", {})
        if "warmup_steps" in options:
            method["options"] = options | {"warmup_steps": 1}
        if method["loss"] == "PaSeRLoss":
            method["options"] = options | {"num_decoder_layers": 1}
            method["masking"] = {"top_k": 1}  # synonyms need WordNet
        if "encoder" in method:
            method["encoder"] = _small(method["encoder"])
        methods[name] = method
    training = study["training"] | {key: value for key, value in SMALL.items() if key in study["training"]}
    training |= {"sentences": SMALL["sentences"], "seeds": SMALL["seeds"], "post_processing": ["plain", "RepAL"]}
    encoder = {"layers": 2, **_small({key: value for key, value in study["encoder"].items() if key != "path"})}
    return study | {"encoder": encoder, "training": training, "methods": methods}


def _small(encoder: dict[str, Any]) -> dict[str, Any]:
    return encoder | {"max_seq_length": 16, "pooling": "mean"}  # [CLS] of few layers is the same in all texts


def run_smoke(names: list[str], folder: Path) -> None:
    """Run configurations for two steps with everything that they read and write in ``folder``."""
    data = folder / "data"
    data.mkdir()
    write_data(data)
    for name in names:
        study = shrunk(load_study(PAPERS / f"{name}.toml"))
        run_study(study, list(study["methods"]), None, data, folder / "work" / name, folder / "results")
        print(study_table(study["name"], folder / "results"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--data", type=Path, default=os.environ.get("ST_EXTRAS_DATA"), help="folder with the STS sets")
    add_run_options(parser)
    parser.add_argument("--smoke", action="store_true", help="a few steps on a small encoder, nothing is kept")
    options = parser.parse_args()
    names = options.names or list(NAMES)
    if unknown := set(names) - set(NAMES):
        parser.error(f"NAME must be one of {', '.join(NAMES)}, got {', '.join(sorted(unknown))}.")
    if options.smoke:
        with tempfile.TemporaryDirectory() as folder:
            run_smoke(names, Path(folder))
        return
    if options.data is None:
        parser.error("--data FOLDER (or ST_EXTRAS_DATA) must name the folder with the STS sets.")
    for name in names:
        study = load_study(PAPERS / f"{name}.toml")
        methods = [method for method in study["methods"] if method in (options.methods or study["methods"])]
        run_study(study, methods, options.seeds, Path(options.data), options.work / study["name"], options.results)
        print(study_table(study["name"], options.results))


if __name__ == "__main__":
    main()
