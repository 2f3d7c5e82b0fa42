"""Language models of others as sentence encoders, without training: layers, poolings, prompts and linear steps.

The configuration says which layers, which ways to write a text, how many pairs of each set and how many sentences to
fit on. ``python -m benchmarks encoders runs/encoders`` makes the encoders, de-quantized from 4 bit.

* Ways: "plain", the text alone; "start", the tokenizer's start token before it; "eol", PromptEOL; "chat", the
  tokenizer's chat template, which Sentence Transformers puts around every text unless told otherwise; "echo", the text
  twice, pooled over its second copy (arXiv 2402.15449); "both", attention in both directions (arXiv 2404.05961, without
  its training). "filtered" and "filtered-eol" are "start" and "eol" after EmbedFilter alone.
* Poolings: "mean"; "rest", the mean without the first token; "weightedmean"; "lasttoken". Each layer's output goes
  through the final norm, as in a model cut to that layer by ``load_encoder``.
* Steps: none, whitening to 64, 128 and 256 dimensions, soft whitening, all-but-the-top; fitted on Wikipedia ("wiki"),
  or on sentences of the STS sets without those of dev and the tests ("sts"). EmbedFilter (arXiv 2606.07502) needs no
  text: it leaves out as many of the first as of the last singular vectors of the unembedding matrix.

All layers of a text come from one pass, and stay in the work folder: a run that was stopped resumes. STS-B dev chooses
the rows of the table. Beside the ways, the study has TF-IDF, SIF and all-MiniLM-L6-v2 on the same pairs, and what
``adapt`` makes of each language model and text, without labels, by the saved model.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from benchmarks.fitted_text import spaced, thinned, without_sentences
from benchmarks.names import BASELINE_TEXTS
from benchmarks.pairs import DEV, correlation
from benchmarks.provenance import provenance
from benchmarks.records import append, has_run, run_once
from benchmarks.studies import Options, chosen
from benchmarks.word_baselines import (
    FITTED,
    TFIDF,
    Cosines,
    cosines_of,
    input_embeddings,
    sif_cosines,
    tfidf_cosines,
)
from st_extras.adaptation import adapt
from st_extras.adaptation.extraction import embed_filter
from st_extras.encoders import load_encoder
from st_extras.encoders.prompt_template import PROMPT_EOL
from st_extras.evaluation import SEVEN_STS, STSDataset, load_sts
from st_extras.modules import AllButTheTopPostProcessor, CorpusStatistics, WhiteningPostProcessor
from st_extras.samples.encoder import packaged_minilm
from st_extras.text import read_sentences

Array = NDArray[np.float32]
TEMPLATES = {"eol": PROMPT_EOL, "filtered-eol": PROMPT_EOL, "chat": "chat"}  # of others: the text alone
STARTED = ("start", "echo", "both", "filtered")  # the tokenizer's start token is put before the text
ECHO = ("Rewrite the sentence: {}, rewritten sentence: ", "{}")
EDGES = (1 / 16, 1 / 4)  # of all dimensions, left out by EmbedFilter at either end
POOLINGS = ("mean", "rest", "weightedmean", "lasttoken")
WHITENED = (64, 128, 256)
SOFT = 0.1  # epsilon of soft whitening
BATCH = 64
LONGEST = 100  # characters of a sentence of Wikipedia that is fitted on; the STS sets' are as short


def pooled(tokens: Tensor, mask: Tensor) -> Tensor:
    """Pool (B, L, D) token embeddings, padded on the right, in each of POOLINGS: (P, B, D)."""
    tokens, mask = tokens.float(), mask.float()
    places = mask.cumsum(dim=1) * mask  # (B, L), 1-based
    rest = torch.where(mask.sum(1, keepdim=True) > 1, mask * (places > 1), mask)  # a text of one token keeps it
    last = (places == mask.sum(1, keepdim=True)).float() * mask
    weights = torch.stack([mask, rest, places, last])  # (P, B, L)
    return torch.einsum("pbl,bld->pbd", weights / weights.sum(-1, keepdim=True), tokens)


def seen_by_all(mask: Tensor) -> Tensor:
    """Return the (B, 1, L, L) mask with which each token sees all that (B, L) ``mask`` shows."""
    hidden = torch.zeros(mask.shape).masked_fill(mask == 0, torch.finfo(torch.float32).min)
    return hidden[:, None, None, :].expand(-1, 1, mask.shape[1], -1)


def second_copies(features: Any, texts: Sequence[str], before: str) -> Tensor:
    """Return the (B, L) mask of the tokens of each text's second copy."""
    begins = [len(before) + len(ECHO[0].format(text)) for text in texts]
    ends = features["offset_mapping"][:, :, 1]
    return features["attention_mask"] * (ends > torch.tensor(begins).unsqueeze(1))


