"""Every option of every command reaches the function of the library that it is for.

The commands run in a world where nothing is loaded, trained or saved: ``calls`` has what they call.
"""

import functools
import inspect
import io
import os
import pkgutil
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from torch import nn

from st_extras import adaptation
from st_extras.adaptation import AdaptationOptions
from st_extras.cli.objectives import LOSSES
from st_extras.cli.options import check_index
from st_extras.evaluation import LabeledTexts, RetrievalComparison, RetrievalTask, STSDataset
from st_extras.evaluation.unrelated_pairs import TextComparison
from st_extras.text.documents import Document
from st_extras.text.frequency import FrequencyTable
from tests.cli.commands import COMMANDS, options
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
    model_card_data = SimpleNamespace()


class Selecting:
    """Equals a function that is true of the documents with these ids."""

    def __init__(self, *ids: str) -> None:
        self.ids = [*ids]

    def __eq__(self, function: object) -> bool:
        return callable(function) and [one.id for one in DOCUMENTS if function(one)] == self.ids

    __hash__ = None


class Own(nn.Module):
    """A loss of the user's own."""

    def __init__(self, model: Any, scale: float = 1.0) -> None:
        super().__init__()


ENC = Model("enc", {})
PROMPTED = Model("enc", {"query": "Q", "document": "D"})
DOCUMENTS = [Document("a", "", "one", {"product": "card", "paid": True}), Document("b", "", "two", {"paid": True})]
TABLE = FrequencyTable(["a", "b"], [1, 1])
QUERIES = [f"query {i}" for i in range(20)]
"""Queries of a file: as many as the weight of BM25 is found from."""
LABELED = LabeledTexts(["a", "b", "c"], ["one", "two", "one"])
TASK = RetrievalTask({"q": "one"}, {"d": "two"}, {"q": {"d": 1.0}})
PAIRS = STSDataset("pairs", ["a", "b"], ["c", "d"], [0.0, 1.0], ["one", "two"])
EVALUATOR = SimpleNamespace(primary_metric="sts12_spearman_cosine")
TEXT = ["a sentence", "another"]
ROWS = [{"sentence": "a sentence", "masked": "a [MASK]", "phrase": "sentence"}]
RUN = "--column body -o there --limit 600 --minutes 2.5 --batch-size 7 --seed 13 --overwrite --quiet"
RUN_OPTIONS = AdaptationOptions(limit=600, minutes=2.5, batch_size=7, seed=13, overwrite=True, show_progress_bar=False)

