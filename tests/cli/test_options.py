"""Every option of every command arrives where it takes effect: what the commands call is recorded, one row an option.

A row fails if the option is dropped or swapped with another: the value must arrive with it and not without it.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from st_extras import losses
from st_extras.cli import options
from st_extras.modules import (
    AllButTheTopPostProcessor,
    CorpusStatistics,
    LocalityPreservingPostProcessor,
    RepALPostProcessor,
    SIFPooling,
    WhiteningPostProcessor,
)
from st_extras.modules.linear import LinearPostProcessor
from st_extras.text.files import MAX_LINE
from st_extras.text.frequency import FrequencyTable
from tests.cli.commands import COMMANDS, parameters
from tests.cli.conftest import Run
from tests.cli.rows import LABELED, OTHER_TABLE, PAIRS, ROWS, STATISTICS, TABLE, Evaluator, Model, Row, corpus


class Calls:
    """Replaces what the commands call; remembers each call's arguments by name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def note(self, call: str, original: Callable[..., Any], result: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def noted(*given: Any, **named: Any) -> Any:
            bound = signature.bind(*given, **named)
            rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
            arguments = {name: value for name, value in bound.arguments.items() if name not in ("self", "cls", rest)}
            arguments |= bound.arguments.get(rest, {})
            self.seen.append((call, arguments))
            return result(**arguments)

        return functools.wraps(original)(noted) if inspect.isfunction(original) else noted

    def on(self, target: Any, name: str, result: Callable[..., Any], call: str | None = None) -> None:
        original = getattr(target, name)
        self.patch.setattr(target, name, self.note(call or name, original, result))

    def values(self, call: str, argument: str) -> list[Any]:
        """The argument's values in all calls of that name; "all" stands for all arguments."""
        calls = [arguments for name, arguments in self.seen if name == call]
        return [arguments if argument == "all" else arguments.get(argument) for arguments in calls]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls of a command in a world where nothing is loaded, trained or saved."""
    import datasets
    import transformers

    from st_extras import adaptation, encoders, evaluation, text, training
    from st_extras.cli import advice, evaluate, fitting, postprocess, statistics
    from st_extras.encoders import loading
    from st_extras.evaluation import mteb
    from st_extras.text import corpus as reading
    from st_extras.training import run_folder

    calls = Calls(monkeypatch)
    run = SimpleNamespace(best=None, best_step=1, steps=1, seconds=1.0, curve=[])
    calls.on(training, "check_output", lambda **_: None)
    calls.on(adaptation, "check_adaptation_output", lambda **_: None, "check_output")
    monkeypatch.setattr(advice, "warn_of_good_encoder", lambda model: None)
    calls.on(reading, "read_sentences", corpus)
    calls.on(reading, "stream_sentences", _streamed, "read_sentences")
    calls.on(encoders, "load_encoder", _model)
    calls.on(encoders, "use_length_buckets", lambda **_: None)
    calls.on(encoders.EmbeddingTable, "compute", _embedded)
    calls.on(datasets, "disable_progress_bars", lambda: calls.seen.append(("disable_progress_bars", {"called": True})))
    calls.on(training, "train_encoder", lambda model, loss, **_: (loss(model), run)[1])
    facts = {"read": 1, "texts": 1, "mean_words": 1.0}
    adapted = SimpleNamespace(rows=[], chosen=None, reason="Left.", facts=facts, seconds=1.0)
    calls.on(adaptation, "adapt", lambda **_: adapted)
    calls.on(training, "demonstrate", lambda **_: SimpleNamespace(before={}, after={}, run=run))
    calls.on(evaluation, "sts_evaluator", lambda names, source, **_: Evaluator(names, source))
    calls.on(mteb, "mteb_tasks", lambda names: names)
    calls.on(mteb, "mteb_scores", lambda model, tasks, **_: {})
    calls.on(evaluation, "load_labeled_texts", lambda **_: LABELED)
    calls.on(evaluation, "LabeledTextEvaluator", lambda **_: lambda model: {})
    calls.on(evaluation, "load_sts", lambda **_: PAIRS)
    calls.on(evaluation, "UnlabeledSelectionEvaluator", lambda sentences, **_: ("unlabeled", sentences))
    for name in ("SimCSELoss", "ConSERTLoss", "DCLRLoss", "AdCSELoss", "SLTFAILoss", "PaSeRLoss"):
        calls.on(getattr(losses, name), "__init__", lambda **_: None, name)
    calls.on(losses, "epochs_to_steps", lambda **_: 1)
    for name in ("RakePhrases", "ChunkPhrases", "EDA"):
        calls.on(text, name, lambda **_: None)
    dataset = calls.note("dataset", text.PhraseMasking.dataset, lambda **_: corpus())
    calls.on(text, "PhraseMasking", lambda **_: SimpleNamespace(dataset=functools.partial(dataset, None), skipped=0))
    calls.on(FrequencyTable, "from_file", lambda **_: TABLE)
    calls.on(FrequencyTable, "from_wordfreq", lambda **_: OTHER_TABLE)
    calls.on(FrequencyTable, "count", lambda **_: TABLE)
    calls.on(FrequencyTable, "save", lambda **_: None)
    calls.on(FrequencyTable, "labels", lambda **_: TABLE.counts)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", _tokenizer(calls))
    calls.on(run_folder, "save_model", lambda **_: None)
    calls.on(RepALPostProcessor, "attach", lambda **_: [RepALPostProcessor(2)], "RepAL.attach")
    calls.on(RepALPostProcessor, "fit", lambda **_: None, "RepAL.fit")
    calls.on(RepALPostProcessor, "tune", lambda **_: SimpleNamespace(**TUNED))
    calls.on(RepALPostProcessor, "detach", lambda model: model)
    monkeypatch.setattr(LinearPostProcessor, "to_dense", lambda self: "dense")
    linear = {"Whitening": WhiteningPostProcessor, "AllButTheTop": AllButTheTopPostProcessor}
    for name, kind in (linear | {"LocalityPreserving": LocalityPreservingPostProcessor}).items():
        calls.on(kind, "attach", lambda kind=kind, **_: ["plain", kind(2)], f"{name}.attach")
    calls.on(SIFPooling, "attach", lambda **_: [SIFPooling(TABLE)], "SIF.attach")
    calls.on(CorpusStatistics, "load", lambda **_: STATISTICS, "statistics")
    calls.on(CorpusStatistics, "compute", lambda **_: CorpusStatistics(2))
    calls.on(CorpusStatistics, "save", lambda **_: None, "save statistics")
    calls.on(loading, "with_modules", lambda **_: None)
    for module in (evaluate, fitting, postprocess, statistics):
        calls.on(module, "load_any", lambda path: _Loaded([RepALPostProcessor(2, 0.5, 0.5)]))
    return calls


TUNED = {"lambda_1": 0.5, "lambda_2": 0.5, "spearman": 0.5, "plain_spearman": 0.5, "settings": 1}


class _Loaded(list[Any]):
    """The modules of what stands for a loaded model."""

    tokenizer = Model.tokenizer


def _streamed(sources: Any, column: Any = None, max_line: int = MAX_LINE, **_: Any) -> list[str]:
    return corpus(sources, column, None, max_line)


def _embedded(complementary_model: Model, sentences: list[str], **_: Any) -> tuple[str, list[str]]:
    return complementary_model.path, sentences


def _model(path: str, **options: Any) -> Model:
    options.pop("device", None)
    return Model(path, **options)


def _tokenizer(calls: Calls) -> Callable[..., Any]:
    def load(pretrained_model_name_or_path: str, **_: Any) -> Any:
        calls.seen.append(("tokenizer", {"name": pretrained_model_name_or_path}))
        return Model.tokenizer

    return load


def _run(run: Run, calls: Calls, row: Row, words: tuple[str, ...]) -> list[Any]:
    """Run the row's command and return the values that arrived."""
    Path("text.txt").write_text("a")
    places = {"ENC": "enc", "TEXT": "text.txt", "STS": "sts"}
    base = row.base or tuple(places.get(word, word) for word in COMMANDS[row.command])
    calls.seen.clear()
    code, out, err = run(*base, *row.needs, *words)
    assert code == 0 or not words, err
    is_json = out.startswith("{")
    calls.seen.append(("stdout", {"is_json": is_json, **(json.loads(out) if is_json else {})}))
    return calls.values(row.call, row.argument)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.command} {row.option} {row.call} {row.argument}")
def test_the_value_arrives(run: Run, calls: Calls, row: Row) -> None:
    if not row.option.startswith("-"):
        assert row.arrives in _run(run, calls, row, ())
        return
    assert row.arrives not in _run(run, calls, row, ()), "the row shows nothing: the value is there without the option"
    words = (row.option,) if row.value is None else (row.option, row.value)
    assert row.arrives in _run(run, calls, row, words)


def test_every_option_of_every_command_has_a_row() -> None:
    """A new option needs a row; one that can be written in two ways needs two."""
    expected = {(parameter.command, name) for parameter in parameters() for name in parameter.names}
    assert expected - {(row.command, row.option) for row in ROWS} == set()


def test_the_longest_line_is_that_of_the_reader() -> None:
    assert options.LONGEST_LINE == MAX_LINE
