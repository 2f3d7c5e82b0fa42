"""Every option of every command arrives, by its name, in each call that takes an argument of this name.

The commands run in a world where nothing is loaded, trained or saved: ``calls`` records what they call. Where an option
has another name than the argument, RENAMED has it, or the line's own row in LINES.
"""

import dataclasses
import functools
import inspect
import io
import pkgutil
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from datasets import Dataset

from st_extras import adaptation
from st_extras.cli.objectives import LOSSES
from st_extras.evaluation import LabeledTexts, RetrievalComparison, RetrievalTask, STSDataset
from st_extras.evaluation.geometry import MovedThreshold
from st_extras.evaluation.unrelated_pairs import UnrelatedPairs
from st_extras.text.documents import Document
from st_extras.text.frequency import FrequencyTable
from tests.cli.commands import COMMANDS, options, parsed
from tests.helpers import write


class Model(NamedTuple):
    """What stands for a loaded encoder: where from, and with which prompts."""

    path: str
    prompts: dict[str, str]
    default_prompt_name: str | None = None

    device = "cpu"
    modules = list
    tokenizer = SimpleNamespace(mask_token="[MASK]")
    similarity_fn_name = "cosine"


class Evaluator(NamedTuple):
    """What stands for an evaluator: of which sets. Its score is 50."""

    names: Any
    source: str

    primary_metric = "sts12_spearman_cosine"

    def __call__(self, model: Any) -> dict[str, float]:
        return {"sts12_spearman_cosine": 0.5}


class Own:
    """A loss of the user's own."""

    def __init__(self, model: Any, scale: float = 1.0) -> None: ...


READ_DOCUMENTS = [Document("a", "", "one"), Document("b", "", "two")]
TABLE = FrequencyTable(["a", "b"], [1, 1])
QUERIES = [f"query {i}" for i in range(20)]
"""Queries of a file: as many as the weight of BM25 is found from."""
LABELED = LabeledTexts(["a", "b"], ["one", "two"])
TASK = RetrievalTask({"q": "one"}, {"d": "two"}, {"q": {"d": 1.0}})
PAIRS = STSDataset("pairs", ["a", "b"], ["c", "d"], [0.0, 1.0], ["one", "two"])
TEXT = ["a sentence", "another"]
ROWS = [{"sentence": "a sentence", "masked": "a [MASK]", "phrase": "sentence"}]

RENAMED = {
    "encoder": ("path", "name"),
    "text": ("sources",),
    "retrieval": ("folder", "documents"),
    "labeled": ("path",),
    "query_column": ("column",),
    "ranks": ("file",),
}
"""Arguments that take an option which has another name."""
GIVEN_AS = {"quiet": {"show_progress_bar": False}, "as_json": {"is_json": True}}
"""What an option becomes wherever it is given."""
OTHERS = frozenset(
    {
        ("epochs_to_steps", "batch_size"),
        ("stream_sentences", "limit"),
        ("read_queries", "column"),
        ("PhraseMasking", "seed"),
    }
)
"""Arguments that have the name of an option and another meaning."""
CALLED = LOSSES
"""What an objective calls."""
READ = "--column body"
RUN = f"{READ} -o there --limit 600 --minutes 2.5 --batch-size 7 --seed 13 --overwrite --quiet"

