"""What adapting an encoder to a domain does: baselines, transforms, trainings and ``adapt``, scored by labels.

For each encoder, domain, row and seed it fits on the train texts of ``domains/`` in the data folder, without their
labels, and scores the test texts: 1-NN accuracy, V-measure of k-means, MAP@R, and their mean. STS-B test beside it
shows what was forgotten, and the label-free score of ``adapt`` compares the embeddings of train texts that nothing was
fitted on. The labels only score: nothing here chooses by them.

"mpnet" and "smollm2-plain", a language model, are folders that ``python -m benchmarks encoders runs/encoders`` makes.
"""

from __future__ import annotations

import copy
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sklearn.feature_extraction.text import TfidfVectorizer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from benchmarks.records import append, has_run, provenance
from benchmarks.studies import PRETRAINED, Options, chosen
from benchmarks.word_baselines import TFIDF
from st_extras.adaptation import AdaptationOptions, adapt
from st_extras.correlation import spearman_of_pairs
from st_extras.encoders import load_encoder
from st_extras.evaluation import LabelFreeComparison, label_scores, load_labeled_texts, load_sts
from st_extras.losses import DCLRLoss, SimCSELoss
from st_extras.modules import CorpusStatistics, RepALPostProcessor
from st_extras.modules.linear import Affine, all_but_the_top_transform, whitening_transform
from st_extras.modules.neighbor_directions import neighbor_directions
from st_extras.samples import graded_pairs
from st_extras.samples.encoder import packaged_minilm
from st_extras.text.term_weights import character_tfidf
from st_extras.training import train_encoder

DOMAINS = ("banking77", "clinc150", "stackoverflow")
FITTED = 10_000  # train texts that a row is fitted on, at most
HELD_OUT = 1_000  # train texts that are held out for the label-free score
MEASURES = ("knn_accuracy", "v_measure", "map_at_r", "mean")
START = "start"
DAMAGED = {"damaged76": "runs/damaged/damaged76"}
"""Where ``benchmarks/strength.py`` saves minilm after a short fine-tuning that harmed it."""

Texts = Sequence[str]
Facts = dict[str, Any]


# --- linear transforms, from the embeddings of texts ---


def of_statistics(
    transform: Callable[..., Affine], embeddings: Tensor, texts: Texts, seed: int, **given: Any
) -> Affine:
    """A step that needs mean and scatter alone."""
    return transform(CorpusStatistics(embeddings.size(1)).update(embeddings), **given)


def locality(embeddings: Tensor, texts: Texts, seed: int) -> Affine:
    """``locality_preserving`` at its defaults."""
    found = neighbor_directions(embeddings, tfidf=character_tfidf(texts), seed=seed)
    return Affine.centred(found.mean, found.kernel(recolor=0.5))


STEPS: dict[str, Callable[[Tensor, Texts, int], Affine]] = {
    "centred": partial(of_statistics, all_but_the_top_transform, components=0),
    "all-but-the-top 1": partial(of_statistics, all_but_the_top_transform, components=1),
    "all-but-the-top 3": partial(of_statistics, all_but_the_top_transform, components=3),
    "all-but-the-top 10": partial(of_statistics, all_but_the_top_transform, components=10),
    "whitened": partial(of_statistics, whitening_transform),
    "whitened to 256": partial(of_statistics, whitening_transform, dimensions=256),
    "whitened to 128": partial(of_statistics, whitening_transform, dimensions=128),
    "whitened softly 0.1": partial(of_statistics, whitening_transform, epsilon=0.1),
    "whitened softly 1": partial(of_statistics, whitening_transform, epsilon=1.0),
    "locality": locality,
}
# --- baselines without an encoder ---

BASELINES = {"TF-IDF of words": TFIDF["words"], "TF-IDF of characters 3-5": TFIDF["characters"]}


def tfidf_embeddings(options: dict[str, Any], train: Texts, test: Texts) -> Tensor:
    """Return TF-IDF fitted on the train texts, (N, N): rotated from the many columns of the vocabulary."""
    rows = TfidfVectorizer(**options, dtype=np.float32).fit(train).transform(test)
    gram = torch.from_numpy((rows @ rows.T).toarray()).double()  # same cosines as the rows'
    values, vectors = torch.linalg.eigh(gram)
    return vectors * values.clamp_min(0).sqrt() + 1e-9


# --- models ---


def sentence_term(model: SentenceTransformer, texts: Texts, seed: int, facts: Facts) -> SentenceTransformer:
    """RepAL without its corpus term."""
    return RepALPostProcessor.attach(model, lambda_1=0.3, lambda_2=0, redundancy="pooled")


def adapted(
    options: dict[str, Any], model: SentenceTransformer, texts: Texts, seed: int, facts: Facts
) -> SentenceTransformer:
    """What ``adapt`` picks by its label-free score."""
    run = AdaptationOptions(seed=seed, minutes=60, show_progress_bar=False)
    with tempfile.TemporaryDirectory() as folder:
        found = adapt(model, list(texts), Path(folder) / "adapted", options=run, **options)
    facts |= {name: found.as_json()[name] for name in ("chosen", "candidates", "texts", "details")}
    return found.model


