"""What three pictures of embedding spaces show: cosines of graded pairs, and neighbours before and after adapt.

Cosines are those of STS-B dev, by the packaged encoder: its first three layers, the same whitened on the sample
sentences, and all six. ``adapt`` runs on all six layers and the sample sentences, with its defaults; 300 of these are
held out: the picture shows neighbours among them. In a second run, those that are labelled by topic are held out and
compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim
from torch import Tensor

from benchmarks.figures.cosine_levels import CosineLevelEvaluator
from benchmarks.records import run_once
from benchmarks.studies import Options
from st_extras.adaptation import adapt
from st_extras.evaluation import STSDataset, STSEvaluator, label_scores, load_sts
from st_extras.evaluation.geometry import nearest
from st_extras.modules import WhiteningPostProcessor
from st_extras.plots.maps import neighbor_moves, unit_array
from st_extras.samples import labeled_sentences, sample_sentences
from st_extras.samples.encoder import packaged_minilm, raw_encoder

DRAWN = 300
SHOWN, STEP = 5, 7  # texts with another neighbour: so many, each so many after the one before


def level_record(models: dict[str, SentenceTransformer], data: STSDataset) -> dict[str, Any]:
    """Return the cosine of every pair by each model, what separates the levels of the gold score, and Spearman."""
    found = {}
    for name, model in models.items():
        cosines = pairwise_cos_sim(
            *(model.encode(texts, convert_to_tensor=True) for texts in (data.sentences1, data.sentences2))
        )
        levels = CosineLevelEvaluator(data.sentences1, data.sentences2, data.scores, write_csv=False)
        spearman = STSEvaluator([data], write_csv=False)
        found[name] = {
            "cosines": [round(float(value), 3) for value in cosines],
            "separation": levels(model)["separation"],
            "spearman": 100 * spearman(model)[str(spearman.primary_metric)],
        }
    return {"set": data.name, "scores": list(data.scores), "encoders": found}


def adapted_record(model: SentenceTransformer, texts: Sequence[str]) -> dict[str, Any]:
    """Return nearest neighbours of texts that are held out of ``adapt``, before and after it, and what it chose."""
    distinct = sorted(set(texts))
    drawn = distinct[:: max(1, len(distinct) // DRAWN)][:DRAWN]
    chosen, before, after = adapted_without(model, distinct, drawn)
    near = [nearest(embeddings, 1).flatten() for embeddings in (before, after)]
    shown = (near[0] != near[1]).nonzero().flatten().tolist()[::STEP][:SHOWN]
    moves = {"count": len(drawn), "moves": neighbor_moves(drawn, before, after, shown)}
    return chosen | moves


def adapted_without(
    model: SentenceTransformer, texts: Sequence[str], held_out: Sequence[str]
) -> tuple[dict[str, Any], Tensor, Tensor]:
    """Adapt to the texts that are not held out; return what was chosen, and (N, D) embeddings of the others, before
    and after.
    """
    rest = sorted(set(texts) - set(held_out))
    with tempfile.TemporaryDirectory() as folder:
        adapted = adapt(model, rest, Path(folder) / "adapted", show_progress_bar=False)
    before, after = (one.encode(list(held_out), convert_to_tensor=True) for one in (model, adapted.model))
    gain = None if adapted.chosen_result is None else adapted.chosen_result.gain
    return {"texts": len(rest), "chosen": adapted.chosen, "gain": gain}, before, after


def topics_record(model: SentenceTransformer) -> dict[str, Any]:
    """Return the labelled sample sentences and the cosines of their pairs, before and after ``adapt`` on the others."""
    held_out, topics = labeled_sentences()
    chosen, *both = adapted_without(model, sample_sentences(), held_out)
    found: dict[str, Any] = {"held_out": held_out, "topics": topics}
    for name, embeddings in zip(("before", "after"), both, strict=True):
        unit = unit_array(name, embeddings)
        cosines = (unit @ unit.T)[np.triu_indices(len(unit), k=1)]
        score = label_scores(embeddings, topics, metrics=["map_at_r"])["map_at_r"]
        found[name] = {"cosines": cosines.round(4).tolist(), "map_at_r": 100 * score}
    return chosen | found


def encoders() -> dict[str, SentenceTransformer]:
    """Return the encoders whose cosines are recorded."""
    raw = raw_encoder()
    return {
        "first 3 layers (raw)": raw,
        "the same, whitened": WhiteningPostProcessor.attach(raw, corpus=sample_sentences()),
        "all-MiniLM-L6-v2": SentenceTransformer(packaged_minilm()),
    }


def run(study: dict[str, Any], options: Options) -> None:
    """Record what each of the three pictures shows."""
    name, root = study["name"], options.root
    run_once(name, "cosine_levels", lambda: level_record(encoders(), load_sts("stsb_dev", options.data)), root=root)
    run_once(name, "neighborhoods", lambda: adapted_record(_minilm(), sample_sentences()), root=root)
    run_once(name, "topics", lambda: topics_record(_minilm()), root=root)


def _minilm() -> SentenceTransformer:
    return SentenceTransformer(packaged_minilm())