LINES: dict[str, dict[str, dict[str, Any]]] = {
    f"train simcse enc text.csv --output there {READ} --limit 3 --dev D --batch-size 7"
    " --lr 0.5 --steps 11 --eval-steps 12 --max-length 9 --pooling cls --layers 1"
    " --set temperature=0.3 --set mini_batch_size=5 --trainer patience=3 --trainer loss_learning_rate=0.25"
    " --trainer lora=8 --trainer weight_decay=0.1 --seed 13 --resume --overwrite --quiet": {
        "dev": {"source": "D", "datasets": [PAIRS], "evaluator": Evaluator("", ""), "data": {"sentence": TEXT}},
        "set_": {"temperature": 0.3, "mini_batch_size": 5},
        "trainer": {"patience": 3, "loss_learning_rate": 0.25, "lora": 8, "weight_decay": 0.1},
        "quiet": {"show_progress_bar": False, "called": "disable_progress_bars"},
    },
    "train simcse enc text.csv -o there --trainer num_train_epochs=2.5 --trainer bf16=true --json": {
        "trainer": {"bf16": True, "no_duplicates": True, "num_train_epochs": 2.5},
    },
    "train tests.cli.test_options:Own enc text.csv -o there --set scale=3": {
        "objective": {"called": "Own"},
        "set_": {"scale": 3, "data": {"sentence": TEXT}},
    },
    "train dclr enc text.csv -o there --set complementary_model=C": {"set_": {"complementary_model": "C"}},
    "train slt-fai enc text.csv -o there --set base_loss=dclr --set mask_ratio=0.3 --batch-size 7": {
        "objective": {"frequency_table": TABLE, "tokenizer": Model.tokenizer},
        "set_": {"mask_ratio": 0.3, "called": "DCLRLoss"},
        "batch_size": {"batch_size": 7},
    },
    "train slt-fai enc text.csv -o there --set base_loss=consert": {"set_": {"epochs": 0.5, "called": "ConSERTLoss"}},
    "train paser enc text.csv -o there --set kinds=NP+VP --set top_k=5 --seed 13": {
        "set_": {"kinds": ["NP", "VP"], "top_k": 5, "no_duplicates": False, "data": ROWS},
    },
    "train paser enc text.csv -o there --set language=german --set on_missing_mask=delete --set mlm_weight=0": {
        "set_": {"language": "german", "on_missing_mask": "delete", "mlm_weight": 0},
    },
    f"adapt enc text.csv {RUN} --max-general-loss 0 --threshold 0.8 --dev D --dev-set X --prompt P": {
        "dev": {"source": "D", "dev": PAIRS, "texts": TEXT},
        "dev_set": {"name": "X"},
        "prompt": {"model": Model("enc", {"text": "P"}, "text")},
    },
    "adapt enc text.csv -o there --strength gentle --labeled F --text-column t --label-column l --json": {
        "labeled": {"path": "F", "dev": LABELED},
    },
    f"adapt-search enc text.csv {RUN} --queries q.txt --query-column asked --keep-index --language english"
    " --retrieval F --passages 2 --query-prompt Q --document-prompt D": {
        "queries": {"sources": ["q.txt"], "queries": QUERIES, "documents": TEXT},
        "retrieval": {"folder": "F", "dev": TASK},
        "query_prompt": {"model": Model("enc", {"query": "Q", "document": "D"})},
        "document_prompt": {},
        "documents": {"sources": ["text.csv"]},
    },
    "adapt-search enc text.csv -o there --json": {"documents": {"sources": ["text.csv"], "queries": None}},
    f"search enc text.csv --queries q.txt --query-column asked --index i {READ} --query-prompt Q --document-prompt D"
    " --batch-size 7 --quiet": {
        "documents": {"sources": "text.csv", "documents": READ_DOCUMENTS},
        "queries": {"sources": "q.txt", "queries": QUERIES},
        "index": {"folder": "i"},
        "query_prompt": {"model": Model("enc", {"query": "Q", "document": "D"})},
        "document_prompt": {},
    },
    "search enc text.csv cat dog --top-k 3 --bm25-weight 0.5 --passages 30 --language english --json": {
        "documents": {"sources": "text.csv"},
        "query": {"queries": ["cat", "dog"]},
    },
    "demo there --json": {},
    f"evaluate enc other --text text.csv {READ} --prompt 'query: ' --before old --threshold 0.8 --quiet": {
        "encoder": {"path": "old", "models": [(name, Model(name, {})) for name in ("old", "enc", "other")]},
        "text": {"sources": ["text.csv"], "texts": ["a"] * 50},
        "before": {"path": "old"},
    },
    "evaluate enc --sts D --sets X --sets Y --setting wmean --quiet": {
        "sts": {"source": "D"},
        "sets": {"names": ["X", "Y"]},
    },
    "evaluate enc --labeled F --text-column t --label-column l": {"labeled": {"path": "F", "labels": LABELED.labels}},
    "evaluate enc --retrieval F --split dev --passages 30 --query-prompt Q --document-prompt D --json": {
        "query_prompt": {"models": [("enc", Model("enc", {"query": "Q", "document": "D"}))]},
        "document_prompt": {},
        "retrieval": {"folder": "F", "task": TASK, "bm25": True, "baseline": None, "language": None},
    },
    "evaluate enc --retrieval F --judged J --baseline bm25 --language english --ranks r.tsv --index i": {
        "retrieval": {"documents": "F", "task": TASK},
        "judged": {"judged": "J"},
        "baseline": {"baseline": "bm25"},
        "language": {"language": "english"},
    },
}
"""Command lines, and what an option becomes that does not arrive under its name: arguments with their values."""


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
            bound.apply_defaults()
            rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
            arguments = {name: value for name, value in bound.arguments.items() if name not in ("self", "cls", rest)}
            arguments |= bound.arguments.get(rest, {})
            if isinstance(options := arguments.get("options"), adaptation.AdaptationOptions):
                arguments |= dataclasses.asdict(options)  # each of them arrives with the job
                self.defaults |= {(call, one.name): one.default for one in dataclasses.fields(options)}
                del arguments["options"]
            self.seen.append((call, arguments))
            return result(**arguments) if inspect.isfunction(result) else result

        return functools.wraps(original)(noted) if inspect.isfunction(original) else noted

    def on(self, place: str, result: Any = None) -> None:
        """Replace "module:name"."""
        name = place.rpartition(":")[2].removesuffix(".__init__")
        self.patch.setattr(place.replace(":", "."), self.note(name, pkgutil.resolve_name(place), result))

    def arrived(self, argument: str, but: frozenset[tuple[str, str]] = frozenset()) -> list[Any]:
        """The values of an argument in all calls that have one of this name; paths as text."""
        if argument == "called":
            return [call for call, _ in self.seen]
        found = [given[argument] for call, given in self.seen if argument in given and (call, argument) not in but]
        found = [value.to_dict() if isinstance(value, Dataset) else value for value in found]
        return [str(value) if isinstance(value, Path) else value for value in found]