def trained(
    loss: Any, steps: int, rate: float, model: SentenceTransformer, texts: Texts, seed: int, facts: Facts
) -> SentenceTransformer:
    """The encoder after some steps of training at batch 64."""
    options = {"max_steps": steps, "learning_rate": rate, "seed": seed, "show_progress_bar": False}
    with tempfile.TemporaryDirectory() as folder:
        train_encoder(model, loss, list(texts), Path(folder) / "trained", **options)
    return model


ADAPTED = {"2 points": 2.0, "0.5 points": 0.5, "any loss": 200.0}
"""Points that ``adapt`` may lose on general English."""
MODELS: dict[str, Callable[[SentenceTransformer, Texts, int, Facts], SentenceTransformer]] = {
    **{f"adapt, {loss}": partial(adapted, {"max_general_loss": points}) for loss, points in ADAPTED.items()},
    "RepAL sentence term 0.3": sentence_term,
}
TRAINED: dict[str, Callable[[SentenceTransformer, Texts, int, Facts], SentenceTransformer]] = {
    "SimCSE 2e-5, 25 steps": partial(trained, SimCSELoss, 25, 2e-5),
    "DCLR start 0.14, 3e-05, 25 steps": partial(
        trained, partial(DCLRLoss, complementary_model="start", masked_share=0.14), 25, 3e-5
    ),
}
SEEDLESS = {"start", "RepAL sentence term 0.3"}
"""Rows that no seed changes: neither training nor which texts they are fitted on."""
ROWS = (*BASELINES, START, *STEPS, *MODELS, *TRAINED)


def encoder(name: str) -> SentenceTransformer:
    """Load "minilm" or "mpnet" (tuned for similarity), "layers3" (minilm's first 3, raw), a language model, a path.

    "layers3-cls" has [CLS] pooling.
    """
    if name.startswith("layers"):
        layers, _, pooling = name.removeprefix("layers").partition("-")
        return load_encoder(packaged_minilm(), layers=int(layers), pooling=pooling or "mean", max_seq_length=32)
    if name == "mpnet":
        return load_encoder("runs/encoders/mpnet", max_seq_length=64)
    if name == "smollm2-plain":
        return load_encoder("runs/encoders/smollm2", max_seq_length=64)
    if name in PRETRAINED:
        return load_encoder(PRETRAINED[name], pooling="mean", max_seq_length=32)
    return load_encoder(packaged_minilm() if name == "minilm" else DAMAGED.get(name, name), max_seq_length=64)


def encoded(model: SentenceTransformer, texts: Sequence[str]) -> Tensor:
    """Return (N, D) embeddings in float64."""
    found: Tensor = model.encode(list(texts), batch_size=64, convert_to_tensor=True, show_progress_bar=False)
    return found.cpu().double()


@dataclass(frozen=True)
class Domain:
    """The texts of a domain.

    Attributes:
        name: of the domain.
        train: different texts, sorted.
        test: texts that are scored.
        labels: of ``test``.
        pairs: of STS-B test: the first sentences, then the second.
        grades: of the pairs.
    """

    name: str
    train: list[str]
    test: list[str]
    labels: list[str]
    pairs: list[str]
    grades: list[float]

    @classmethod
    def load(cls, name: str, data: Path) -> Domain:
        """Read a domain from the data folder."""
        train, test = (load_labeled_texts(data / "domains" / f"{name}_{part}.tsv.gz") for part in ("train", "test"))
        sts = load_sts("stsb_test", data)
        pairs = [*sts.sentences1, *sts.sentences2]
        return cls(name, sorted(set(train.texts)), list(test.texts), list(test.labels), pairs, list(sts.scores))

    def order(self, seed: int) -> list[int]:
        """Return the numbers of the train texts of a seed: first those held out, then those to fit on."""
        return random.Random(seed).sample(range(len(self.train)), len(self.train))[: HELD_OUT + FITTED]


