"""Language models as encoders by local-llm-embed (PyPI), on the pairs and texts of ``benchmarks/decoders.py``.

It scores each of the package's inputs ("prefix", "echo"), layers and poolings, alone and whitened by the package on
sentences of the STS sets without those of dev and the tests. ``default`` names the package's own defaults, and
``best_by_dev`` the row that STS-B dev scores best; what is not finite in bfloat16 is listed and left out. It takes
``pip install local-llm-embed==0.1.0``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.decoders import groups, texts_of
from benchmarks.pairs import DEV, correlation
from benchmarks.records import run_once
from benchmarks.studies import Options, chosen

Array = NDArray[np.float32]
INPUTS = ("prefix", "echo")
DEFAULT = "prefix weighted_avg weighted_mean whitened"


@torch.inference_mode()
def encode(embedder: Any, texts: Sequence[str], way: str) -> dict[str, Array]:
    """Return the (N, D) embeddings by "layer pooling", all from one pass, as the package computes each."""
    from local_llm_embed.layers import all_layer_names, get_selector
    from local_llm_embed.pooling import all_pooling_names, get_pooler
    from local_llm_embed.variations import prepare_inputs

    found: dict[str, list[Array]] = {}
    for start in range(0, len(texts), embedder.batch_size):
        batch = list(texts[start : start + embedder.batch_size])
        ids, attended, pooled = prepare_inputs(embedder.tokenizer, batch, mode=way, max_length=embedder.max_length)
        passed = embedder.model(
            input_ids=ids.to(embedder.device),
            attention_mask=attended.to(embedder.device),
            output_hidden_states=True,
            use_cache=False,
        )
        hidden = [layer.float().cpu() for layer in passed.hidden_states]
        for layer in all_layer_names():
            for pooling in all_pooling_names():
                rows = get_pooler(pooling)(get_selector(layer)(hidden), pooled).numpy()
                found.setdefault(f"{layer} {pooling}", []).append(rows)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def score(name: str, study: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the record of a language model."""
    from local_llm_embed import LocalLLMEmbedder
    from local_llm_embed.whitener import Whitener

    device = "cuda" if torch.cuda.is_available() else "cpu"
    embedder = LocalLLMEmbedder(str(options.work / "encoders" / name), device=device)
    sets, fitted = groups(study, options.data)
    texts = list(dict.fromkeys([*fitted["sts"], *(text for pairs in sets.values() for text in texts_of(pairs))]))
    places = {text: place for place, text in enumerate(texts)}

    def correlations(rows: Array) -> dict[str, float]:
        found = {}
        for group, pairs in sets.items():
            first, second = (rows[[places[text] for text in side]] for side in (pairs.sentences1, pairs.sentences2))
            lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
            cosines = (first * second).sum(axis=1) / np.maximum(lengths, 1e-12)
            found[group] = round(correlation(np.asarray(pairs.scores), cosines), 2)
        return found

    rows, not_finite = {}, []
    for way in INPUTS:
        for pooled, vectors in encode(embedder, texts, way).items():
            if not np.isfinite(vectors).all():
                not_finite.append(f"{way} {pooled}")
                continue
            whitener = Whitener.fit(vectors[[places[text] for text in fitted["sts"]]])
            for transform, of in {"plain": vectors, "whitened": whitener.transform(vectors)}.items():
                scores = correlations(of)
                if np.isfinite(list(scores.values())).all():
                    rows[f"{way} {pooled} {transform}"] = scores
                else:  # all texts have one embedding
                    not_finite.append(f"{way} {pooled} {transform}")
    return {
        "encoder": name,
        "package": "local-llm-embed 0.1.0",
        "weights": "de-quantized from 4 bit",
        "dtype": str(embedder.model.dtype).removeprefix("torch."),
        "pairs": {group: len(pairs) for group, pairs in sets.items()},
        "fitted": {"sts": len(fitted["sts"])},
        "default": DEFAULT,
        "best_by_dev": max(rows, key=lambda row: rows[row][DEV]),
        "not_finite": not_finite,
        "rows": rows,
    }


def run(study: dict[str, Any], options: Options) -> None:
    """Score each language model that has no record yet."""
    for name in chosen(options.encoders, list(study["encoders"]), "--encoders"):
        record = run_once(study["name"], name, partial(score, name, study, options), root=options.root)
        if record is not None:
            print(f"{name}: {record['rows'][DEFAULT]}", flush=True)
