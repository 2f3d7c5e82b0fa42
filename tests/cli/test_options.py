"""Every option of every command arrives where it takes effect: what the commands call is recorded, see rows.py.

A row fails if the option is dropped or swapped with another: the value must arrive with it and not without it.
"""

import functools
import inspect
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from st_extras import losses, plots
from st_extras.cli.options import LONGEST_LINE
from st_extras.modules import (
    AllButTheTopPostProcessor,
    CorpusStatistics,
    LocalityPreservingPostProcessor,
    RepALPostProcessor,
    SIFPooling,
    WhiteningPostProcessor,
)
from st_extras.modules.post_processor import LinearPostProcessor
from st_extras.text.files import MAX_LINE
from st_extras.text.frequency import FrequencyTable
from tests.cli.commands import options
from tests.cli.conftest import Run
from tests.cli.rows import (
    LABELED,
    LOADED,
    OTHER_TABLE,
    PAIRS,
    QUERIES,
    ROWS,
    STATISTICS,
    TABLE,
    TASK,
    Arguments,
    Evaluator,
    Model,
    corpus,
)


class Calls:
    """Replaces what the commands call; remembers each call's arguments by name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.defaults: dict[tuple[str, str], Any] = {}

    def note(self, call: str, original: Callable[..., Any], result: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)
        self.defaults |= {(call, parameter.name): parameter.default for parameter in signature.parameters.values()}

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

    def missing(self, expected: Arguments) -> dict[tuple[str, str], list[Any]]:
        """What arrived in the place of each value that did not, by call and argument."""
        places = {(call, name): value for call, arguments in expected.items() for name, value in arguments.items()}
        found = {(call, name): [given.get(name) for seen, given in self.seen if seen == call] for call, name in places}
        return {place: found[place] for place, value in places.items() if value not in found[place]}


@pytest.fixture
def calls(monkeypatch):
    """The calls of a command in a world where nothing is loaded, trained or saved."""
    import datasets
    import transformers

    from st_extras import adaptation, encoders, evaluation, samples, text, training
    from st_extras import search as hybrid_package
    from st_extras.adaptation import pseudo_relevance
    from st_extras.cli import advice, calibrate, evaluate, refine, search, shards
    from st_extras.encoders import loading
    from st_extras.evaluation import mteb, paired, unrelated_pairs
    from st_extras.evaluation.unrelated_pairs import UnrelatedPairs
    from st_extras.search import hybrid
    from st_extras.text import corpus as reading
    from st_extras.text import documents
    from st_extras.training import arguments

    calls = Calls(monkeypatch)
    run = SimpleNamespace(best=None, best_step=1, steps=1, seconds=1.0, curve=[])
    calls.on(training, "check_output", lambda **_: None)
    monkeypatch.setattr("st_extras.training.run_folder.last_checkpoint", lambda output: "checkpoints/checkpoint-1")
    calls.on(adaptation, "check_adaptation_output", lambda **_: None, "check_output")
    monkeypatch.setattr(arguments, "rates_of_the_loss", lambda *_: {})
    monkeypatch.setattr(advice, "warn_of_good_encoder", lambda model: None)
    calls.on(reading, "stream_sentences", _streamed, "read_sentences")
    calls.on(reading, "passages", lambda texts, **_: texts)
    calls.on(encoders, "load_encoder", _model)
    calls.on(encoders, "use_length_buckets", lambda **_: None)
    calls.on(encoders.EmbeddingTable, "compute", _embedded)
    calls.on(datasets, "disable_progress_bars", lambda: calls.seen.append(("disable_progress_bars", {"called": True})))
    calls.on(training, "train_encoder", lambda model, loss, **_: (loss(model), run)[1])
    texts, none = adaptation.TextSummary(1, 1, 1, 0, 1.0), "Left unchanged: too few."
    found_out = {"adapt": adaptation.DomainDetails(2.0), "adapt_search": adaptation.SearchDetails(1, True)}
    for name, details in found_out.items():
        found = adaptation.Adaptation(None, None, none, "", [], texts, details, 1.0)  # type: ignore[arg-type]
        calls.on(adaptation, name, lambda found=found, **_: found)
    calls.on(adaptation, "demonstrate", lambda **_: [])
    calls.on(samples, "write_samples", lambda **_: [Path("there/text.txt")])
    calls.on(documents, "read_documents", lambda **_: (["a", "b"], ["one", "two"]))
    calls.on(documents, "read_queries", lambda **_: (QUERIES, QUERIES))
    find = calls.note("search", hybrid.HybridSearch.search, lambda queries, **_: [[] for _ in queries])
    save = calls.note("save search", hybrid.HybridSearch.save, lambda **_: None)
    found = SimpleNamespace(model=SimpleNamespace(similarity_fn_name="cosine"), bm25_weight=0.1)
    found.search, found.save = functools.partial(find, None), functools.partial(save, None)
    calls.on(hybrid_package, "HybridSearch", lambda **_: found)
    monkeypatch.setattr("st_extras.encoder_names.find_encoder", lambda name, **_: name)
    calls.on(search, "load_any", lambda path: SimpleNamespace(prompts={}))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("st_extras.samples.encoder.packaged_minilm", lambda: None)
    calls.on(evaluation, "sts_evaluator", lambda names, source, **_: Evaluator(names, source))
    calls.on(mteb, "mteb_tasks", lambda names: names)
    calls.on(mteb, "mteb_scores", lambda model, tasks, **_: {})
    calls.on(evaluation, "load_labeled_texts", lambda **_: LABELED)
    calls.on(evaluation, "LabeledTextEvaluator", lambda **_: None)
    scores = {"mean": 0.5, "difference": 0.0, "low": 0.0, "high": 0.0}
    for name in ("compare_labeled", "compare_sts"):
        calls.on(paired, name, lambda models, **_: {model: scores for model, _ in models})
    calls.on(evaluation, "load_retrieval", lambda **_: TASK)
    row = dict.fromkeys(("ndcg@10", "difference", "low", "high"), 0.5)
    calls.on(evaluation, "compare_retrieval", lambda models, **_: {name: row for name, _ in models})
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
    calls.on(training, "save_model", lambda **_: None)
    calls.on(RepALPostProcessor, "tune", lambda **_: SimpleNamespace(**TUNED))
    calls.on(RepALPostProcessor, "detach", lambda model: model)
    monkeypatch.setattr(LinearPostProcessor, "to_dense", lambda self: "dense")
    for name, kind in CLASSES.items():
        made = SIFPooling(TABLE) if kind is SIFPooling else kind(2)
        calls.on(kind, "attach", lambda made=made, **_: _Loaded(["plain", made]), f"{name}.attach")
        calls.on(kind, "fit", lambda **_: None, f"{name}.fit")
    calls.on(CorpusStatistics, "load", lambda **_: STATISTICS, "statistics")
    calls.on(CorpusStatistics, "compute", lambda **_: CorpusStatistics(2))
    calls.on(CorpusStatistics, "save", lambda **_: None, "save statistics")
    calls.on(loading, "with_modules", lambda model, modules: modules)
    calls.on(calibrate, "load_any", lambda path: torch.nn.Identity())
    calls.on(unrelated_pairs, "encode_pairs", lambda models, **_: UnrelatedPairs({name: ["a"] for name in models}))
    monkeypatch.setattr(UnrelatedPairs, "cosines", lambda self: {name: {} for name in self.texts})
    calls.on(pseudo_relevance, "sample_queries", lambda **_: (QUERIES, False))
    calls.on(adaptation.corpus, "sample_texts", lambda **_: adaptation.corpus.Sample(["a"] * 50, 50))
    calls.on(plots, "plot_unrelated_cosines", lambda **_: None)
    for module in (evaluate, refine, shards):
        calls.on(module, "load_any", lambda path: _Loaded([RepALPostProcessor(2, 0.5, 0.5)]))
    return calls


CLASSES: dict[str, Any] = {
    "Whitening": WhiteningPostProcessor,
    "AllButTheTop": AllButTheTopPostProcessor,
    "LocalityPreserving": LocalityPreservingPostProcessor,
    "SIF": SIFPooling,
    "RepAL": RepALPostProcessor,
}


TUNED = {"lambda_1": 0.5, "lambda_2": 0.5, "spearman": 0.5, "plain_spearman": 0.5, "settings": 1}


class _Loaded(list[Any]):
    """The modules of what stands for a loaded model."""

    tokenizer = Model.tokenizer

    def __eq__(self, other: object) -> bool:
        return other == LOADED

    __hash__ = None  # type: ignore[assignment]


def _streamed(sources: Any, column: Any = None, limit: Any = None, max_line: int = MAX_LINE, **_: Any) -> list[str]:
    return corpus(sources, column, limit, max_line)


def _embedded(complementary_model: Model, sentences: list[str], **_: Any) -> tuple[str, list[str]]:
    return complementary_model.path, sentences


def _model(path: str, **options: Any) -> Model:
    options.pop("device", None)
    return Model(path, prompts=options.pop("prompts", {}), **options)


def _tokenizer(calls: Calls) -> Callable[..., Any]:
    def load(pretrained_model_name_or_path: str, **_: Any) -> Any:
        calls.seen.append(("tokenizer", {"name": pretrained_model_name_or_path}))
        return Model.tokenizer

    return load


SEEN: dict[str, list[tuple[str, dict[str, Any]]]] = {}


def ran(run: Run, calls: Calls, command: str, added: str = "") -> Calls:
    """Run a command and return what was called. Without ``added`` each command runs once for all."""
    words = shlex.split(f"{command} {added}")
    writes_nothing = ("evaluate", "search", "calibrate", "doctor", "demo", "repal evaluate", "frequencies info")
    if not command.startswith(writes_nothing) and not {"-o", "--output"} & {*words}:
        words += ["-o", "out"]
    if added or command not in SEEN:
        calls.seen.clear()
        code, out, err = run(*words)
        assert code == 0 or not added, err
        is_json = out.startswith("{")
        calls.seen.append(("stdout", {"is_json": is_json, **(json.loads(out) if is_json else {})}))
        if not added:
            SEEN[command] = [*calls.seen]
    if not added:
        calls.seen = [*SEEN[command]]
    return calls


@pytest.mark.parametrize(("command", "added"), [(command, added) for command, rows in ROWS.items() for added in rows])
def test_the_values_arrive(run, calls, command, added):
    Path("text.csv").write_text("a")
    expected = ROWS[command][added]
    missing = ran(run, calls, command).missing(expected)
    count = sum(map(len, expected.values()))
    assert not added or len(missing) == count, "a value is there without the options"
    assert ran(run, calls, command, added).missing(expected) == {}


def test_every_option_of_every_command_has_a_row():
    """One that can be written in two ways needs both."""
    lines = [(command, f"{command} {added}") for command, rows in ROWS.items() for added in rows]
    seen = {(command, word) for command, line in lines for word in shlex.split(line)}
    for name, option in options():
        shown = {word for command, word in seen if command.startswith(name)}
        assert [word for word in option.opts if word not in shown] == [], name


@pytest.mark.parametrize("command", ROWS)
def test_defaults_are_those_of_python(run, calls, command):
    """But for what a command gives always: text, tokenizer, source of sets, bars, SLT-FAI's parts, RepAL's weights."""
    given = {"lambda_1", "lambda_2", "corpus", "tokenizer", "source", "show_progress_bar", "base_loss", "warmup_steps"}
    given |= {"name", "no_duplicates" if "paser" in command else "convert_to_tensor"}
    Path("text.csv").write_text("a")
    for call, arguments in ran(run, calls, command).seen:
        for name in {*arguments} - given:
            default = calls.defaults.get((call, name), inspect.Parameter.empty)
            assert default is inspect.Parameter.empty or arguments[name] in (default, {}), (call, name)


def test_the_longest_line_is_that_of_the_reader():
    assert LONGEST_LINE == MAX_LINE
