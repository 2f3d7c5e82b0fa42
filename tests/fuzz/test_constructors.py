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

from st_extras import adaptation, encoders, evaluation, losses, modules, search, text
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


@fuzz(10, 800, data=st.data())
def test_an_unusual_value(data):
    call, arguments, wrong = targets()[data.draw(st.sampled_from(sorted(targets())), "call")]
    parameter = data.draw(st.sampled_from(sorted(wrong.keys() - _NO_OBJECTS.keys())), "parameter")
    value = data.draw(st.sampled_from(_UNUSUAL), "value")
    return outcome(lambda: call(**arguments | {parameter: value}), errors=_PYTHONS)
