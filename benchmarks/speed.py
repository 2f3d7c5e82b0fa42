"""Cost of a step (loss forward + backward, no optimizer), every case interleaved in one run.

    python -m benchmarks.speed [--batch 64 --rounds 25 --cases dclr simcse] [--data DATA_FOLDER] [--smoke]

Each round runs every case once, in an order drawn anew, on the same sentences; medians and the median of the
round-by-round ratios to the named reference are printed and written to ``benchmarks/results/speed/``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from benchmarks.common import ROOT, provenance, write_json
from st_extras.complementary import EmbeddingTable
from st_extras.demo import packaged_minilm
from st_extras.losses import DCLRLoss, SimCSELoss
from st_extras.modules.loading import load_encoder
from st_extras.samples import sample_sentences
from st_extras.text.corpus import read_sentences

Step = Callable[[list[dict[str, Any]]], torch.Tensor]


def two_columns(loss: Any) -> Step:
    return lambda columns: loss([columns[0], dict(columns[0])], None)


def one_column(loss: Any) -> Step:
    return lambda columns: loss(columns, None)


def bare_pass(model: SentenceTransformer, copies: int) -> Step:
    """Forward and backward over so many copies of the rows: what the mathematics needs at the least."""

    def step(columns: list[dict[str, Any]]) -> torch.Tensor:
        rows = {
            key: torch.cat([value] * copies) if isinstance(value, torch.Tensor) else value
            for key, value in columns[0].items()
        }
        return model(rows)["sentence_embedding"].square().mean()

    return step


def make_cases(model: SentenceTransformer, sentences: list[str]) -> dict[str, tuple[str, Step]]:
    """Name -> (the case it is measured against, the step)."""
    table = EmbeddingTable.compute(model, load_encoder(packaged_minilm()), sentences, show_progress_bar=False)
    return {
        "mnrl, two columns": ("", two_columns(MultipleNegativesRankingLoss(model))),
        "bare 2B rows": ("mnrl, two columns", bare_pass(model, 2)),
        "simcse": ("mnrl, two columns", one_column(SimCSELoss(model))),
        "dclr": ("mnrl, two columns", one_column(DCLRLoss(model))),
        "dclr, table": ("mnrl, two columns", one_column(DCLRLoss(model, complementary_table=table))),
    }


def measure(model: SentenceTransformer, cases: dict[str, tuple[str, Step]], batches: list[list[str]], seed: int) -> Any:
    order = random.Random(seed)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    model.train()
    for number, batch in enumerate(batches):
        features = model.preprocess(batch)
        for name in order.sample(list(cases), len(cases)):
            began = time.perf_counter()
            cases[name][1]([dict(features)]).backward()
            if number >= 2:  # the first two rounds warm up
                seconds[name].append(time.perf_counter() - began)
            model.zero_grad()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cases", nargs="+", help="only these, and what they are measured against")
    parser.add_argument("--data", type=Path, help="take sts_unlabeled of this folder instead of the sample sentences")
    parser.add_argument("--smoke", action="store_true", help="three rounds of eight sentences, nothing written")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batch, rounds = (8, 3) if options.smoke else (options.batch, options.rounds)
    model = load_encoder(packaged_minilm(), layers=3, pooling="mean", max_seq_length=32, device="cpu")
    sentences = read_sentences(options.data / "sts_unlabeled.txt.gz") if options.data else sample_sentences()
    sentences = random.Random(0).sample(list(dict.fromkeys(sentences)), min(len(set(sentences)), batch * (rounds + 2)))
    while len(sentences) < batch * (rounds + 2):
        sentences += sentences
    batches = [sentences[start * batch : (start + 1) * batch] for start in range(rounds + 2)]
    cases = make_cases(model, sentences)
    if options.cases:
        wanted = {name for case in options.cases for name in (case, cases[case][0]) if name}
        cases = {name: case for name, case in cases.items() if name in wanted}
    seconds = measure(model, cases, batches, seed=0)
    rows = {}
    print(f"{'case':24} {'ms':>8} {'spread':>16}  ratio")
    for name, (reference, _) in cases.items():
        times = seconds[name]
        ratios = [a / b for a, b in zip(times, seconds[reference], strict=True)] if reference else []
        row = {
            "median_ms": 1000 * statistics.median(times),
            "quartiles_ms": [1000 * q for q in statistics.quantiles(times, n=4)[::2]],
            "reference": reference,
            "ratio": statistics.median(ratios) if ratios else None,
            "ratio_of_medians": statistics.median(times) / statistics.median(seconds[reference]) if ratios else None,
        }
        rows[name] = row
        low, high = row["quartiles_ms"]
        against = f"{row['ratio']:.3f} x {reference}" if ratios else ""
        print(f"{name:24} {row['median_ms']:8.1f} {low:7.1f}-{high:7.1f}  {against}")
    if not options.smoke:
        record = {"batch": batch, "rounds": rounds, "cases": rows, **provenance()}
        write_json(ROOT / "results" / "speed" / f"{time.strftime('%Y%m%d-%H%M%S')}.json", record)


if __name__ == "__main__":
    main()
