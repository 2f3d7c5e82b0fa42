"""What remains of the gain of ``adapt`` in smaller embeddings: int8, one bit a dimension, and the first 128 dimensions.

Per domain and seed, ``adapt`` is fitted on train texts, without their labels. MAP@R of the test texts is scored by the
cosines of the embeddings before and after, as they are and in each smaller form: of int8, the ranges of the dimensions
are those of the train texts; of bits, the cosine of signs, which orders as the Hamming distance does.
"""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from typing import Any

import numpy as np
import torch
from sentence_transformers.util import quantize_embeddings
from torch import Tensor

from benchmarks.domains import DOMAINS, HELD_OUT, Cell, Domain, adapted
from benchmarks.records import run_once
from benchmarks.studies import Options, chosen
from st_extras.evaluation.geometry import moved_threshold
from st_extras.evaluation.label_metrics import average_precisions, label_numbers
from st_extras.functional import unit_rows

DIMENSIONS = 128
FORMS = ("float32", "int8", "ubinary", "128 dimensions")
THRESHOLD = 0.8


def smaller(form: str, embeddings: Tensor, calibration: Tensor) -> Tensor:
    """Return (N, D) unit rows whose cosines are those of a form of the ``embeddings``.

    Args:
        form: one of FORMS.
        embeddings: (N, D).
        calibration: (M, D) of other texts, for the ranges of int8.
    """
    rows = embeddings.float().numpy()
    if form == "int8":
        codes = quantize_embeddings(rows, "int8", calibration_embeddings=calibration.float().numpy())
        return unit_rows(torch.from_numpy(np.asarray(codes)).double())
    if form == "ubinary":
        bits = np.unpackbits(np.asarray(quantize_embeddings(rows, "ubinary")), axis=1, count=rows.shape[1])
        return unit_rows(torch.from_numpy(2.0 * bits - 1.0))
    return unit_rows(embeddings.double()[:, :DIMENSIONS] if form == "128 dimensions" else embeddings.double())


def run_cell(cell: Cell, seed: int, fitted: int) -> dict[str, Any]:
    """Adapt with so many texts, drawn by a seed, and return the record."""
    domain, facts = cell.domain, dict[str, Any]()
    numbers = domain.order(seed)[HELD_OUT:][:fitted]
    model = adapted({}, cell.known, [domain.train[i] for i in numbers], seed, facts)
    test, labels = list(domain.test), label_numbers(domain.labels)

    def after(texts: list[str]) -> Tensor:
        rows: Tensor = model.encode(texts, convert_to_tensor=True, show_progress_bar=False)
        return rows.cpu().double()

    train = unit_rows(cell.train[numbers])
    embeddings = {
        "before": (unit_rows(cell.test[: len(test)]), train),
        "after": (unit_rows(after(test)), unit_rows(after([domain.train[i] for i in numbers]))),
    }
    forms = {when: {form: smaller(form, *rows) for form in FORMS} for when, rows in embeddings.items()}
    scores = {
        when: {form: 100 * float(average_precisions(rows, labels).nanmean()) for form, rows in of.items()}
        for when, of in forms.items()
    }
    moved = moved_threshold(THRESHOLD, forms["before"]["float32"], forms["after"]["float32"]).after
    threshold = {"before": THRESHOLD, "after": moved}
    for form in FORMS[1:]:
        of_form = None if moved is None else moved_threshold(moved, forms["after"]["float32"], forms["after"][form])
        threshold[form] = of_form and of_form.after
    record = {"encoder": cell.name, "domain": domain.name, "row": "adapt", "seed": seed}
    return record | {"scores": scores, "threshold": threshold, "chosen": facts["chosen"], "fitted": len(numbers)}


def run(study: dict[str, Any], options: Options) -> None:
    """Run the seeds of each domain that have no record."""
    name = study["encoder"]
    for domain_name in chosen(options.sets, DOMAINS, "--sets"):
        domain = Domain.load(domain_name, options.data)
        train = random.Random(0).sample(domain.train, len(domain.train))[: study["texts"]]
        places = sorted(random.Random(0).sample(range(len(domain.test)), study["tested"]))
        test, labels = ([texts[place] for place in places] for texts in (domain.test, domain.labels))
        parts: dict[str, Any] = {"train": train, "test": test, "labels": labels, "pairs": [], "grades": []}
        cell = Cell(name, dataclasses.replace(domain, **parts))
        for seed in options.seeds or study["seeds"]:
            run = f"{name}-{domain_name}-adapt-seed{seed}"
            made = run_once(study["name"], run, partial(run_cell, cell, seed, study["fitted"]), root=options.root)
            if made is not None:
                print(f"{domain_name}, seed {seed}: {made['scores']['after']['float32']:.2f}", flush=True)