LINES: dict[str, dict[str, dict[str, Any]]] = {
    "train simcse enc text.csv --output there --column body --limit 3 --dev D --batch-size 7"
    " --lr 0.5 --steps 11 --eval-steps 12 --max-length 9 --pooling cls --layers 1"
    " --set temperature=0.3 --set mini_batch_size=5 --trainer patience=3 --trainer loss_learning_rate=0.25"
    " --trainer lora=8 --trainer weight_decay=0.1 --seed 13 --resume --overwrite --quiet": {
        "check_training_output": {"output": "there", "resume": True, "overwrite": True},
        "stream_sentences": {"sources": ["text.csv"], "column": "body", "limit": 3},
        "load_sts": {"source": "D"},
        "STSEvaluator": {"datasets": [PAIRS]},
        "load_encoder": {"path": "enc", "max_seq_length": 9, "pooling": "cls", "layers": 1, "dtype": None},
        "SimCSELoss": {"model": ENC, "temperature": 0.3, "mini_batch_size": 5},
        "train_encoder": {
            "model": ENC,
            "data": {"sentence": TEXT},
            "output": "there",
            "evaluator": EVALUATOR,
            "batch_size": 7,
            "learning_rate": 0.5,
            "max_steps": 11,
            "eval_steps": 12,
            "patience": 3,
            "loss_learning_rate": 0.25,
            "lora": 8,
            "weight_decay": 0.1,
            "seed": 13,
            "resume": True,
            "overwrite": True,
            "show_progress_bar": False,
            "no_duplicates": True,
        },
        "disable_progress_bars": {},
    },
    "train simcse enc text.csv -o there --trainer num_train_epochs=2.5 --trainer bf16=true --json": {
        "load_encoder": {"path": "enc", "dtype": "float32"},
        "train_encoder": {"num_train_epochs": 2.5, "bf16": True, "show_progress_bar": False},
        "print_json": {},
    },
    "train tests.cli.test_options:Own enc text.csv -o there --set scale=3": {"Own": {"model": ENC, "scale": 3}},
    "train dclr enc text.csv -o there --set complementary_model=C": {"DCLRLoss": {"complementary_model": "C"}},
    "train slt-fai enc text.csv -o there --set base_loss=dclr --set mask_ratio=0.3 --batch-size 7": {
        "FrequencyTable.count": {"tokenizer": Model.tokenizer},
        "SLTFAILoss": {"frequency_table": TABLE, "mask_ratio": 0.3},
        "DCLRLoss": {"model": ENC},
        "epochs_to_steps": {"epochs": 0.1, "num_sentences": len(TEXT), "batch_size": 7},
    },
    "train slt-fai enc text.csv -o there --set base_loss=consert": {
        "ConSERTLoss": {"model": ENC},
        "epochs_to_steps": {"epochs": 0.5},
    },
    "train paser enc text.csv -o there --set kinds=NP+VP --set top_k=5 --seed 13": {
        "ChunkPhrases": {"kinds": ["NP", "VP"], "seed": 13},
        "PhraseMasking": {"top_k": 5},
        "train_encoder": {"data": ROWS, "no_duplicates": False},
    },
    "train paser enc text.csv -o there --set language=german --set on_missing_mask=delete --set mlm_weight=0": {
        "RakePhrases": {"language": "german"},
        "PhraseMasking": {"on_missing_mask": "delete"},
        "PaSeRLoss": {"mlm_weight": 0},
    },
    f"adapt enc text.csv {RUN} --max-general-loss 0 --threshold 0.8 --dev D --dev-set X --prompt P": {
        "check_output": {"output": "there", "overwrite": True},
        "stream_sentences": {"sources": ["text.csv"], "column": "body"},
        "load_sts": {"name": "X", "source": "D"},
        "adapt": {
            "model": Model("enc", {"text": "P"}, "text"),
            "texts": TEXT,
            "output": "there",
            "dev": PAIRS,
            "max_general_loss": 0,
            "threshold": 0.8,
            "options": RUN_OPTIONS,
        },
    },
    "adapt enc text.csv -o there --strength gentle --labeled F --text-column t --label-column l --json": {
        "load_labeled_texts": {"path": "F", "text_column": "t", "label_column": "l"},
        "adapt": {"strength": "gentle", "dev": LABELED, "options": AdaptationOptions(show_progress_bar=False)},
        "print_json": {},
    },
    f"adapt-search enc text.csv {RUN} --queries q.txt --query-column asked --keep-index --language english"
    " --retrieval F --passages 2 --query-prompt Q --document-prompt D --whole-files": {
        "check_output": {"output": "there", "overwrite": True},
        "stream_sentences": {"sources": ["text.csv"], "column": "body", "whole_files": True},
        "read_queries": {"sources": ["q.txt"], "column": "asked"},
        "load_retrieval": {"folder": "F"},
        "adapt_search": {
            "model": PROMPTED,
            "documents": TEXT,
            "output": "there",
            "queries": QUERIES,
            "dev": TASK,
            "keep_index": True,
            "language": "english",
            "passages": 2,
            "options": RUN_OPTIONS,
        },
    },
    "adapt-search enc text.csv -o there --json": {"adapt_search": {"queries": None}, "print_json": {}},
    "search enc text.csv --queries q.txt --query-column asked --index i --column body --query-prompt Q"
    " --document-prompt D --batch-size 7 --quiet --documents q.txt --documents text.csv --whole-files": {
        "read_documents": {"sources": ["text.csv", "q.txt", "text.csv"], "column": "body", "whole_files": True},
        "read_queries": {"sources": "q.txt", "column": "asked"},
        "HybridSearch": {
            "model": PROMPTED,
            "documents": DOCUMENTS,
            "queries": QUERIES,
            "batch_size": 7,
            "show_progress_bar": False,
        },
        "save": {"path": "i"},
        "search": {"queries": QUERIES},
    },
    "search enc text.csv cat dog --top-k 3 --bm25-weight 0.5 --passages 30 --language english --json"
    " --where product=card --where paid=true": {
        "HybridSearch": {"bm25_weight": 0.5, "passages": 30, "language": "english", "queries": None},
        "search": {"queries": ["cat", "dog"], "top_k": 3, "among": Selecting("a")},
        "print_json": {},
    },
    "demo there --json": {"write_samples": {"folder": "there"}, "print_json": {}},
    "evaluate enc other --text text.csv --column body --prompt 'query: ' --threshold 0.8 --quiet": {
        "stream_sentences": {"sources": ["text.csv"], "column": "body"},
        "compare_texts": {
            "models": [(name, Model(name, {})) for name in ("enc", "other")],
            "texts": TEXT,
            "prompt": "query: ",
            "threshold": 0.8,
            "show_progress_bar": False,
        },
    },
    "evaluate enc --sts D --sets X --sets Y --setting wmean --quiet": {
        "load_sets": {"names": ["X", "Y"], "source": "D"},
        "STSEvaluator": {"datasets": [PAIRS], "setting": "wmean", "show_progress_bar": False},
        "compare_sts": {"evaluator": EVALUATOR, "models": [("enc", ENC)]},
    },
    "evaluate enc --labeled F --text-column t --label-column l": {
        "load_labeled_texts": {"path": "F", "text_column": "t", "label_column": "l"},
        "LabeledTextEvaluator": {"texts": LABELED.texts, "labels": LABELED.labels, "show_progress_bar": True},
        "compare_labeled": {"evaluator": EVALUATOR, "models": [("enc", ENC)]},
    },
    "evaluate enc --retrieval F --split dev --passages 30 --query-prompt Q --document-prompt D --json": {
        "load_retrieval": {"folder": "F", "split": "dev"},
        "compare_retrieval": {"task": TASK, "models": [("enc", PROMPTED)], "passages": 30, "show_progress_bar": False},
        "print_json": {},
    },
    "evaluate enc --retrieval F --retrieval G --judged J --baseline bm25 --language english --ranks r.tsv --index i "
    "--whole-files": {
        "load_judged": {"sources": ["F", "G"], "judged": "J", "whole_files": True},
        "compare_retrieval": {"baseline": "bm25", "language": "english", "index": "i"},
        "_write_ranks": {"file": "r.tsv"},
    },
    "evaluate enc other --retrieval F --query-prompt Q --document-prompt D --baseline other --quiet": {
        "compare_retrieval": {
            "models": [(name, PROMPTED._replace(path=name)) for name in ("enc", "other")],
            "baseline": "other",
        },
    },
    # documents stay whole
    "evaluate enc --retrieval F --passages 0 --quiet": {"compare_retrieval": {"passages": None}},
    "search enc text.csv cat --passages 0": {"HybridSearch": {"passages": None}},
    "adapt-search enc text.csv -o there --passages 0": {"adapt_search": {"passages": None}},
}
"""Command lines, and of the functions that they call the arguments that come from them; paths as text."""


