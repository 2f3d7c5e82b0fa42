"""Constructors and functions: each number that a public call takes, with values that are none, found by its signature.

A parameter annotated as a number must refuse NaN and infinities, one annotated as a whole number fractions too, with a
message that names it; embeddings, tasks and texts must refuse what is none. What else is tried may be refused or
accepted, and a type that Python refuses is its own affair.
"""

import dataclasses
import functools
import inspect
import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from safetensors import SafetensorError

from st_extras import adaptation, encoders, evaluation, losses, modules, samples, search, text, training
from st_extras.evaluation import geometry
from st_extras.losses.pair_loss import PairLoss, PairOptions
from st_extras.text.frequency import FrequencyTable
from st_extras.text.term_weights import BM25
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.check import REFUSE, fuzz, outcome

_NO_NUMBERS = [math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf"), 10**400]
_NO_WHOLE_NUMBERS = [math.nan, math.inf, 0.5, 2.5, np.float32(0.5)]
_UNUSUAL = [None, True, -1, 0, 1e-300, 1e300, 10**11, -(10**30), np.int64(2), "", "\ud800", 1j, [0.5], {}, int]
_PYTHONS = (TypeError, AttributeError, ValueError, ArithmeticError, OSError, SafetensorError)
_ROWS = np.random.default_rng(0).integers(-9, 9, (60, 6))
_FLOATS = _ROWS.astype(np.float64)
_TASK = evaluation.RetrievalTask({"a": "cat"}, {"1": "a cat", "2": "a dog"}, {"a": {"1": 1.0}})
_NO_ROWS = [None, "x", [], [[]], [1, 2], [["a"]], [[1], [1, 2]], _ROWS[:0], _ROWS[0], _ROWS[None], _FLOATS * math.nan,
            _FLOATS * 1j, _ROWS * 0, _ROWS.astype(str), _ROWS.astype(np.int8), _ROWS > 0]  # fmt: skip
_NO_TEXTS = ["what", 5, b"x", [1] * 30, ["\ud800"] * 30, [None] * 30, {"a": 1}, np.array(1)]
_NO_OBJECTS: dict[str, list[Any]] = {
    "embeddings": _NO_ROWS, "x": _NO_ROWS, "task": [None, "x", {}], "dev": ["x", 5], "models": [[("BM25", None)]],
    "queries": _NO_TEXTS, "documents": [*_NO_TEXTS[:4], [], None],
    "max_general_loss": [math.nan, -math.inf, 10**400],  # infinity is any loss
}  # fmt: skip
"""What arguments of these names must refuse."""
Target = tuple[Callable[..., Any], dict[str, Any], dict[str, list[Any]]]
"""A call, the arguments that it cannot do without, and of some parameters the values that it must refuse."""


@functools.cache
def targets() -> dict[str, Target]:
    """The calls that can be made with what is given here, by the names of their parameters."""
    lines, folder = world.root() / "ok.jsonl", world.search_folder(world.new_folder() / "search")
    lines.write_text("".join(json.dumps({"sentence": one}) + "\n" for one in SENTENCES), encoding="utf8")
    given = {
        "model": world.encoder(), "frequency_table": world.table(), "embedding_dimension": 16, "sentences": SENTENCES,
        "labels": ["a", "b"] * 4, "idf": {"cat": 1.0}, "unseen_idf": 2.0, "lambda_1": 0.1, "lambda_2": 0.0,
        "tokenizer": world.encoder().tokenizer, "path": world.encoder_folder(), "sources": lines, "task": _TASK,
        "documents": world.corpus()[:150], "models": [("a", world.encoder())], "embeddings": _ROWS, "x": _ROWS,
        "corpus": SENTENCES, "output": world.new_folder(), "texts": world.corpus()[:100],
    }  # fmt: skip
    own: dict[Any, dict[str, Any]] = {
        text.EDA: {"synonyms": {"cat": ["feline"]}}, text.ChunkPhrases: {"parse": str},
        evaluation.LabeledTextEvaluator: {"texts": SENTENCES},
        evaluation.LabelFreeComparison: {"base": torch.randn(100, 4)}, evaluation.load_retrieval: {"folder": folder},
        FrequencyTable: {"tokens": ("a", "b"), "counts": [1, 2]}, FrequencyTable.count: {"texts": lines},
        modules.RepALPostProcessor.attach: {"lambda_1": 0.1, "lambda_2": 0.1, "corpus": SENTENCES},
        adaptation.adapt: {"options": adaptation.AdaptationOptions(overwrite=True, show_progress_bar=False)},
        adaptation.adapt_search: {
            "queries": [t[3:] for t in world.corpus()[:60]],
            "options": adaptation.AdaptationOptions(overwrite=True, show_progress_bar=False),
        },
    }  # fmt: skip
    calls = [
        call
        for package in (losses, modules, evaluation, text, encoders, search)
        for name, call in vars(package).items()
        if name in package.__all__
        and inspect.isclass(call)
        and not dataclasses.is_dataclass(call)
        and "__init__" in vars(call)
    ]
    calls += [
        encoders.load_encoder, text.read_sentences, text.TfidfKeywords.fit, world.table().labels, FrequencyTable, BM25,
        FrequencyTable.count, modules.RepALPostProcessor.attach, modules.whitening, modules.all_but_the_top,
        modules.locality_preserving,
        evaluation.compare_retrieval, evaluation.load_retrieval,
        geometry.unrelated_cosines, adaptation.adapt, adaptation.adapt_search,
    ]  # fmt: skip
    found = {}
    for call in calls:
        parameters = [p for p in inspect.signature(call).parameters.values() if p.kind not in (p.VAR_POSITIONAL, 4)]
        if inspect.isclass(call) and issubclass(call, PairLoss):
            parameters += [inspect.signature(PairLoss).parameters[name] for name in PairOptions.__annotations__]
        needed = {p.name for p in parameters if p.default is p.empty} - own.get(call, {}).keys()
        wrong = {p.name: _NO_NUMBERS for p in parameters if _is_annotated(p, "float")}
        wrong |= {p.name: _NO_WHOLE_NUMBERS for p in parameters if _is_annotated(p, "int")}
        wrong |= {p.name: _NO_OBJECTS[p.name] for p in parameters if p.name in _NO_OBJECTS}
        if needed <= given.keys() and wrong:
            found[call.__qualname__] = (call, {key: given[key] for key in needed} | own.get(call, {}), wrong)
    return found


def _is_annotated(parameter: inspect.Parameter, kind: str) -> bool:
    return re.search(rf"(^|\| ){kind}( \||$)", str(parameter.annotation)) is not None


def test_every_call_refuses_what_is_none_by_the_name_of_its_parameter():
    cases = [
        (name, partial(call, **arguments | {parameter: value}), parameter, value)
        for name, (call, arguments, refused) in targets().items()
        for parameter, values in refused.items()
        for value in values
        if not (value is None and parameter == "embeddings")  # the default of a search
        and not (parameter == "max_general_loss" and value == math.inf)  # any loss
        and not (name == "adapt_search" and isinstance(value, list) and not value)  # leaves the encoder unchanged
    ]
    accepted = []
    for name, call, parameter, value in cases:
        with suppress(AssertionError):
            outcome(call, parameter, expected=REFUSE)
            continue
        accepted.append(f"{name}, {parameter}={value!r:.40}")
    assert accepted == []


_NOT_CALLED = {"Hit", "PhraseExtractor", "DivergenceError", "STSDataset", "LossStateCallback", "QdrantSearch"}
"""Beside the results: types, what only stores, and what needs a client."""
_NAMED = re.compile(r"^([a-z]\w*)(?:\[[^\]]*\]|, [a-z]\w* \d+:)? (?:must|needs|does not go|cannot)")
"""The argument that a message is about."""


def public_calls() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Every public function and class that users call, with arguments that it takes."""
    encoder, folder = world.encoder(), world.new_folder()
    judged, pairs = folder / "judged.tsv", folder / "pairs.tsv"
    judged.write_text(f"query\tid\n{SENTENCES[0][2:]}\t0\n", encoding="utf8")
    pairs.write_text("score\tsentence1\tsentence2\n1\ta cat\ta dog\n2\ta cat\ta mat\n", encoding="utf8")
    collection, dataset = world.search_folder(folder / "search"), evaluation.load_sts("pairs", pairs)
    task, labeled = evaluation.load_retrieval(collection), evaluation.LabeledTexts(SENTENCES, ["a", "b"] * 4)
    quiet = {"show_progress_bar": False}
    embedded = torch.randn(8, 4).numpy()
    own: dict[str, dict[str, Any]] = {
        "search_lambdas": {
            "first": (embedded, embedded[::-1]), "second": (embedded, embedded), "corpus_mean": embedded.mean(0),
            "scores": [*range(8)],
        },
        "locality_preserving": {"model": encoder, "sentences": world.corpus()[:100]},
        "EmbeddingTable": {"keys": ["a", "b"], "embeddings": torch.eye(2)},
        "FrozenEncoder": {"complementary_model": world.encoder_folder(), "model": encoder}, "AdaptationOptions": {},
        "LabelFreeComparison": {"texts": world.corpus()[:100], "base": torch.randn(100, 4)},
        "RetrievalTask": dataclasses.asdict(task),
        "STSEvaluator": {"datasets": [dataset]} | quiet, "LabeledTextEvaluator": vars(labeled) | quiet,
        "RetrievalEvaluator": {"task": task} | quiet, "compare_retrieval": {"task": task, "models": [("a", encoder)]},
        "compare_texts": {"models": [("a", encoder)], "texts": world.corpus()[:60]} | quiet,
        "label_scores": {"embeddings": torch.randn(8, 4), "labels": ["a", "b"] * 4},
        "sts_evaluator": {"names": "pairs", "source": pairs},
        "load_judged": {"sources": collection / "corpus.tsv", "judged": judged},
        "load_labeled_texts": {"path": pairs, "text_column": "sentence1", "label_column": "score"},
        "load_retrieval": {"folder": collection}, "load_sts": {"name": "pairs", "source": pairs},
        "without_labeled": {"texts": SENTENCES, "labeled": SENTENCES[:2]}, "development_and_test": {},
        "epochs_to_steps": {"epochs": 1, "num_sentences": 8, "batch_size": 2}, "embed_filter": {"model": encoder},
        "load": {"path": world.encoder_folder()}, "load_encoder": {"path": world.encoder_folder()},
        "PartialMaskTransformer": {"model_name_or_path": str(world.encoder_folder())},
        "graded_spearman": {"model": encoder}, "write_samples": {"folder": world.new_folder()},
        "bm25_weight": {"dense_scores": _FLOATS, "bm25_scores": abs(_FLOATS)}, "EDA": {"synonyms": {"cat": ["feline"]}},
        "ChunkPhrases": {"parse": str}, "TfidfKeywords": {"idf": {"cat": 1.0}, "unseen_idf": 2.0},
        "read_sentences": {"sources": pairs, "column": "sentence1"},
        "stream_sentences": {"sources": pairs, "column": "sentence1"},
        "train_encoder": {
            "model": encoder, "loss": losses.SimCSELoss, "data": SENTENCES, "output": world.new_folder(),
            "max_steps": 1, "overwrite": True, **quiet,
        },
        "adapt": {"model": encoder, "texts": world.corpus()[:100], "output": world.new_folder()},
        "adapt_search": {"model": encoder, "documents": world.corpus()[:60], "output": world.new_folder()},
    }  # fmt: skip
    shared = {
        "model": encoder, "frequency_table": world.table(), "embedding_dimension": 16, "sentences": SENTENCES,
        "documents": world.corpus()[:60],
    }  # fmt: skip
    found = {}
    for package in (adaptation, encoders, evaluation, losses, modules, samples, search, text, training):
        for name in package.__all__:
            call = getattr(package, name)
            if not callable(call) or name in _NOT_CALLED or (dataclasses.is_dataclass(call) and name not in own):
                continue
            parameters = inspect.signature(call).parameters.values()
            needed = {p.name for p in parameters if p.default is p.empty} & shared.keys()
            found[name] = call, own.get(name, {key: shared[key] for key in needed})
    return found


def _parameters(call: Callable[..., Any]) -> set[str]:
    """The names that a call takes; of a loss also those that it hands on to PairLoss."""
    is_pair_loss = inspect.isclass(call) and issubclass(call, PairLoss)
    return {*inspect.signature(call).parameters, *(PairOptions.__annotations__ if is_pair_loss else ())}


def _refusal(call: Callable[..., Any], arguments: dict[str, Any]) -> Exception | None:
    try:
        call(**arguments)
    except Exception as error:
        return error
    return None


def test_a_message_names_an_argument_of_the_call():
    """One wrong value for each argument of each public call, as the commands have in tests/cli/test_mistakes.py."""
    foreign = []
    for name, (call, arguments) in public_calls().items():
        assert _refusal(call, arguments) is None, name
        for parameter in sorted(_parameters(call) - {"options", "kwargs", "encode_options", "arguments", "args"}):
            for value in (object(), -1.5):
                error = _refusal(call, arguments | {parameter: value})
                about = _NAMED.match(str(error)) if type(error) is ValueError else None
                if about is not None and about[1] not in _parameters(call):
                    foreign.append(f"{name}, {parameter}={value!r:.20}: {str(error)[:200]}")
    assert foreign == []


@fuzz(10, 800, data=st.data())
def test_an_unusual_value(data):
    parameters = {name: sorted(wrong.keys() - _NO_OBJECTS.keys()) for name, (_, _, wrong) in targets().items()}
    name = data.draw(st.sampled_from(sorted(name for name, left in parameters.items() if left)), "call")
    call, arguments, _ = targets()[name]
    parameter = data.draw(st.sampled_from(parameters[name]), "parameter")
    value = data.draw(st.sampled_from(_UNUSUAL), "value")
    return outcome(lambda: call(**arguments | {parameter: value}), errors=_PYTHONS)