@pytest.fixture
def calls(run, monkeypatch):
    """The calls of a command in a world where nothing is loaded, trained or saved."""
    for name in ("text.csv", "q.txt"):
        Path(name).write_text("a")
    calls = Calls(monkeypatch)
    on = calls.on
    for place, value in {
        "st_extras.samples.graded_spearman": lambda model: 50.0,
        "st_extras.encoder_names.find_encoder": lambda name, **_: name,
        "st_extras.samples.encoder.packaged_minilm": lambda: None,
        "datasets.disable_progress_bars": lambda: calls.seen.append(("disable_progress_bars", {})),
        "sys.stdin": io.StringIO(),
    }.items():
        monkeypatch.setattr(place, value)
    monkeypatch.setattr(UnrelatedPairs, "cosines", lambda self: {name: {} for name in self.embeddings})
    on("st_extras.evaluation.unrelated_pairs:UnrelatedPairs.moved_thresholds", {"enc": MovedThreshold(0.8, 0.9, 1, 2)})
    # text
    on("st_extras.text.corpus:stream_sentences", TEXT)
    on("st_extras.text.documents:read_documents", READ_DOCUMENTS)
    on("st_extras.text.documents:read_queries", dict(zip(QUERIES, QUERIES, strict=True)))
    for name in ("RakePhrases", "ChunkPhrases"):
        on(f"st_extras.text:{name}")
    dataset = calls.note("dataset", lambda sentences: None, ROWS)
    on("st_extras.text:PhraseMasking", SimpleNamespace(dataset=dataset, skipped=0))
    on("st_extras.text.frequency:FrequencyTable.count", TABLE)
    # encoders and training
    on(
        "st_extras.encoders:load_encoder",
        lambda path, prompts=None, default_prompt_name=None, **_: Model(path, prompts or {}, default_prompt_name),
    )
    on("st_extras.encoders.loading:with_modules", lambda model, modules: modules)
    on("st_extras.files:check_output")
    on("st_extras.training.checkpoints:check_training_output")
    run = SimpleNamespace(best=None, best_step=1, steps=1, seconds=1.0, curve=[])
    on("st_extras.training:train_encoder", lambda model, loss, **_: (loss(model), run)[1])
    for name in LOSSES.values():
        on(f"st_extras.losses:{name}.__init__")
    on("tests.cli.test_options:Own.__init__")
    on("st_extras.losses:epochs_to_steps", 1)
    # adaptation and search
    texts, details = adaptation.TextSummary(1, 1, 1, 1, 0, 1.0), adaptation.DomainDetails(2.0)
    left: Any = functools.partial(adaptation.Adaptation, None, None, "Left unchanged: too few.", "", [], texts)
    on("st_extras.adaptation:adapt", left(details, 1.0))
    on("st_extras.adaptation:adapt_search", left(adaptation.SearchDetails(1, True), 1.0))
    on("st_extras.adaptation.search:search_queries", QUERIES)
    on("st_extras.adaptation.run:sample_texts", adaptation.run.Sample(["a"] * 50, 50))
    on("st_extras.samples:write_samples", [Path("there/text.txt")])
    found = SimpleNamespace(model=Model("enc", {}), bm25_weight=0.1, language=None, ids=["a", "b"])
    found.search = calls.note("search", lambda queries, top_k: None, lambda queries, **_: [[] for _ in queries])
    found.save = calls.note("save", lambda folder: None, None)
    on("st_extras.search:HybridSearch", found)

    # evaluation
    def loaded(models: Any) -> list[Any]:
        calls.seen.append(("loaded", {"models": [*models]}))
        return calls.seen[-1][1]["models"]

    scores = {"mean": 0.5, "ndcg@10": 0.5, "difference": 0.0, "low": 0.0, "high": 0.0}
    on("st_extras.evaluation:sts_evaluator", lambda names, source, **_: Evaluator(names, source))
    on("st_extras.evaluation:STSEvaluator", Evaluator("", ""))
    on("st_extras.evaluation.sts_data:load_sets", [PAIRS])
    on("st_extras.evaluation:load_labeled_texts", LABELED)
    on("st_extras.evaluation:LabeledTextEvaluator")
    for name in ("paired:compare_labeled", "paired:compare_sts"):
        on(f"st_extras.evaluation.{name}", lambda models, **_: {model: scores for model, _ in models})
    on(
        "st_extras.evaluation:compare_retrieval",
        lambda models, **_: RetrievalComparison({model: scores for model, _ in loaded(models)}, [], {}),
    )
    on("st_extras.cli.evaluate:_write_ranks")
    on("st_extras.evaluation:load_retrieval", TASK)
    on("st_extras.evaluation:load_judged", TASK)
    on("st_extras.evaluation:load_sts", PAIRS)
    on(
        "st_extras.evaluation.unrelated_pairs:encode_pairs",
        lambda models, **_: UnrelatedPairs(["a"], {name: ["a"] for name, _ in models}),
    )
    on("st_extras.modules:load", lambda path: Model(path, {}))
    return calls


