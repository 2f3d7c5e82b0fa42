"""Every option of every command arrives where it takes effect: what the commands call is recorded, see rows.py.

A row fails if an option is dropped or swapped with another: its value must arrive with it and not without it.
"""

import functools
import inspect
import io
import json
import pkgutil
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from st_extras import adaptation, modules
from st_extras.cli.options import LONGEST_LINE
from st_extras.evaluation.unrelated_pairs import UnrelatedPairs
from st_extras.modules.post_processor import LinearPostProcessor
from st_extras.text.files import MAX_LINE
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

POST_PROCESSORS: dict[str, Any] = {
    "Whitening": modules.WhiteningPostProcessor,
    "SIF": modules.SIFPooling,
    "RepAL": modules.RepALPostProcessor,
}


class Calls:
    """Replaces what the commands call; remembers each call's arguments by name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.defaults: dict[tuple[str, str], Any] = {}

    def note(self, call: str, original: Callable[..., Any], result: Any) -> Callable[..., Any]:
        """Return what takes the place of a function: it records its arguments and returns the result, or calls it."""
        signature = inspect.signature(original)
        self.defaults |= {(call, parameter.name): parameter.default for parameter in signature.parameters.values()}

        def noted(*given: Any, **named: Any) -> Any:
            bound = signature.bind(*given, **named)
            rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
            arguments = {name: value for name, value in bound.arguments.items() if name not in ("self", "cls", rest)}
            arguments |= bound.arguments.get(rest, {})
            self.seen.append((call, arguments))
            return result(**arguments) if inspect.isfunction(result) else result

        return functools.wraps(original)(noted) if inspect.isfunction(original) else noted

    def on(self, place: str, result: Any = None, call: str = "") -> None:
        """Replace "module:name", known in rows.py by its last part or as ``call``."""
        name = place.rpartition(":")[2].rpartition(".")[2]
        self.patch.setattr(place.replace(":", "."), self.note(call or name, pkgutil.resolve_name(place), result))

    def missing(self, expected: Arguments) -> dict[tuple[str, str], list[Any]]:
        """What arrived in the place of each value that did not, by call and argument."""
        places = {(call, name): value for call, arguments in expected.items() for name, value in arguments.items()}
        found = {(call, name): [given.get(name) for seen, given in self.seen if seen == call] for call, name in places}
        return {place: found[place] for place, value in places.items() if value not in found[place]}


class Loaded(list[Any]):
    """The modules of what stands for a loaded model."""

    tokenizer = Model.tokenizer

    def __eq__(self, other: object) -> bool:
        return other == LOADED

    __hash__ = None  # type: ignore[assignment]


def _streamed(sources: Any, column: Any = None, limit: Any = None, max_line: int = MAX_LINE, **_: Any) -> list[str]:
    return corpus(sources, column, limit, max_line)


def _model(path: str, device: Any = None, **options: Any) -> Model:
    return Model(path, **options)


@pytest.fixture
def calls(monkeypatch):
    """The calls of a command in a world where nothing is loaded, trained or saved."""
    calls = Calls(monkeypatch)
    on = calls.on
    for place, value in {
        "st_extras.training.run_folder.last_checkpoint": lambda output: "checkpoints/checkpoint-1",
        "st_extras.training.arguments.rates_of_the_loss": lambda *_: {},
        "st_extras.cli.advice.warn_of_good_encoder": lambda model: None,
        "st_extras.encoder_names.find_encoder": lambda name, **_: name,
        "st_extras.samples.encoder.packaged_minilm": lambda: None,
        "st_extras.text.vocabularies.vocabulary": lambda tokenizer: ("a", "b"),
        "sys.stdin": io.StringIO(),
    }.items():
        monkeypatch.setattr(place, value)
    monkeypatch.setattr(UnrelatedPairs, "cosines", lambda self: {name: {} for name in self.texts})
    monkeypatch.setattr(LinearPostProcessor, "to_dense", lambda self: "dense")
    # text
    on("st_extras.text.corpus:stream_sentences", _streamed, "read_sentences")
    on("st_extras.text.corpus:passages", lambda texts, **_: texts)
    on("st_extras.text.documents:read_documents", (["a", "b"], ["one", "two"]))
    on("st_extras.text.documents:read_queries", (QUERIES, QUERIES))
    for name in ("RakePhrases", "ChunkPhrases", "EDA"):
        on(f"st_extras.text:{name}")
    dataset = functools.partial(
        calls.note("dataset", pkgutil.resolve_name("st_extras.text:PhraseMasking.dataset"), corpus()), None
    )
    on("st_extras.text:PhraseMasking", SimpleNamespace(dataset=dataset, skipped=0))
    for name, result in {"from_file": TABLE, "from_wordfreq": OTHER_TABLE, "count": TABLE, "save": None}.items():
        on(f"st_extras.text.frequency:FrequencyTable.{name}", result)
    on("st_extras.text.frequency:FrequencyTable.labels", TABLE.counts)
    # encoders and training
    on("st_extras.encoders:load_encoder", _model)
    on("st_extras.encoders:use_length_buckets")
    on(
        "st_extras.encoders:EmbeddingTable.compute",
        lambda complementary_model, sentences, **_: (complementary_model.path, sentences),
    )
    on("st_extras.encoders.loading:with_modules", lambda model, modules: modules)
    monkeypatch.setattr(
        "transformers.AutoTokenizer.from_pretrained", calls.note("tokenizer", lambda name: None, Model.tokenizer)
    )
    monkeypatch.setattr(
        "datasets.disable_progress_bars", lambda: calls.seen.append(("disable_progress_bars", {"called": True}))
    )
    on("st_extras.training:check_output")
    run = SimpleNamespace(best=None, best_step=1, steps=1, seconds=1.0, curve=[])
    on("st_extras.training:train_encoder", lambda model, loss, **_: (loss(model), run)[1])
    on("st_extras.training:save_model")
    for name in ("SimCSELoss", "DCLRLoss", "SLTFAILoss", "PaSeRLoss"):
        on(f"st_extras.losses:{name}.__init__", call=name)
    on("st_extras.losses:epochs_to_steps", 1)
    # adaptation and search
    on("st_extras.adaptation:check_adaptation_output", call="check_output")
    texts, details = adaptation.TextSummary(1, 1, 1, 0, 1.0), adaptation.DomainDetails(2.0)
    left: Any = functools.partial(adaptation.Adaptation, None, None, "Left unchanged: too few.", "", [], texts)
    on("st_extras.adaptation:adapt", left(details, 1.0))
    on("st_extras.adaptation:adapt_search", left(adaptation.SearchDetails(1, True), 1.0))
    on("st_extras.adaptation:demonstrate", [])
    on("st_extras.adaptation.pseudo_relevance:sample_queries", (QUERIES, False))
    on("st_extras.adaptation.corpus:sample_texts", adaptation.corpus.Sample(["a"] * 50, 50))
    on("st_extras.samples:write_samples", [Path("there/text.txt")])
    search = pkgutil.resolve_name("st_extras.search:HybridSearch")
    found = SimpleNamespace(model=SimpleNamespace(similarity_fn_name="cosine"), bm25_weight=0.1)
    found.search = functools.partial(
        calls.note("search", search.search, lambda queries, **_: [[] for _ in queries]), None
    )
    found.save = functools.partial(calls.note("save search", search.save, None), None)
    on("st_extras.search:HybridSearch", found)
    # evaluation
    scores = {"mean": 0.5, "ndcg@10": 0.5, "difference": 0.0, "low": 0.0, "high": 0.0}
    on("st_extras.evaluation:sts_evaluator", lambda names, source, **_: Evaluator(names, source))
    on("st_extras.evaluation.mteb:mteb_tasks", lambda names: names)
    on("st_extras.evaluation.mteb:mteb_scores", {})
    on("st_extras.evaluation:load_labeled_texts", LABELED)
    on("st_extras.evaluation:LabeledTextEvaluator")
    for name in ("paired:compare_labeled", "paired:compare_sts"):
        on(f"st_extras.evaluation.{name}", lambda models, **_: {model: scores for model, _ in models})
    on("st_extras.evaluation:compare_retrieval", lambda models, **_: {model: scores for model, _ in models})
    on("st_extras.evaluation:load_retrieval", TASK)
    on("st_extras.evaluation:load_sts", PAIRS)
    on("st_extras.evaluation:UnlabeledSelectionEvaluator", lambda sentences, **_: ("unlabeled", sentences))
    on(
        "st_extras.evaluation.unrelated_pairs:encode_pairs",
        lambda models, **_: UnrelatedPairs({name: ["a"] for name in models}),
    )
    on("st_extras.plots:plot_unrelated_cosines")
    # modules
    tuned = {"lambda_1": 0.5, "lambda_2": 0.5, "spearman": 0.5, "plain_spearman": 0.5, "settings": 1}
    on("st_extras.modules:RepALPostProcessor.tune", SimpleNamespace(**tuned))
    on("st_extras.modules:RepALPostProcessor.detach", lambda model: model)
    for name, kind in POST_PROCESSORS.items():
        made = kind(TABLE) if name == "SIF" else kind(2)
        on(f"st_extras.modules:{kind.__name__}.attach", Loaded(["plain", made]), f"{name}.attach")
        on(f"st_extras.modules:{kind.__name__}.fit", call=f"{name}.fit")
    on("st_extras.modules:CorpusStatistics.load", STATISTICS, "statistics")
    on("st_extras.modules:CorpusStatistics.compute", modules.CorpusStatistics(2))
    on("st_extras.modules:CorpusStatistics.save", call="save statistics")
    on("st_extras.cli.search:load_any", lambda path: SimpleNamespace(prompts={}))
    on("st_extras.cli.calibrate:load_any", torch.nn.Identity())
    for name in ("evaluate", "refine", "shards"):
        on(f"st_extras.cli.{name}:load_any", Loaded([modules.RepALPostProcessor(2, 0.5, 0.5)]))
    return calls


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
    assert not added or len(missing) == sum(map(len, expected.values())), "a value is there without the options"
    assert ran(run, calls, command, added).missing(expected) == {}


def test_every_option_of_every_command_has_a_row():
    """One that can be written in two ways needs both."""
    lines = [f"{command} {added}" for command, rows in ROWS.items() for added in rows]
    for name, option in options():
        shown = {word for line in lines if line.startswith(name) for word in shlex.split(line)}
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
