"""Constructors: each number that a public class takes, with values that are none; the targets come from signatures.

A parameter annotated as a number must refuse NaN and infinities, one annotated as a whole number fractions too, with a
message that names it. What else is tried may be refused or accepted, and a type that Python refuses is its own affair.
Only what a class cannot do without is written down here.
"""

import dataclasses
import functools
import inspect
import json
import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from st_extras import adaptation, encoders, evaluation, losses, modules, search, text
from st_extras.evaluation import geometry
from st_extras.text.frequency import FrequencyTable
from st_extras.text.term_weights import BM25
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.classify import ACCEPT, EITHER, REFUSE, Case, written

NO_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf"), 10**400]
NO_WHOLE_NUMBERS: list[Any] = [math.nan, math.inf, 0.5, 2.5, np.float32(0.5), np.float64("nan")]
UNUSUAL: list[Any] = [
    -1, 0, 1, 7, 0.05, -0.5, 1e-300, 1e300, 10**11, 10**30, -(10**30), True, np.bool_(True), np.int64(2), None, "",
    "0.5", "nan", "\ud800", b"x", [], (), {}, [0.5], 1j, int, np.array([1.0, 2.0]), torch.zeros(0), ...,
]  # fmt: skip
_A, _D, _ROWS = {"a": "cat"}, {"1": "a cat", "2": "a dog"}, np.random.default_rng(0).integers(-9, 9, (60, 6))
_TASK = evaluation.RetrievalTask(_A, _D, {"a": {"1": 1.0}})
_JUDGED = [
    {},
    {"a": {}},
    {"a": {"3": 1}},
    {"b": {"1": 1}},
    *({"a": {"1": x}} for x in (0, math.nan, math.inf, -1, "x")),
]
_TASKS = [evaluation.RetrievalTask(_A, _D, judged) for judged in _JUDGED]
_NO_TEXTS: list[Any] = ["what", 5, b"x", [1] * 30, ["\ud800"] * 30, [None] * 30, {"a": 1}, np.array(1)]
NO_OBJECTS: dict[str, list[Any]] = {
    "embeddings": [None, "x", 5, [], [[]], [1, 2], [["a"]], [[1], [1, 2]], _ROWS[:0], _ROWS[0], _ROWS[None],
                   _ROWS * math.nan, _ROWS * 1j, _ROWS + math.inf, _ROWS * 0, _ROWS.astype(str), torch.zeros(60, 0)],
    "task": [None, "x", {}, *_TASKS], "dev": ["x", 5, *_TASKS], "models": [[("BM25", None)]],
    "queries": [*_NO_TEXTS, [], ["a"] * 30, world.corpus()[:40], ["", " "] * 30],
    "documents": [*_NO_TEXTS[:4], [], None],
}  # fmt: skip
"""What arguments of these names must refuse."""
NO_OBJECTS["x"] = NO_OBJECTS["embeddings"]
SAME: list[Callable[[Any], Any]] = [
    np.array, np.ndarray.tolist, np.float64, np.float16, np.asfortranarray, torch.tensor,
    lambda rows: torch.tensor(rows).bfloat16(), lambda rows: torch.tensor(rows).float().requires_grad_(),
    lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
]  # fmt: skip
"""Rows of whole numbers in other forms, which change no result."""
Target = tuple[str, Callable[..., Any], dict[str, Any]]
"""Its name, what is called, and the arguments that it cannot do without."""


def _given() -> dict[str, Any]:
    """What parameters without a default are given, by their names."""
    return {
        "model": world.encoder(), "frequency_table": world.table(), "embedding_dimension": 16, "sentences": SENTENCES,
        "sentences1": SENTENCES, "sentences2": SENTENCES[::-1], "scores": [0.1 * i for i in range(8)],
        "labels": ["a", "b"] * 4, "idf": {"cat": 1.0}, "unseen_idf": 2.0, "lambda_1": 0.1, "lambda_2": 0.0,
        "tokenizer": world.encoder().tokenizer, "path": world.encoder_folder(), "sources": world.root() / "ok.jsonl",
        "task": _TASK, "documents": SENTENCES, "models": [("a", world.encoder())], "embeddings": _ROWS, "x": _ROWS,
    }  # fmt: skip


