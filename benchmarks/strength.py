"""How strong the transform of ``adapt`` should be, and from how many texts: good, raw and damaged encoders.

A record holds, for an encoder, a domain, a number of texts and a draw of them, the base model and each of
``CANDIDATES``: scores by the labels of test texts, Spearman correlation on the packaged pairs of general English (times
100), and the label-free score with its interval, by cross-fitting as in ``adapt``.
``benchmarks/tables/strength.py`` compares rules of choice on these records; the labels only score here.

The encoders are those of ``benchmarks/domains.py`` and one that a short fine-tuning damaged (:func:`damage`).
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from benchmarks.domains import DAMAGED, DOMAINS, START, Domain, encoded, encoder, label_figures
from benchmarks.records import run_once
from benchmarks.studies import TRANSFORMS, Options, chosen
from st_extras.adaptation.domain import FOLDS, MOST_COMPARED, compute_candidates
from st_extras.correlation import spearman_of_pairs
from st_extras.evaluation import LabelFreeComparison, load_labeled_texts
from st_extras.evaluation.geometry import mean_cosine
from st_extras.modules import pipeline
from st_extras.modules.linear import Affine
from st_extras.samples import graded_pairs, graded_spearman

SEED = 42  # of adapt, by default
PAIRS = 20  # of each label, to damage an encoder with


def damage(model: SentenceTransformer, texts: Sequence[str], labels: Sequence[str], border: float) -> int:
    """Fine-tune an encoder on few pairs of one domain until it forgets general English, and return the steps.

    The pairs are different texts of the same label, trained on by MultipleNegativesRankingLoss at 5e-4, 64 at a time.
    Nothing is chosen by these labels: they only do what hasty fine-tuning does.

    Args:
        model: the encoder.
        texts: of the domain, at least 40 of each label.
        labels: of ``texts``.
        border: training ends where the packaged graded pairs score less (Spearman correlation times 100).
    """
    torch.manual_seed(0)
    loss, optimizer = MultipleNegativesRankingLoss(model), torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step, batch in enumerate(pair_batches(texts, labels, random.Random(0)), 1):
        model.train()
        features = [model.preprocess([pair[side] for pair in batch]) for side in (0, 1)]
        optimizer.zero_grad()
        loss(features, None).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.eval()
        if step % 5 == 0 and graded_spearman(model) < border:
            break
    return step


def pair_batches(
    texts: Sequence[str], labels: Sequence[str], drawn: random.Random, size: int = 64
) -> Iterator[list[tuple[str, str]]]:
    """Yield batches of pairs of texts that share a label, the pairs shuffled for each pass, without an end."""
    by_label: dict[str, list[str]] = {}
    for text, label in zip(texts, labels, strict=True):
        by_label.setdefault(label, []).append(text)
    pairs = []
    for of_label in by_label.values():
        of_label = drawn.sample(of_label, 2 * PAIRS)
        pairs += zip(of_label[:PAIRS], of_label[PAIRS:], strict=True)
    drawn.shuffle(pairs)
    while True:
        drawn.shuffle(pairs)
        for at in range(0, len(pairs) - size + 1, size):
            yield pairs[at : at + size]


def make_damaged(name: str, data: Path) -> None:
    """Save the damaged encoder of this name, unless it is there."""
    if not Path(DAMAGED[name]).is_dir():
        model, train = encoder("minilm"), load_labeled_texts(data / "domains" / "clinc150_train.tsv.gz")
        print(f"{name}: {damage(model, train.texts, train.labels, float(name[-2:]))} steps.", flush=True)
        model.save(DAMAGED[name])


def sampled(domain: Domain, settings: Mapping[str, Any]) -> Domain:
    """Return a part of a domain: as many train and test texts as the settings say."""
    count = min(len(domain.test), settings["scored"])
    places = sorted(random.Random(0).sample(range(len(domain.test)), count))
    return dataclasses.replace(
        domain,
        train=random.Random(0).sample(domain.train, len(domain.train))[: settings["fitted"]],
        test=[domain.test[i] for i in places],
        labels=[domain.labels[i] for i in places],
    )


def embeddings(name: str, texts: Mapping[str, list[str]], options: Options) -> dict[str, Tensor]:
    """Return (N, D) embeddings of texts before a Normalize module, as ``adapt`` takes them; from the cache if possible.

    Args:
        name: of the encoder.
        texts: by their names in the cache.
        options: with the folders.

    Raises:
        ValueError: if the cache holds embeddings of more or fewer texts.
    """
    files = {place: options.work / "strength" / name / f"{place}.pt" for place in texts}
    if missing := [place for place, file in files.items() if not file.is_file()]:
        if name in DAMAGED:
            make_damaged(name, options.data)
        model = encoder(name)
        modules = pipeline.split_before_normalize(model)[0]
        part = pipeline.part_of_model(model, modules)
        for place in missing:
            files[place].parent.mkdir(parents=True, exist_ok=True)
            torch.save(encoded(part, texts[place]).float(), files[place])
    found = {place: torch.load(file, weights_only=True).double() for place, file in files.items()}
    for place, rows in found.items():
        if len(rows) != len(texts[place]):
            raise ValueError(f"{files[place]} must hold {len(texts[place])} embeddings, got {len(rows)}: remove it.")
    return found


def score(name: str, domain: Domain, count: int, seed: int, options: Options) -> dict[str, Any]:
    """Return the record of an encoder and a domain, with the candidates computed from ``count`` of its train texts.

    Args:
        name: of the encoder.
        domain: as :func:`sampled` returns it.
        count: how many train texts, at most.
        seed: of their draw.
        options: with the folders.
    """
    first, second, grades = graded_pairs()
    texts = {"general": [*first, *second], f"{domain.name}-train": domain.train, f"{domain.name}-test": domain.test}
    found = embeddings(name, texts, options)
    rows = random.Random(seed).sample(range(len(domain.train)), min(count, len(domain.train)))
    drawn, base = [domain.train[row] for row in rows], found[f"{domain.name}-train"][rows]
    candidates = compute_candidates(drawn, base, folds=FOLDS, seed=SEED)
    comparison = LabelFreeComparison(drawn[:MOST_COMPARED], base[:MOST_COMPARED], folds=FOLDS, seed=SEED)
    scores = {START: label_scores_of(found, domain, grades, None)}
    for one, candidate in candidates.items():
        compared = comparison.compare(candidate.cross_fitted(base[:MOST_COMPARED]))
        scores[TRANSFORMS[one]] = {
            **label_scores_of(found, domain, grades, candidate.transform),
            **{key: getattr(compared, key) for key in ("gain", "low", "high")},
        }
    means = {row: round(one["mean"], 1) for row, one in scores.items()}
    print(f"{name}, {domain.name}, {len(rows)}, {seed}: {means}", flush=True)
    return {
        "encoder": name,
        "domain": domain.name,
        "fitted": len(rows),
        "seed": seed,
        "mean_cosine": mean_cosine(base),
        "rows": scores,
    }


def label_scores_of(
    found: Mapping[str, Tensor], domain: Domain, grades: Sequence[float], transform: Affine | None
) -> dict[str, float]:
    """Return the scores times 100 of a transform (None: of the base model) by labels, and on general pairs."""
    after = torch.clone if transform is None else transform.apply
    scores = label_figures(after(found[f"{domain.name}-test"]), domain.labels)
    scores["general"] = spearman_of_pairs(after(found["general"]), grades)
    return scores


def run(study: dict[str, Any], options: Options) -> None:
    """Score every strength on each encoder and domain, from each number of texts and in each draw of them."""
    for name in chosen(options.encoders, list(study["encoders"]), "--encoders"):
        settings = study["texts"] | study["encoders"][name]
        for domain in chosen(options.sets, DOMAINS, "--sets"):
            texts = sampled(Domain.load(domain, options.data), settings)
            for seed in options.seeds or settings.get("seeds", (0,)):
                for count in (settings["fitted"], *settings.get("fewer", ())):
                    make = partial(score, name, texts, count, seed, options)
                    run_once(study["name"], f"{name}-{domain}-{count}-seed{seed}", make, root=options.root)