def ran(run: Any, calls: Calls, line: str) -> Calls:
    """Run a command and return what was called."""
    code, out, err = run(*shlex.split(line))
    assert code == 0, err
    calls.seen.append(("stdout", {"is_json": out.startswith("{")}))
    return calls


@pytest.mark.parametrize("line", LINES)
def test_the_values_arrive(run, calls, line):
    given = parsed(line)
    ran(run, calls, line)
    for name, value in given.items():
        becomes = LINES[line].get(name) or GIVEN_AS.get(name)
        if becomes is None and isinstance(value, str) and value in CALLED:
            becomes = {"called": CALLED[value]}
        if becomes is None and name not in LINES[line]:
            values = value if isinstance(value, list) else [str(value) if isinstance(value, Path) else value]
            found = [arrived for one in (name, *RENAMED.get(name, ())) for arrived in calls.arrived(one)]
            assert value in found or [one for one in values if one not in found] == [], name
            assert {*map(str, calls.arrived(name, OTHERS))} <= {str(value)}, name
        for argument, wanted in (becomes or {}).items():
            assert wanted in calls.arrived(argument), (name, argument)


def test_every_option_of_every_command_is_on_a_line():
    words = {
        name: {word for line in LINES if line.startswith(f"{name} ") for word in shlex.split(line)}
        for name, _ in options()
    }
    assert [(name, option.opts) for name, option in options() if not {*option.opts} & words[name]] == []


@pytest.mark.parametrize(
    "line",
    [
        *(" ".join(words) for words in COMMANDS.values()),
        *(f"train {objective} ENC TEXT -o out" for objective in ("dclr", "paser", "slt-fai")),
    ],
)
def test_defaults_are_those_of_python(run, calls, line):
    """But for what a command gives always: text, tokenizer, source of sets, bars, SLT-FAI's parts."""
    given = {"tokenizer", "source", "show_progress_bar", "base_loss", "warmup_steps"}
    given |= {"sentences", "documents", "name", "job", "no_duplicates" if "paser" in line else "convert_to_tensor"}
    for call, arguments in ran(run, calls, line).seen:
        for name in {*arguments} - given:
            default = calls.defaults.get((call, name), inspect.Parameter.empty)
            assert default is inspect.Parameter.empty or arguments[name] in (default, {}), (call, name)


@pytest.mark.parametrize("command", ["adapt", "adapt-search"])
def test_the_output_is_checked_as_the_job_will_save_there(run, calls, command):
    found = ran(run, calls, f"{command} enc text.csv -o there --overwrite").seen
    checked = [given for call, given in found if call == "check_output"]
    assert checked == [{"output": Path("there"), "overwrite": True}]


def test_the_warm_up_follows_text_and_batch_size(run, calls):
    found = ran(run, calls, "train slt-fai enc text.csv -o there --batch-size 7").seen
    assert [given for call, given in found if call == "epochs_to_steps"] == [
        {"epochs": 0.1, "num_sentences": len(TEXT), "batch_size": 7, "num_processes": 1}
    ]


@pytest.mark.parametrize(
    "line",
    [
        "search enc beir --queries q.txt --json",
        "adapt-search enc beir -o there --queries q.txt --json",
    ],
)
def test_the_queries_that_are_given_count_and_not_those_of_the_folder(run, calls, line):
    for name in ("corpus", "queries"):
        write(Path(f"beir/{name}.jsonl"), '{"_id": "a", "text": "one"}\n')
    ran(run, calls, line)
    assert [*map(str, np.ravel(calls.arrived("sources")))].count("q.txt") == 1
    assert not [source for source in calls.arrived("sources") if "queries.jsonl" in str(source)]
    calls.seen.clear()
    ran(run, calls, line.replace(" --queries q.txt", " a" if line.startswith("search") else ""))
    assert [source for source in calls.arrived("sources") if "queries.jsonl" in str(source)]