class Calls:
    """Replaces what the commands call; has each call's arguments by name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.defaults: dict[tuple[str, str], Any] = {}

    def note(self, call: str, original: Callable[..., Any], result: Any) -> Callable[..., Any]:
        """Return what takes the place of a function: it keeps its arguments and returns the result, or calls it."""
        signature = inspect.signature(original)
        self.defaults |= {(call, parameter.name): parameter.default for parameter in signature.parameters.values()}

        def noted(*given: Any, **named: Any) -> Any:
            bound = signature.bind(*given, **named)
            bound.apply_defaults()
            rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
            arguments = {name: _plain(value) for name, value in bound.arguments.items() if name not in ("self", rest)}
            arguments |= bound.arguments.get(rest, {})
            self.seen.append((call, arguments))
            return result(**arguments) if inspect.isfunction(result) else result

        return functools.wraps(original)(noted) if inspect.isfunction(original) else noted

    def on(self, place: str, result: Any = None) -> None:
        """Replace "module:name"."""
        name = place.rpartition(":")[2].removesuffix(".__init__")
        self.patch.setattr(place.replace(":", "."), self.note(name, pkgutil.resolve_name(place), result))

    def of(self, call: str) -> list[dict[str, Any]]:
        """The arguments of each call of this name."""
        return [arguments for name, arguments in self.seen if name == call]


def _plain(value: Any) -> Any:
    """Paths as text, generators and data sets as what is in them."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if inspect.isgenerator(value) else value.to_dict() if hasattr(value, "to_dict") else value