class Cell:
    """An encoder and a domain; the texts are encoded once.

    Args:
        name: of the encoder.
        domain: the texts.
    """

    def __init__(self, name: str, domain: Domain) -> None:
        self.name, self.domain = name, domain

    @cached_property
    def model(self) -> SentenceTransformer:
        """The base model."""
        return encoder(self.name)

    @cached_property
    def train(self) -> Tensor:
        """(N, D) of the train texts, by the base model."""
        return encoded(self.model, self.domain.train)

    @cached_property
    def known(self) -> SentenceTransformer:
        """The base model as a table of all texts that ``adapt`` and its scores need, so that each is encoded once."""
        general = [*graded_pairs()[0], *graded_pairs()[1]]
        texts = [*self.domain.train, *self.domain.test, *self.domain.pairs, *general]
        rows = torch.cat([self.train, self.test, encoded(self.model, general)])
        table = {"": torch.zeros(rows.size(1))} | {text.strip(): row for text, row in zip(texts, rows, strict=True)}
        tokenizer = Tokenizer(WordLevel({text: number for number, text in enumerate(table)}, unk_token=""))
        weights = torch.stack([*table.values()]).float()
        return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu")

    def held_out(self, seed: int) -> Tensor:
        """(J, D) of the held-out texts, by the base model; no others are encoded for them."""
        numbers = self.domain.order(seed)[:HELD_OUT]
        if "train" in self.__dict__:
            return self.train[numbers]
        return encoded(self.model, [self.domain.train[i] for i in numbers])

    @cached_property
    def test(self) -> Tensor:
        """(M, D) of the test texts and the texts of the pairs, by the base model."""
        return encoded(self.model, [*self.domain.test, *self.domain.pairs])

    def figures(self, held_out: Tensor, test: Tensor, seed: int) -> dict[str, Any]:
        """Score embeddings of the test texts and the pairs, and compare those of the held-out texts without labels."""
        held_out_texts = [self.domain.train[i] for i in self.domain.order(seed)[:HELD_OUT]]
        comparison = LabelFreeComparison(held_out_texts, self.held_out(seed), seed=seed)
        scores = label_figures(test[: len(self.domain.test)], self.domain.labels)
        scores["stsb_test"] = spearman_of_pairs(test[len(self.domain.test) :], self.domain.grades)
        compared = asdict(comparison.compare(held_out))
        compared["lexical"] = compared.pop("word_overlap")  # as in the records
        return {"scores": scores, "judge": compared}

    def of_step(self, row: str, seed: int) -> dict[str, Any]:
        """Run a row that is a linear transform of the base model's embeddings."""
        numbers = self.domain.order(seed)
        held_out, fitted = numbers[:HELD_OUT], numbers[HELD_OUT:]
        train = self.train  # encoded by the first row, whose seconds must not hold that
        began = time.perf_counter()
        step = STEPS[row](train[fitted], [self.domain.train[i] for i in fitted], seed)
        seconds = {"seconds": round(time.perf_counter() - began, 1), "fitted": len(fitted)}
        return self.figures(apply(train[held_out], step), apply(self.test, step), seed) | seconds


def apply(embeddings: Tensor, step: Affine) -> Tensor:
    """Return v X + b."""
    return embeddings @ step[0] + step[1]


def label_figures(embeddings: Tensor, labels: Sequence[str]) -> dict[str, float]:
    """Return each measure times 100."""
    found = label_scores(embeddings.float(), labels)
    return {name: 100 * found[name] for name in MEASURES}


def run_row(cell: Cell, row: str, seed: int) -> dict[str, Any]:
    """Run a row, and return what its record holds."""
    torch.manual_seed(seed)
    domain = cell.domain
    if row in BASELINES:
        return {"scores": label_figures(tfidf_embeddings(BASELINES[row], domain.train, domain.test), domain.labels)}
    numbers = domain.order(seed)
    fitted = [domain.train[i] for i in numbers[HELD_OUT:]]
    if row == START:
        return cell.figures(cell.held_out(seed), cell.test, seed)
    if row in STEPS:
        return cell.of_step(row, seed)
    facts: dict[str, Any] = {"fitted": len(fitted)}
    began = time.perf_counter()
    start = cell.known if row.startswith("adapt, ") else copy.deepcopy(cell.model)
    model = {**MODELS, **TRAINED}[row](start.float() if row in TRAINED else start, fitted, seed, facts)
    facts["seconds"] = round(time.perf_counter() - began, 1)
    held_out = [domain.train[i] for i in numbers[:HELD_OUT]]
    of_test = encoded(model, [*domain.test, *domain.pairs])
    return cell.figures(encoded(model, held_out), of_test, seed) | facts


def run_name(name: str, domain: str, row: str, seed: int) -> str:
    """Return the run of a record."""
    parts = "-".join((name or "text", domain, row, f"seed{seed}"))
    return parts.replace(" ", "_").replace(",", "").replace("'", "")


def run(study: dict[str, Any], options: Options) -> None:
    """Run the rows of a study that have no record, for each domain and encoder."""
    name, rows = study["name"], chosen(options.methods, ROWS, "--methods")
    for domain in chosen(options.sets, DOMAINS, "--sets"):
        texts = Domain.load(domain, options.data)
        for encoder_name in options.encoders or study["encoders"]:
            cell = Cell(encoder_name, texts)
            for row in rows:
                of = "" if row in BASELINES else encoder_name
                seeds = options.seeds or study["seeds"]
                for seed in seeds[:1] if row in SEEDLESS or row in BASELINES else seeds:
                    run = run_name(of, domain, row, seed)
                    if has_run(name, run, root=options.root):
                        continue
                    found = run_row(cell, row, seed)
                    record = {"study": name, "encoder": of, "domain": domain, "row": row, "seed": seed}
                    append(name, run, record | found | provenance(), root=options.root)
                    print(f"{run}: {found['scores']['mean']:.2f}", flush=True)
