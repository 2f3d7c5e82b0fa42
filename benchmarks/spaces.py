"""What two pictures of embedding spaces show: cosines of graded pairs, and of texts by topic before and after adapt.

Cosines of graded pairs are those of STS-B dev, by the packaged encoder: its first three layers, the same whitened on
the sample sentences, and all six. ``adapt`` runs on all six layers with its defaults, on the sample sentences but for
those that are labelled by topic, which are compared.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim

from benchmarks.records import run_once
from benchmarks.studies import Options
from benchmarks.trained_spaces import cosine_by_level, level_separation
from st_extras.adaptation import AdaptationOptions, adapt
from st_extras.evaluation import STSDataset, STSEvaluator, label_scores, load_sts
from st_extras.modules import whitening
from st_extras.samples import labeled_sentences, sample_sentences
from st_extras.samples.encoder import packaged_minilm, raw_encoder


def level_record(models: dict[str, SentenceTransformer], data: STSDataset) -> dict[str, Any]:
    """Return the cosine of every pair by each model, what separates the levels of the gold score, and Spearman."""
    found = {}
    for name, model in models.items():
        cosines = pairwise_cos_sim(
            *(model.encode(texts, convert_to_tensor=True) for texts in (data.sentences1, data.sentences2))
        )
        spearman = STSEvaluator([data], write_csv=False)
        found[name] = {
            "cosines": [round(float(value), 3) for value in cosines],
            "separation": level_separation(cosine_by_level(cosines, data.scores)),
            "spearman": 100 * spearman(model)[str(spearman.primary_metric)],
        }
    return {"set": data.name, "scores": list(data.scores), "encoders": found}


def topics_record(model: SentenceTransformer) -> dict[str, Any]:
    """Return the labelled sample sentences and the cosines of their pairs, before and after ``adapt`` on the others."""
    held_out, topics = labeled_sentences()
    rest = sorted(set(sample_sentences()) - set(held_out))
    with tempfile.TemporaryDirectory() as folder:
        adapted = adapt(model, rest, Path(folder) / "adapted", options=AdaptationOptions(show_progress_bar=False))
    found: dict[str, Any] = {"texts": len(rest), "chosen": adapted.chosen}
    found |= {"gain": None if adapted.chosen_result is None else adapted.chosen_result.gain}
    found |= {"held_out": held_out, "topics": topics}
    for name, encoder in {"before": model, "after": adapted.model}.items():
        embeddings = encoder.encode(list(held_out), convert_to_tensor=True)
        unit = torch.nn.functional.normalize(embeddings.cpu(), dim=1).numpy()
        cosines = (unit @ unit.T)[np.triu_indices(len(unit), k=1)]
        score = label_scores(embeddings, topics)["map_at_r"]
        found[name] = {"cosines": cosines.round(4).tolist(), "map_at_r": 100 * score}
    return found


def encoders() -> dict[str, SentenceTransformer]:
    """Return the encoders whose cosines are recorded."""
    raw = raw_encoder()
    return {
        "first 3 layers (raw)": raw,
        "the same, whitened": whitening(raw, sample_sentences()),
        "all-MiniLM-L6-v2": SentenceTransformer(packaged_minilm()),
    }


def run(study: dict[str, Any], options: Options) -> None:
    """Record what each of the pictures shows."""
    name, root = study["name"], options.root
    run_once(name, "cosine_levels", lambda: level_record(encoders(), load_sts("stsb_dev", options.data)), root=root)
    run_once(name, "topics", lambda: topics_record(SentenceTransformer(packaged_minilm())), root=root)