@pytest.fixture
def calls(run, monkeypatch):
    """The calls of a command in a world where nothing is loaded, trained or saved."""
    for name in ("text.csv", "q.txt"):
        Path(name).write_text("a")
    calls = Calls(monkeypatch)
    on = calls.on
    monkeypatch.setattr("st_extras.samples.graded_spearman", lambda model: 50.0)
    monkeypatch.setattr("st_extras.encoder_names.find_encoder", lambda name, **_: name)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("datasets.are_progress_bars_disabled", lambda: False)  # whatever an earlier test left
    on("datasets:disable_progress_bars")
    for module in ("adapt", "adapt_search", "demo", "evaluate", "search", "train"):
        on(f"st_extras.cli.{module}:print_json")
    # text
    on("st_extras.text.corpus:stream_sentences", TEXT)
    on("st_extras.text.documents:read_documents", DOCUMENTS)
    on("st_extras.text.documents:read_queries", dict(zip(QUERIES, QUERIES, strict=True)))
    on("st_extras.text:RakePhrases")
    on("st_extras.text:ChunkPhrases")
    on("st_extras.text:PhraseMasking", SimpleNamespace(dataset=lambda sentences: ROWS, skipped=0))
    on("st_extras.text.frequency:FrequencyTable.count", TABLE)
    # encoders and training
    on("st_extras.modules:load", lambda path: Model(path, {}))
    on(
        "st_extras.encoders:load_encoder",
        lambda path, prompts=None, default_prompt_name=None, **_: Model(path, prompts or {}, default_prompt_name),
    )
    on("st_extras.files:check_output")
    on("st_extras.training.checkpoints:check_training_output")
    trained = SimpleNamespace(best=None, best_step=1, steps=1, seconds=1.0, curve=[])
    on("st_extras.training:train_encoder", lambda model, loss, **_: (loss(model), trained)[1])
    for name in LOSSES.values():
        on(f"st_extras.losses:{name}.__init__")
    on("tests.cli.test_options:Own.__init__")
    on("st_extras.losses:epochs_to_steps", 1)
    # adaptation and search
    texts, details = adaptation.TextSummary(1, 1, 1, 1, 0, 1.0), adaptation.DomainDetails(2.0)
    left: Any = functools.partial(adaptation.Adaptation, None, None, "Left unchanged: too few.", "", [], texts)
    on("st_extras.adaptation:adapt", left(details, 1.0))
    on("st_extras.adaptation:adapt_search", left(adaptation.SearchDetails(1, True), 1.0))
    on("st_extras.samples:write_samples", [Path("there/text.txt")])
    found = SimpleNamespace(model=ENC, bm25_weight=0.1, language=None, ids=["a", "b"])
    found.search = calls.note(
        "search", lambda queries, top_k, among=None: None, lambda queries, **_: [[] for _ in queries]
    )
    found.save = calls.note("save", lambda path: None, None)
    found.unrelated_similarity = lambda: 0.5
    on("st_extras.search:HybridSearch", found)
    # evaluation
    scores = {"mean": 0.5, "ndcg@10": 0.5, "difference": 0.0, "low": 0.0, "high": 0.0}
    for name in ("LabeledTextEvaluator", "STSEvaluator"):
        on(f"st_extras.evaluation:{name}", EVALUATOR)
    for name in ("compare_labeled", "compare_sts"):
        on(f"st_extras.evaluation.paired:{name}", lambda models, **_: {model: scores for model, _ in models})
    on(
        "st_extras.evaluation:compare_retrieval",
        lambda models, **_: RetrievalComparison({model: scores for model, _ in models}, [], {}),
    )
    for place, data in {
        "sts_data:load_sets": [PAIRS],
        "load_sts": PAIRS,
        "load_labeled_texts": LABELED,
        "load_retrieval": TASK,
        "load_judged": TASK,
    }.items():
        on(f"st_extras.evaluation{'.' if ':' in place else ':'}{place}", data)
    on("st_extras.cli.evaluate:_write_ranks")
    on(
        "st_extras.evaluation:compare_texts",
        lambda models, **_: TextComparison(1, 1, None, {name: {} for name, _ in models}, {}, {}, None),
    )
    return calls