def encode(model: Any, texts: Sequence[str], layers: Sequence[int], way: str = "plain") -> Array:
    """Encode texts by each of the layers, in each of POOLINGS, in one pass.

    Args:
        model: starts with a decoder.
        texts: N texts.
        layers: K numbers, from 1.
        way: how a text is written and read.

    Returns:
        (K, P, N, D).
    """
    body = model.transformers_model
    total = body.config.num_hidden_layers
    model.tokenizer.padding_side = "right"
    before = model.tokenizer.bos_token or "" if way in STARTED and not starts_by_itself(model) else ""
    read = {"padding": True, "return_tensors": "pt", "return_offsets_mapping": True}
    found = np.zeros((len(layers), len(POOLINGS), len(texts), body.config.hidden_size), dtype=np.float32)
    order = np.argsort([len(text) for text in texts], kind="stable")
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        batch = [texts[i] for i in rows]
        if way == "echo":
            features = model.tokenizer([before + "".join(ECHO).format(text, text) for text in batch], **read)
            shown = second_copies(features, batch, before)
        else:
            features = model.preprocess([before + text for text in batch])
            shown = features["attention_mask"]
        given = {name: features[name] for name in ("input_ids", "attention_mask")}
        if way == "both":
            given["attention_mask"] = seen_by_all(shown).to(body.dtype)
        with torch.inference_mode():
            states = body(**given, output_hidden_states=True, use_cache=False).hidden_states
            for k, layer in enumerate(layers):
                tokens = states[layer] if layer == total else body.norm(states[layer])
                found[k][:, rows] = pooled(tokens, shown).numpy()
    return found


def starts_by_itself(model: Any) -> bool:
    """Return whether the tokenizer puts its start token before every text."""
    return bool(model.tokenizer("a")["input_ids"][0] == model.tokenizer.bos_token_id)


def texts_of(pairs: STSDataset) -> list[str]:
    """Return the first sentences, then the second ones."""
    return [*pairs.sentences1, *pairs.sentences2]


def groups(study: dict[str, Any], data: Path) -> tuple[dict[str, STSDataset], dict[str, list[str]]]:
    """Return the sets by name, dev and STS-B test first, and the texts to fit on."""
    whole = {name: load_sts(name, data) for name in (DEV, "stsb_test", *SEVEN_STS)}
    sets = {name: thinned(found, study["pairs"]) for name, found in whole.items()}
    sts = without_sentences(read_sentences(data / BASELINE_TEXTS["sts"]), list(whole.values()))
    wiki = [t for t in read_sentences(data / BASELINE_TEXTS["wiki"], limit=100 * study["wiki"]) if len(t) <= LONGEST]
    return sets, {"sts": spaced(sts, study["sts"]), "wiki": spaced(wiki, study["wiki"])}


def cached(file: Path, texts: Sequence[str], make: Any) -> Array:
    """Return the (K, P, N, D) embeddings of texts from a file, made first if it is not there.

    Raises:
        ValueError: if the file was made from other texts.
    """
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    if not file.exists():
        unique = list(dict.fromkeys(texts))
        rows = {text: i for i, text in enumerate(unique)}
        found = make(unique)[:, :, [rows[text] for text in texts]]
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part.npz")
        np.savez(part, embeddings=found, texts=digest)
        os.replace(part, file)
    with np.load(file) as kept:
        if str(kept["texts"]) != digest:
            raise ValueError(f"{file} was made from other texts: give another --cache, or remove it.")
        return np.asarray(kept["embeddings"])


