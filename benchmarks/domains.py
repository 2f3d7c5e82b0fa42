"""What adapting an encoder to a domain does: baselines, transforms, trainings and ``adapt``, scored by labels.

For each encoder, domain, row and seed it fits on the train texts of ``domains/`` in the data folder, without their
labels, and scores the test texts: 1-NN accuracy, V-measure of k-means, MAP@R, and their mean. STS-B test beside it
shows what was forgotten, and the label-free score of ``adapt`` compares the embeddings of train texts that nothing was
fitted on. The labels only score: nothing here chooses by them.

``thin`` studies take fewer texts, in bfloat16, for slow encoders. "mpnet", "smollm2" and "gemma3" are folders that
``python -m benchmarks encoders runs/encoders`` makes; the latter two are encoded with PromptEOL, "smollm2-plain" and
"gemma3-plain" as they were saved.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from benchmarks.domain_rows import (
    BAGS,
    BASELINES,
    FOLLOWING,
    MODELS,
    SEEDLESS,
    STEPS,
    TRAINED,
    Affine,
    bfloat16,
    tfidf_embeddings,
)
from benchmarks.fitted_text import thinned
from benchmarks.names import PRETRAINED
from benchmarks.provenance import provenance
from benchmarks.records import append, has_run
from benchmarks.studies import Options, chosen
from st_extras.adaptation.extraction import is_language_model
from st_extras.encoders import load_encoder
from st_extras.encoders.prompt_template import PROMPT_EOL
from st_extras.evaluation import LabelFreeComparison, label_scores, load_labeled_texts, load_sts
from st_extras.modules.lambda_search import rank_correlation
from st_extras.samples import graded_pairs
from st_extras.samples.encoder import packaged_minilm

DOMAINS = ("banking77", "clinc150", "stackoverflow")
FITTED = 10_000  # train texts that a row is fitted on, at most
HELD_OUT = 1_000  # train texts that are held out for the label-free score
THIN = {
    "fitted": 1_500,
    "held_out": 100,
    "test": 800,
    "pairs": 150,
}  # of a thin study
MEASURES = ("knn_accuracy", "v_measure", "map_at_r", "mean")
START = "start"
ROWS = (*BASELINES, START, *BAGS, *STEPS, *MODELS, *TRAINED)
DAMAGED = {name: f"runs/damaged/{name}" for name in ("damaged76", "damaged71")}
"""Where the study ``strength`` saves minilm after a short fine-tuning that harmed it."""


def encoder(name: str) -> SentenceTransformer:
    """Load "minilm" or "mpnet" (tuned for similarity), "layers3" (minilm's first 3, raw), a language model, a path."""
    if name.startswith("layers"):
        return load_encoder(packaged_minilm(), layers=int(name[len("layers") :]), pooling="mean", max_seq_length=32)
    if name == "mpnet":
        return load_encoder("runs/encoders/mpnet", max_seq_length=64, dtype="bfloat16")
    if name in ("smollm2-plain", "gemma3-plain"):
        return load_encoder(f"runs/encoders/{name.removesuffix('-plain')}", max_seq_length=64)
    if name in ("smollm2", "gemma3"):
        return load_encoder(f"runs/encoders/{name}", pooling="lasttoken", prompt_template=PROMPT_EOL, max_seq_length=64)
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
        fitted: train texts to fit on, at most; None: FITTED.
        held_out: train texts that are held out for the label-free score; None: HELD_OUT.
    """

    name: str
    train: list[str]
    test: list[str]
    labels: list[str]
    pairs: list[str]
    grades: list[float]
    fitted: int | None = None
    held_out: int | None = None

    @property
    def kept(self) -> int:
        """How many train texts are kept for the judge."""
        return self.held_out or HELD_OUT

    @classmethod
    def load(cls, name: str, data: Path, *, thin: bool = False) -> Domain:
        """Read a domain from the data folder, or as many of its texts as THIN says."""
        train, test = (load_labeled_texts(data / "domains" / f"{name}_{part}.tsv.gz") for part in ("train", "test"))
        sts = load_sts("stsb_test", data)
        distinct = sorted(set(train.texts))
        pairs = [*sts.sentences1, *sts.sentences2]
        if not thin:
            return cls(name, distinct, list(test.texts), list(test.labels), pairs, list(sts.scores))
        sts = thinned(sts, {sts.name: THIN["pairs"]})
        kept = [i * len(test) // THIN["test"] for i in range(THIN["test"])]  # they stand by label
        texts, labels = ([column[i] for i in kept] for column in (test.texts, test.labels))
        pairs = [*sts.sentences1, *sts.sentences2]
        return cls(name, distinct, texts, labels, pairs, list(sts.scores), THIN["fitted"], THIN["held_out"])

    def order(self, seed: int) -> list[int]:
        """Return the numbers of the train texts of a seed: first those held out, then those to fit on."""
        return random.Random(seed).sample(range(len(self.train)), len(self.train))[
            : self.kept + (self.fitted or FITTED)
        ]


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
        """(N, D) of the train texts, by the start; of a thin domain, zeros for those that seed 0 does not take."""
        if self.domain.fitted is None:
            return encoded(self.model, self.domain.train)
        numbers = self.domain.order(0)
        found = encoded(self.model, [self.domain.train[i] for i in numbers])
        return found.new_zeros(len(self.domain.train), found.size(1)).index_copy(0, torch.tensor(numbers), found)

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
        numbers = self.domain.order(seed)[: self.domain.kept]
        if "train" in self.__dict__:
            return self.train[numbers]
        return encoded(self.model, [self.domain.train[i] for i in numbers])

    @cached_property
    def test(self) -> Tensor:
        """(M, D) of the test texts and the texts of the pairs, by the base model."""
        return encoded(self.model, [*self.domain.test, *self.domain.pairs])

    def figures(self, held_out: Tensor, test: Tensor, seed: int) -> dict[str, Any]:
        """Score embeddings of the test texts and the pairs, and compare those of the held-out texts without labels."""
        held_out_texts = [self.domain.train[i] for i in self.domain.order(seed)[: self.domain.kept]]
        comparison = LabelFreeComparison(held_out_texts, self.held_out(seed), seed=seed)
        scores = label_figures(test[: len(self.domain.test)], self.domain.labels)
        first, second = test[len(self.domain.test) :].chunk(2)
        cosines = torch.cosine_similarity(first, second)
        scores["stsb_test"] = 100 * rank_correlation(cosines, torch.tensor(self.domain.grades))
        compared = asdict(comparison.compare(held_out))
        compared["lexical"] = compared.pop("word_overlap")  # as in the records
        return {"scores": scores, "judge": compared}

    def of_step(self, row: str, seed: int) -> dict[str, Any]:
        """Run a row that is a linear transform of the base model's embeddings."""
        if self.domain.fitted is not None and seed != 0:
            raise ValueError(f"A linear transform on a thin domain must have seed 0, got {seed}.")
        numbers = self.domain.order(seed)
        held_out, fitted = numbers[: self.domain.kept], numbers[self.domain.kept :]
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


def run_row(cell: Cell, row: str, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run a row and yield its record; a training yields another, with a linear step behind it."""
    torch.manual_seed(seed)
    domain = cell.domain
    if row in BASELINES:
        embeddings = tfidf_embeddings(BASELINES[row], domain.train, domain.test)
        yield row, {"scores": label_figures(embeddings, domain.labels)}
        return
    numbers = domain.order(seed)
    fitted = [domain.train[i] for i in numbers[domain.kept :]]
    if row == START:
        yield row, cell.figures(cell.held_out(seed), cell.test, seed)
    elif row in BAGS:
        embed = BAGS[row](cell.model, fitted)
        yield row, {"scores": label_figures(embed(domain.test) + 1e-9, domain.labels)}
    elif row in STEPS:
        yield row, cell.of_step(row, seed)
    else:
        facts: dict[str, Any] = {"fitted": len(fitted)}
        began = time.perf_counter()
        known = row.startswith("adapt, ") and not is_language_model(cell.model)
        start = cell.known if known else copy.deepcopy(cell.model)
        model = {**MODELS, **TRAINED}[row](start.float() if row in TRAINED else start, fitted, seed, facts)
        facts["seconds"] = round(time.perf_counter() - began, 1)
        held_out = [domain.train[i] for i in numbers[: domain.kept]]
        with bfloat16(row in TRAINED):
            of_held_out, of_test = encoded(model, held_out), encoded(model, [*domain.test, *domain.pairs])
            of_fitted = encoded(model, fitted) if row in TRAINED else None
        yield row, cell.figures(of_held_out, of_test, seed) | facts
        if of_fitted is not None:
            step = STEPS[FOLLOWING](of_fitted, fitted, seed)
            yield (
                f"{row}, then {FOLLOWING}",
                cell.figures(apply(of_held_out, step), apply(of_test, step), seed) | facts,
            )


def run_name(name: str, domain: str, row: str, seed: int) -> str:
    """Return the run of a record."""
    parts = "-".join((name or "text", domain, row, f"seed{seed}"))
    return parts.replace(" ", "_").replace(",", "").replace("'", "")


def run(study: dict[str, Any], options: Options) -> None:
    """Run the rows of a study that have no record, for each domain and encoder; ``thin`` takes fewer texts."""
    name, rows = study["name"], chosen(options.methods, ROWS, "--methods")
    for domain in chosen(options.sets, DOMAINS, "--sets"):
        texts = Domain.load(domain, options.data, thin=study.get("thin", False))
        for encoder_name in options.encoders or study["encoders"]:
            cell = Cell(encoder_name, texts)
            for row in rows:
                of = "" if row in BASELINES else encoder_name
                seeds = options.seeds or study["seeds"]
                for seed in seeds[:1] if row in SEEDLESS or row in BASELINES else seeds:
                    if has_run(name, run_name(of, domain, row, seed), root=options.root):
                        continue
                    for full_row, found in run_row(cell, row, seed):
                        record = {"study": name, "encoder": of, "domain": domain, "row": full_row, "seed": seed}
                        run = run_name(of, domain, full_row, seed)
                        append(name, run, record | found | provenance(), root=options.root)
                        print(f"{run}: {found['scores']['mean']:.2f}", flush=True)