def _calls() -> list[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """Public classes and the functions that are tried too, with what differs from ``_given``."""
    own: dict[Any, dict[str, Any]] = {
        text.EDA: {"synonyms": {"cat": ["feline"]}}, text.ChunkPhrases: {"parse": str},
        evaluation.LabeledTextEvaluator: {"texts": SENTENCES},
        evaluation.LabelFreeComparison: {"texts": world.corpus()[:100], "start": torch.randn(100, 4)},
    }  # fmt: skip
    classes = [
        (name, call, own.get(call, {}))
        for package in (losses, modules, evaluation, text, encoders)
        for name, call in vars(package).items()
        if name in package.__all__ and inspect.isclass(call) and not dataclasses.is_dataclass(call)
    ]
    repal, whitening = modules.RepALPostProcessor, modules.WhiteningPostProcessor
    functions: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
        ("load_encoder", encoders.load_encoder, {}), ("read_sentences", text.read_sentences, {}),
        ("TfidfKeywords.fit", text.TfidfKeywords.fit, {}), ("FrequencyTable.labels", world.table().labels, {}),
        ("FrequencyTable", FrequencyTable, {"tokens": ("a", "b"), "counts": [1, 2]}),
        ("FrequencyTable.count", FrequencyTable.count, {"texts": world.root() / "ok.jsonl"}),
        ("RepALPostProcessor.attach", repal.attach, {"corpus": SENTENCES, "lambda_1": 0.1, "lambda_2": 0.1}),
        ("WhiteningPostProcessor.attach", whitening.attach, {"corpus": SENTENCES}), ("BM25", BM25, {}),
        ("compare_retrieval", evaluation.compare_retrieval, {}),
        ("RetrievalTask.sample", _TASK.sample, {"max_queries": 1}),
        ("load_retrieval", evaluation.load_retrieval, {"folder": world.search_folder(world.new_folder() / "search")}),
        ("refine_documents", search.refine_documents, {}), ("refine_queries", search.refine_queries, {}),
        ("unrelated_cosines", geometry.unrelated_cosines, {}),
        ("adapt", adaptation.adapt, {"texts": world.corpus()[:150], "output": world.new_folder(), "overwrite": True,
         "show_progress_bar": False}),
        ("adapt_search", adaptation.adapt_search, {"documents": world.corpus()[:150],
         "queries": [t[3:] for t in world.corpus()[:60]], "output": world.new_folder(), "overwrite": True,
         "show_progress_bar": False}),
    ]  # fmt: skip
    return [*classes, *functions]


def _is_annotated(parameter: inspect.Parameter, kind: str) -> bool:
    return re.search(rf"(^|\| ){kind}( \||$)", str(parameter.annotation)) is not None


@functools.cache
def targets() -> list[tuple[Target, dict[str, list[Any]]]]:
    """Each call that can be made, and its numbers with the values that each must refuse."""
    lines = "".join(json.dumps({"sentence": sentence}) + "\n" for sentence in SENTENCES)
    (world.root() / "ok.jsonl").write_text(lines, encoding="utf8")
    given, found = _given(), []
    for name, call, own in _calls():
        parameters = [p for p in inspect.signature(call).parameters.values() if p.kind not in (p.VAR_POSITIONAL, 4)]
        needed = {p.name for p in parameters if p.default is p.empty} - own.keys()
        numbers = {p.name: NO_NUMBERS for p in parameters if _is_annotated(p, "float")}
        numbers |= {p.name: NO_WHOLE_NUMBERS for p in parameters if _is_annotated(p, "int")}
        numbers |= {p.name: NO_OBJECTS[p.name] for p in parameters if p.name in NO_OBJECTS}
        if needed <= given.keys() and numbers:
            found.append(((name, call, {key: given[key] for key in needed} | own), numbers))
    return found


def case(target: Target, parameter: str, value: Any, *, refused: bool) -> Case:
    name, call, arguments = target
    return Case(
        f"{name}({parameter}={written(value)[0]})",
        lambda: call(**arguments | {parameter: value}),
        REFUSE if refused else EITHER,
        (parameter,) if refused else (),
        written(value) if refused and parameter not in NO_OBJECTS else (),
        python=not refused,
    )


def _same(target: Target, parameter: str, number: int) -> Case:
    """Rows in another form give the same result."""
    name, call, arguments = target

    def both() -> list[Any]:
        found = [call(**arguments | {parameter: rows}) for rows in (_ROWS, SAME[number](_ROWS))]
        return [list(one.values()) if isinstance(one, dict) else one for one in found]

    verify = lambda two: None if np.allclose(*two) else "other numbers"  # noqa: E731
    return Case(f"{name}, form {number}", both, ACCEPT, verify=verify)


def cases(generator: random.Random) -> list[Case]:
    """Every number of every target with each value that it must refuse, and some that are unusual."""
    made = []
    for target, numbers in targets():
        for parameter, wrong in numbers.items():
            if target[2].get(parameter) is _ROWS:
                made += [_same(target, parameter, number) for number in range(len(SAME))]
            made += [case(target, parameter, value, refused=True) for value in wrong]
            drawn = generator.sample(UNUSUAL, 6) if parameter not in NO_OBJECTS else []
            made += [case(target, parameter, value, refused=False) for value in drawn]
    return made