def ran(run: Any, calls: Calls, line: str) -> Calls:
    """Run a command and return what was called."""
    code, _, err = run(*shlex.split(line))
    assert code == 0, err
    return calls


@pytest.mark.parametrize("line", LINES)
def test_the_values_arrive(run, calls, line):
    ran(run, calls, line)
    for call, wanted in LINES[line].items():
        (arguments,) = calls.of(call)
        assert {name: arguments[name] for name in wanted} == wanted, call


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
    """But for what a command gives always: text, tokenizer, source of sets, bars, SLT-FAI's parts, dtype to train."""
    given = {"dtype"} if line.startswith("train") else set()
    given |= {"tokenizer", "source", "show_progress_bar", "base_loss", "warmup_steps", "sentences", "documents", "name"}
    given |= {"no_duplicates"} if "paser" in line else set()
    for call, arguments in ran(run, calls, line).seen:
        if isinstance(arguments.get("options"), AdaptationOptions):
            assert arguments.pop("options") == AdaptationOptions()
        for name in {*arguments} - given:
            default = calls.defaults.get((call, name), inspect.Parameter.empty)
            assert default is inspect.Parameter.empty or arguments[name] in (default, {}), (call, name)


@pytest.mark.parametrize("line", ["search enc beir --queries q.txt", "adapt-search enc beir -o there --queries q.txt"])
def test_the_queries_that_are_given_count_and_not_those_of_the_folder(run, calls, line):
    for name in ("corpus", "queries"):
        write(Path(f"beir/{name}.jsonl"), '{"_id": "a", "text": "one"}\n')
    for words, wanted in ((line, "q.txt"), (line.replace(" --queries q.txt", ""), str(Path("beir/queries.jsonl")))):
        calls.seen.clear()
        read = [given["sources"] for given in ran(run, calls, words).of("read_queries")]
        assert read in ([wanted], [[wanted]])


def test_a_tilde_behind_an_option_is_the_home_folder(run, tmp_path, monkeypatch):
    """Shells leave it to the program there."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    code, _, err = run("search", "ENC", "TEXT", "~ a cat", "--index=~/i.parquet", "--document-prompt=a ~")
    assert (code, [file.name for file in home.iterdir()], Path("~").exists()) == (0, ["i.parquet"], False), err


def test_a_new_index_in_a_folder_that_may_not_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with pytest.raises(ValueError, match=r"^--index must be in a folder that may be written to, got .*i\.parquet'"):
        check_index(tmp_path / "i.parquet")
    (tmp_path / "i.parquet").write_bytes(b"PAR1")
    check_index(tmp_path / "i.parquet")  # which may only be read


@pytest.mark.parametrize(
    "line", ["search enc beir --documents text.csv --documents faq", "adapt-search enc beir text.csv faq -o there"]
)
def test_the_queries_of_every_folder_are_read(run, calls, line):
    for folder in ("beir", "faq"):
        for name in ("corpus", "queries"):
            write(Path(folder, f"{name}.jsonl"), '{"_id": "a", "text": "one"}\n')
    (read,) = ran(run, calls, line).of("read_queries")
    assert read["sources"] == [str(Path(folder, "queries.jsonl")) for folder in ("beir", "faq")]
