"""Encoders, modules, training and evaluators: their parameters and what each allows."""

from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer

from st_extras import encoders, evaluation, losses, modules, training
from st_extras.evaluation.retrieval import RetrievalTask
from st_extras.evaluation.sts_data import STSDataset
from tests.conftest import SENTENCES
from tests.fuzz import values as v
from tests.fuzz import world
from tests.fuzz.values import Target

_MODEL = v.instance(SentenceTransformer)
EVALUATOR: dict[str, v.Domain] = {
    "name": v.text,
    "batch_size": v.count(1),
    "show_progress_bar": v.boolean,
    "write_csv": v.boolean,
}


def _is_template(value: object) -> bool | None:
    return None if isinstance(value, str) and value.count("{}") == 1 and value != "{}" else False


def _is_lora(value: object) -> bool | None:
    return None if isinstance(value, dict) and not value else v.count(1, 4096)(value)


def encoder_targets() -> list[Target]:
    model = {"model": world.encoder()}
    corpus = v.optional(v.sentences(1))
    lambdas = {"lambda_1": 0.1, "lambda_2": 0.0}
    repal: dict[str, v.Domain] = {"lambda_1": v.NOT_NEGATIVE, "lambda_2": v.NOT_NEGATIVE}
    pooling = ("cls", "mean", "max", "lasttoken", "first-last", "last-two")
    return [
        Target(
            encoders.load_encoder,
            {
                "path": lambda value: False,
                "pooling": v.optional(v.choice(*pooling)),
                "layers": v.optional(v.either(v.count(1, 9))),
                "max_seq_length": v.optional(v.either(v.count(1, 10**9))),
                "dropout": v.optional(v.real(0, 1, closed=(True, False), usual=(0, 0.99))),
                "prompt_template": v.optional(_is_template),
                "dtype": v.optional(v.choice("float32", "bfloat16", "float16")),
            },
            {"path": world.encoder_folder()},
        ),
        Target(
            encoders.MomentumEncoder,
            {"model": _MODEL, "momentum": v.either(v.SHARE), "dropout": v.boolean},
            model,
        ),
        Target(
            encoders.EmbeddingTable,
            {"keys": lambda value: False, "embeddings": v.instance(torch.Tensor)},
            {"keys": [[1, 2], [3]], "embeddings": torch.eye(2)},
        ),
        Target(encoders.FrozenEncoder, {"model": lambda value: False}, {"trained_model": world.encoder()}),
        Target(encoders.use_length_buckets, {"model": _MODEL, "buckets": v.count(1)}, {}, name="use_length_buckets"),
        Target(
            modules.RepALPostProcessor.attach,
            repal
            | {
                "model": _MODEL,
                "keywords": lambda x: None if callable(x) else v.choice("jieba", "rake")(x),
                "batch_size": v.count(1),
                "redundancy": v.choice("encoder", "pooled"),
                "corpus": corpus,
                "on_missing_mask": v.choice("error", "delete"),
            },
            model | lambdas | {"corpus": SENTENCES[:2]},
            name="RepAL.attach",
        ),
        Target(
            modules.RepALPostProcessor,
            repal | {"embedding_dimension": v.count(1, 10**9), "corpus_size": v.count(0)},
            {"embedding_dimension": 4},
        ),
        Target(
            modules.WhiteningPostProcessor,
            {
                "embedding_dimension": v.count(1, 10**6),
                "dimensions": v.optional(v.either(v.count(1, 8))),
                "epsilon": v.either(v.NOT_NEGATIVE),
                "corpus_size": v.count(0),
            },
            {"embedding_dimension": 8},
        ),
        Target(
            modules.WhiteningPostProcessor.attach,
            {
                "model": _MODEL,
                "dimensions": v.optional(v.either(v.count(1, 16))),
                "epsilon": v.either(v.NOT_NEGATIVE),
                "batch_size": v.count(1),
                "corpus": v.optional(v.sentences(2)),
            },
            model | {"corpus": SENTENCES[:4]},
            name="Whitening.attach",
        ),
        Target(
            training.train_encoder,
            {
                "model": _MODEL,
                "loss": v.instance(torch.nn.Module, type, type(len)),
                "data": lambda x: None if isinstance(x, str) else v.sentences(1)(x),
                "batch_size": v.count(1),
                "learning_rate": v.POSITIVE,
                "loss_learning_rate": v.optional(v.POSITIVE),
                "eval_steps": v.count(1),
                "max_steps": lambda x: True if v.number(x) and x == -1 else v.count(1)(x),
                "epochs": v.POSITIVE,
                "patience": v.optional(v.count(1)),
                "seed": v.seed,
                "lora": v.optional(v.either(_is_lora)),
                "bf16": v.boolean,
                "no_duplicates": v.boolean,
                "resume": v.boolean,
                "overwrite": v.boolean,
                "show_progress_bar": v.boolean,
                "evaluator": v.optional(v.instance()),
            },
            model | {"loss": losses.SimCSELoss, "data": SENTENCES, "output": None},
            runs=False,
        ),
    ]


def evaluator_targets() -> list[Target]:
    pairs = STSDataset("set", ["a", "b"], ["c", "d"], [0.0, 5.0], ["s", "s"])
    task = RetrievalTask({"q": "a"}, {"d": "b"}, {"q": {"d"}})
    return [
        Target(
            evaluation.STSEvaluator,
            EVALUATOR | {"datasets": lambda value: False, "setting": v.choice("all", "wmean")},
            {"datasets": [pairs]},
        ),
        Target(
            evaluation.GeometryEvaluator,
            EVALUATOR
            | {
                "sentences": v.sentences(2),
                "primary": v.either(v.choice("uniformity")),
                "positives": v.optional(lambda value: False),
            },
            {"sentences": SENTENCES},
        ),
        Target(
            evaluation.UnlabeledSelectionEvaluator,
            EVALUATOR
            | {
                "sentences": v.sentences(3),
                "signal": v.either(v.choice("contrast_shortening")),
                "size": v.either(v.count(2)),
                "seed": v.seed,
            },
            {"sentences": [f"{sentence} {word}" for sentence in SENTENCES for word in ("now", "then")]},
        ),
        Target(
            evaluation.QuestionRetrievalEvaluator,
            {"task": v.instance(RetrievalTask), "map_at_k": v.count(1), "exclude_identical": v.boolean, "name": v.text},
            {"task": task},
        ),
        Target(
            task.sample, {"max_queries": v.count(1), "seed": v.seed}, {"max_queries": 1}, name="RetrievalTask.sample"
        ),
        Target(
            evaluation.question_retrieval,
            {"pairs": lambda value: False, "exclude_identical": v.boolean},
            {"pairs": [("a", "b", True)]},
        ),
        Target(
            evaluation.reranking_evaluator,
            {"samples": lambda value: False, "name": v.text},
            {"samples": [{"query": "a", "positive": ["b"], "negative": ["c"]}]},
        ),
        Target(
            evaluation.load_sts,
            {"name": lambda value: False, "source": lambda value: False},
            {"name": "sts12", "source": world.root()},
        ),
    ]