def encode_all(name: str, way: str, study: dict[str, Any], models: Path, cache: Path, data: Path) -> None:
    """Encode all groups of texts in one way, and say how long each took."""
    model = load_encoder(models / name, dtype=study["dtype"], device="cpu", prompt_template=TEMPLATES.get(way, "{}"))
    layers = study["encoders"][name]["layers"]
    if way.startswith("filtered"):
        kernels = [step[0] for edge in EDGES if (step := embed_filter(model, edge))]
        np.savez(cache / f"{name}-filters.npz", **{f"filter-{one.size(1)}": one.float().numpy() for one in kernels})
    sets, fitted = groups(study, data)
    fitted = {} if way.startswith("filtered") else fitted  # the filter needs no text
    every = {group: texts_of(pairs) for group, pairs in sets.items()}
    texts_by_group = {group: every.pop(group) for group in (DEV, "stsb_test")} | fitted | every
    brief = study["encoders"][name]["brief"]
    if way in brief:
        texts_by_group = {group: texts_by_group[group] for group in (DEV, "stsb_test", *brief[way])}
    for group, texts in texts_by_group.items():
        began = time.perf_counter()
        cached(
            cache / f"{name}-{way}-{group}.npz",
            texts,
            lambda unique: encode(model, unique, layers, way),
        )
        print(f"{name} {way} {group}: {len(texts):,} texts, {time.perf_counter() - began:.0f} s", flush=True)


def steps_of(fitted: Array) -> dict[str, tuple[Array, Array]]:
    """Return the mean, (D,), and the kernel, (D, k), of each linear step fitted on (N, D) embeddings."""
    size = fitted.shape[1]
    statistics = CorpusStatistics(size).update(torch.from_numpy(fitted))
    modules = {f"white-{k}": WhiteningPostProcessor(size, k) for k in WHITENED if k <= size}
    modules |= {"soft": WhiteningPostProcessor(size, epsilon=SOFT), "top": AllButTheTopPostProcessor(size)}
    mean = statistics.mean.numpy()
    return {name: (mean, module.kernel_of(statistics).numpy()) for name, module in modules.items()}


def score_step(pairs: Array, gold: Array, step: tuple[Array, Array] | None) -> float:
    """Return Spearman times 100 of (2 N, D) embeddings, first sentences first, after a step."""
    found = pairs if step is None else (pairs - step[0]) @ step[1]
    first, second = np.split(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12), 2)
    return correlation(gold, (first * second).sum(axis=1))


def score_way(name: str, way: str, study: dict[str, Any], cache: Path, data: Path) -> dict[str, Any]:
    """Score every row of the grid on the sets that are in the cache, and return the record."""
    sets, fitted = groups(study, data)
    texts = {group: texts_of(pairs) for group, pairs in sets.items()} | fitted
    files = {group: cache / f"{name}-{way}-{group}.npz" for group in texts}
    there = {group: cached(files[group], texts[group], None) for group in texts if files[group].exists()}
    scored = [group for group in sets if group in there]
    gold = {group: np.asarray(sets[group].scores) for group in scored}
    rows: dict[str, dict[str, float]] = {}
    whole: dict[str, Any] = {"plain -": None}
    if way.startswith("filtered"):
        with np.load(cache / f"{name}-filters.npz") as kept:
            whole = {f"{step} -": (np.float32(0), kernel) for step, kernel in kept.items()}
    for k, layer in enumerate(study["encoders"][name]["layers"]):
        for p, pooling in enumerate(POOLINGS):
            steps = dict(whole)
            for text in fitted.keys() & there.keys():
                steps |= {f"{step} {text}": kernel for step, kernel in steps_of(there[text][k, p]).items()}
            for step, kernel in steps.items():
                found = {group: score_step(there[group][k, p], gold[group], kernel) for group in scored}
                rows[f"{layer} {pooling} {step}"] = {group: round(value, 2) for group, value in found.items()}
    return {
        "study": study["name"], "encoder": name, "way": way, "weights": "de-quantized from 4 bit",
        "dtype": study["dtype"],
        "pairs": {group: len(sets[group]) for group in scored},
        "fitted": {text: len(lines) for text, lines in fitted.items() if text in there},
        "rows": rows,
    }  # fmt: skip


