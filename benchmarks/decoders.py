"""Language models as encoders without training: PromptEOL and EmbedFilter, beside local-llm-embed.

Both are scored on the same thinned sets. Ours is two lines and needs no text. local-llm-embed (``pip install
local-llm-embed==0.1.0``) has its defaults, and whitens on sentences of the STS sets without those of dev and the
tests. ``python -m benchmarks encoders runs/encoders`` makes the language models, de-quantized from 4 bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.records import run_once
from benchmarks.statistics import rank_correlation
from benchmarks.studies import BASELINE_TEXTS, Options, chosen
from benchmarks.texts import DEV, spaced, thinned, without_sentences
from benchmarks.word_baselines import Cosines, cosines_of
from st_extras.encoders import load_encoder
from st_extras.encoders.prompt_template import PROMPT_EOL
from st_extras.evaluation import SEVEN_STS, STSDataset, load_sts
from st_extras.modules import embed_filter
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import read_sentences

DEFAULTS = "prefix weighted_avg weighted_mean whitened"
"""The defaults of local-llm-embed, as its records have them."""


def filtered(folder: Path, fitted: list[str]) -> Cosines:
    """Return the cosines after PromptEOL and EmbedFilter; ``fitted`` is not needed."""
    model = embed_filter(load_encoder(folder, prompt_template=PROMPT_EOL, pooling="lasttoken", device="cpu"))
    return cosines_of(lambda texts: model.encode(list(texts)))


def package(folder: Path, fitted: list[str]) -> Cosines:
    """Return the cosines of local-llm-embed by its defaults, whitened on ``fitted``."""
    from local_llm_embed import LocalLLMEmbedder
    from local_llm_embed.layers import get_selector
    from local_llm_embed.pooling import get_pooler
    from local_llm_embed.variations import prepare_inputs
    from local_llm_embed.whitener import Whitener

    embedder = LocalLLMEmbedder(str(folder), device="cpu")
    way, layer, pooling, _ = DEFAULTS.split()

    @torch.inference_mode()
    def encode(texts: Sequence[str]) -> Any:
        found = []
        for start in range(0, len(texts), embedder.batch_size):
            batch = list(texts[start : start + embedder.batch_size])
            ids, attended, pooled = prepare_inputs(embedder.tokenizer, batch, mode=way, max_length=embedder.max_length)
            passed = embedder.model(input_ids=ids, attention_mask=attended, output_hidden_states=True, use_cache=False)
            hidden = [one.float() for one in passed.hidden_states]
            found.append(get_pooler(pooling)(get_selector(layer)(hidden), pooled).numpy())
        return np.concatenate(found)

    whitener = Whitener.fit(encode(fitted))
    return cosines_of(lambda texts: whitener.transform(encode(texts)))


FILTERED = "PromptEOL, EmbedFilter"


def minilm(folder: Path, fitted: list[str]) -> Cosines:
    """Return the cosines of the packaged encoder, which was tuned for similarity; it needs neither."""
    model = load_encoder(packaged_minilm(), device="cpu")
    return cosines_of(lambda texts: model.encode(list(texts)))


WAYS: dict[str, Callable[[Path, list[str]], Cosines]] = {
    FILTERED: filtered,
    DEFAULTS: package,
    "all-MiniLM-L6-v2": minilm,
}


def score(way: str, folder: Path, sets: list[STSDataset], fitted: list[str]) -> dict[str, Any]:
    """Return the record of a language model and a way to encode with it."""
    cosines = WAYS[way](folder, fitted)
    scores = {
        pairs.name: 100 * rank_correlation(pairs.scores, cosines(pairs.sentences1, pairs.sentences2)) for pairs in sets
    }
    pairs = {found.name: len(found) for found in sets}
    rows = {way: {name: round(value, 2) for name, value in scores.items()}}
    return {"encoder": folder.name, "weights": "de-quantized from 4 bit", "pairs": pairs, "rows": rows}


def run(study: dict[str, Any], options: Options) -> None:
    """Score each language model in each way that has no record."""
    whole = [load_sts(name, options.data) for name in (DEV, *SEVEN_STS)]
    sets = [thinned(pairs, study["pairs"]) for pairs in whole]
    fitted = spaced(without_sentences(read_sentences(options.data / BASELINE_TEXTS["sts"]), whole), study["fitted"])
    beside = partial(score, "all-MiniLM-L6-v2", Path("minilm"), sets, fitted)
    run_once(study["name"], "baselines", beside, root=options.root)
    for name in chosen(options.encoders, study["encoders"], "--encoders"):
        for way, run_name in {FILTERED: f"adapt-{name}", DEFAULTS: name}.items():  # as the records have them
            make = partial(score, way, options.work / "encoders" / name, sets, fitted)
            record = run_once(study["name"], run_name, make, root=options.root)
            if record is not None:
                print(f"{name}, {way}: {record['rows'][way]}", flush=True)