def baselines(study: dict[str, Any], data: Path) -> dict[str, Any]:
    """Score TF-IDF of characters, SIF of MiniLM's input embeddings and MiniLM itself on the same pairs."""
    sets, _ = groups(study, data)
    known = list(sets.values())
    texts = {
        "wiki": read_sentences(data / BASELINE_TEXTS["wiki"], limit=FITTED),
        "sts": without_sentences(read_sentences(data / BASELINE_TEXTS["sts"]), known),
    }
    minilm = load_encoder(packaged_minilm(), device="cpu")
    ways: dict[str, Cosines] = {"all-MiniLM-L6-v2": cosines_of(lambda lines: minilm.encode(list(lines)))}
    embeddings = input_embeddings("minilm")
    for text, lines in texts.items():
        ways[f"TF-IDF of characters, {text}"] = tfidf_cosines(TFIDF["characters"], lines)
        if embeddings is not None:
            ways[f"SIF of MiniLM's input embeddings, {text}"] = sif_cosines(embeddings, lines, removed=False)
    rows = {}
    for way, cosines in ways.items():
        found = {
            pairs.name: correlation(np.asarray(pairs.scores), cosines(pairs.sentences1, pairs.sentences2))
            for pairs in known
        }
        rows[way] = {name: round(value, 2) for name, value in found.items()}
    pairs = {pairs.name: len(pairs) for pairs in known}
    return {"pairs": pairs, "rows": rows}


def adapted(name: str, study: dict[str, Any], models: Path, data: Path) -> dict[str, Any]:
    """Adapt a language model to each of the texts, and score what was saved; return the record."""
    sets, fitted = groups(study, data)
    rows = {}
    for text, lines in fitted.items():
        began, spent = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found = adapt(load_encoder(models / name, device="cpu"), lines, folder, minutes=60, show_progress_bar=False)
            seconds, of_processor = time.perf_counter() - began, time.process_time() - spent
            saved = SentenceTransformer(folder, device="cpu")
            cosines = cosines_of(lambda texts, saved=saved: saved.encode(list(texts)))
            scores = {
                group: correlation(np.asarray(pairs.scores), cosines(pairs.sentences1, pairs.sentences2))
                for group, pairs in sets.items()
            }
        rows[text] = {"chosen": found.chosen, "texts": found.texts.used, "seconds": round(seconds)}
        rows[text] |= {"processor_seconds": round(of_processor), "scores": {k: round(v, 2) for k, v in scores.items()}}
    weights = {"weights": "de-quantized from 4 bit", "pairs": {group: len(pairs) for group, pairs in sets.items()}}
    return {"encoder": name} | weights | {"rows": rows}


def run(study: dict[str, Any], options: Options) -> None:
    """Encode and score each encoder in each way that has no record, then ``adapt`` it; baselines come first.

    ``--methods`` names ways, or "adapt". An encoder that is not there is left out.
    """
    name, cache = study["name"], options.work / "decoders"
    run_once(name, "baselines", lambda: baselines(study, options.data), root=options.root)
    for encoder in chosen(options.encoders, list(study["encoders"]), "--encoders"):
        models = options.work / "encoders"
        if not (models / encoder).is_dir():
            print(
                f"{encoder}: left out, {models / encoder} is not there: see python -m benchmarks encoders.", flush=True
            )
            continue
        for way in chosen(options.methods, [*study["encoders"][encoder]["ways"], "adapt"], "--methods"):
            if way == "adapt":
                make = partial(adapted, encoder, study, models, options.data)
                run_once(name, f"adapt-{encoder}", make, root=options.root)
            elif not has_run(name, f"{encoder}-{way}", root=options.root):
                encode_all(encoder, way, study, models, cache, options.data)
                record = score_way(encoder, way, study, cache, options.data)
                append(name, f"{encoder}-{way}", record | provenance(), root=options.root)
