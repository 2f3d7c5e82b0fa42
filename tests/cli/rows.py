"""Where the value of every option of every command must arrive. See test_options.py."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import ANY

from st_extras.evaluation import SEVEN_STS, LabeledTexts, RetrievalTask, STSDataset
from st_extras.modules import CorpusStatistics
from st_extras.text.files import MAX_LINE
from st_extras.text.frequency import FrequencyTable


class Model(NamedTuple):
    """What stands for a loaded encoder: how it was loaded."""

    path: str
    pooling: str | None = None
    layers: int | None = None
    max_seq_length: int | None = None
    dropout: float | None = None
    prompt_template: str | None = None
    dtype: str | None = None
    prompts: dict[str, str] = {}  # noqa: RUF012
    default_prompt_name: str | None = None

    device = "cpu"
    tokenizer = SimpleNamespace(mask_token="[MASK]")


class Evaluator(NamedTuple):
    """What stands for an evaluator: how it was made. Its score is 50."""

    names: Any
    source: str

    primary_metric = "sts12_spearman_cosine"

    def __call__(self, model: Any) -> dict[str, float]:
        return {"sts12_spearman_cosine": 0.5}


def corpus(sources: Any = ("text.csv",), column: Any = None, limit: Any = None, max_line: int = MAX_LINE) -> list[str]:
    """What stands for the sentences: how they were read."""
    return [f"{[str(source) for source in sources]} {column} {limit} {max_line}"]


TABLE = FrequencyTable(["a", "b"], [1, 1])
STATISTICS = CorpusStatistics(2)
LOADED = "what load_any returns"
ASKED = [f"query {i}" for i in range(20)]
"""Queries of a file: as many as the weight of BM25 is found from."""
OTHER_TABLE = FrequencyTable(["a", "b"], [1, 1])
LABELED = LabeledTexts(["a", "b"], ["one", "two"])
TASK = RetrievalTask({"q": "one"}, {"d": "two"}, {"q": {"d": 1.0}})
PAIRS = STSDataset("pairs", ["a", "b"], ["c", "d"], [0.0, 1.0], ["one", "two"])

EDA = {"synonym_ratio": 0.0, "seed": 42}
HIDDEN = {"train_encoder.show_progress_bar": False}

Places = dict[str, Any]
"""Where a value arrives: "call.argument", and what arrives there."""


def _encoding(call: str) -> dict[str, Places]:
    """Options of how a corpus is encoded."""
    return {
        "--batch-size 7": {f"{call}.batch_size": 7},
        "--device a --device b": {f"{call}.encode_options": {"device": ["a", "b"]}},
        "--prompt 'query: '": {f"{call}.encode_options": {"prompt": "query: "}},
    }


JSON = {"stdout.is_json": True}


def _output(*places: str) -> dict[str, Places]:
    """Both ways to say where the result goes."""
    return dict.fromkeys(("--output there", "-o there"), dict.fromkeys(places, Path("there")))


def _running(call: str) -> dict[str, Places]:
    """The options about how both adaptations run."""
    return {
        "--limit 600": {f"{call}.limit": 600},
        "--minutes 2.5": {f"{call}.minutes": 2.5},
        "--batch-size 7": {f"{call}.batch_size": 7},
        "--seed 13": {f"{call}.seed": 13},
        "--resume": {f"{call}.resume": True, "check_output.resume": True},
        "--overwrite": {f"{call}.overwrite": True, "check_output.overwrite": True},
        "--quiet": {f"{call}.show_progress_bar": False},
        "--json": {f"{call}.show_progress_bar": False, **JSON},
    }


READING: dict[str, Places] = {
    "--column body": {"read_sentences.column": "body"},
    "--max-line 99": {"read_sentences.max_line": 99},
}

ROWS: dict[str, dict[str, Places]] = {
    "train simcse enc text.csv": {
        "": {"SimCSELoss.model": Model("enc"), "train_encoder.model": Model("enc"), "train_encoder.data": corpus()},
        **_output("train_encoder.output", "check_output.output"),
        "--column body": {"train_encoder.data": corpus(column="body")},
        "--limit 3": {"train_encoder.data": corpus(limit=3)},
        "--max-line 99": {"train_encoder.data": corpus(max_line=99)},
        "--dev D": {"train_encoder.evaluator": Evaluator("stsb_dev", "D")},
        "--dev unlabeled": {"train_encoder.evaluator": ("unlabeled", corpus())},
        "--dev D --dev-set X": {"train_encoder.evaluator": Evaluator("X", "D")},
        "--test T": {"sts_evaluator.source": "T", "sts_evaluator.names": SEVEN_STS},
        "--batch-size 7": {"train_encoder.batch_size": 7},
        "--mini-batch-size 5": {"SimCSELoss.mini_batch_size": 5},
        "--learning-rate 0.5": {"train_encoder.learning_rate": 0.5},
        "--lr 0.5": {"train_encoder.learning_rate": 0.5},
        "--loss-learning-rate 0.25": {"train_encoder.loss_learning_rate": 0.25},
        "--loss-lr 0.25": {"train_encoder.loss_learning_rate": 0.25},
        "--steps 11": {"train_encoder.max_steps": 11},
        "--epochs 2.5": {"train_encoder.epochs": 2.5},
        "--eval-steps 12": {"train_encoder.eval_steps": 12},
        "--dev D --patience 3": {"train_encoder.patience": 3},
        "--max-length 9": {"train_encoder.model": Model("enc", max_seq_length=9)},
        "--pooling cls": {"train_encoder.model": Model("enc", pooling="cls")},
        "--layers 1": {"train_encoder.model": Model("enc", layers=1)},
        "--dropout 0.25": {"train_encoder.model": Model("enc", dropout=0.25)},
        "--prompt-template 'a {} b'": {"train_encoder.model": Model("enc", prompt_template="a {} b")},
        "--dtype bfloat16": {"train_encoder.model": Model("enc", dtype="bfloat16")},
        "--length-buckets 5": {"use_length_buckets.buckets": 5},
        "--keep-duplicates": {"train_encoder.no_duplicates": False},
        "--set temperature=0.3": {"SimCSELoss.temperature": 0.3},
        "--seed 13": {"train_encoder.seed": 13},
        "--bf16": {"train_encoder.bf16": True},
        "--lora 8": {"train_encoder.lora": 8},
        "--gradient-checkpointing": {"train_encoder.gradient_checkpointing": True},
        "--resume": {"train_encoder.resume": True, "check_output.resume": True},
        "--resume --force": {"train_encoder.force": True},
        "--overwrite": {"train_encoder.overwrite": True, "check_output.overwrite": True},
        "--quiet": {**HIDDEN, "disable_progress_bars.called": True},
        "--json": {**HIDDEN, **JSON},
    },
    "train consert enc text.csv -o out": {
        "": {"ConSERTLoss.model": Model("enc")},
        "--mini-batch-size 5": {"ConSERTLoss.mini_batch_size": 5},
    },
    "train adcse enc text.csv -o out": {
        "": {"AdCSELoss.model": Model("enc")},
        "--mini-batch-size 5": {"AdCSELoss.mini_batch_size": 5},
    },
    "train dclr enc text.csv -o out": {
        "": {"DCLRLoss.model": Model("enc"), "train_encoder.no_duplicates": True},
        "--mini-batch-size 5": {"DCLRLoss.mini_batch_size": 5},
        "--keep-duplicates": {"train_encoder.no_duplicates": False},
        "--complementary self": {"DCLRLoss.complementary_model": "self"},
        "--complementary start": {"DCLRLoss.complementary_model": "start"},
        "--complementary C": {"DCLRLoss.complementary_table": ("C", corpus())},
    },
    "train slt-fai enc text.csv -o out": {
        "--frequencies f.json": {
            "from_file.path": "f.json",
            "from_file.tokenizer": Model.tokenizer,
            "SLTFAILoss.model": Model("enc"),
            "SLTFAILoss.frequency_table": TABLE,
            "epochs_to_steps.epochs": 0.1,
        },
        "--frequencies wordfreq:de": {"from_wordfreq.language": "de", "SLTFAILoss.frequency_table": OTHER_TABLE},
    },
    "train slt-fai enc text.csv -o out --frequencies f.json": {
        "--base dclr": {"DCLRLoss.model": Model("enc")},
        "--base dclr --complementary self": {"DCLRLoss.complementary_model": "self"},
        "--base-set temperature=0.3": {"SimCSELoss.temperature": 0.3},
        "--set mask_ratio=0.3": {"SLTFAILoss.mask_ratio": 0.3},
        "--warmup-epochs 0.7": {"epochs_to_steps.epochs": 0.7},
        "--batch-size 7": {"epochs_to_steps.batch_size": 7},
    },
    "train paser enc text.csv -o out": {
        "": {"PaSeRLoss.model": Model("enc"), "train_encoder.no_duplicates": False, "PhraseMasking.top_k": 3},
        "--phrases np+vp": {"ChunkPhrases.all": {"kinds": ["NP", "VP"], "seed": 42}},
        "--phrases np --seed 13": {"ChunkPhrases.seed": 13},
        "--top-k 5": {"PhraseMasking.top_k": 5},
        "--augment sr": {"EDA.all": EDA | {"synonym_ratio": 0.5}},
        "--augment rd+rs": {"EDA.all": EDA | {"deletion_ratio": 0.1, "swap_ratio": 0.1}},
        "--augment rd --seed 13": {"EDA.all": EDA | {"deletion_ratio": 0.1, "seed": 13}},
        "--language german": {"RakePhrases.language": "german"},
        "--processes 2": {"dataset.num_proc": 2},
    },
    "adapt enc text.csv": {
        "": {"adapt.model": Model("enc"), "adapt.texts": corpus()},
        **READING,
        **_output("adapt.output", "check_output.output"),
        **_running("adapt"),
        "--max-general-loss 0.5": {"adapt.max_general_loss": 0.5},
        "--max-general-loss 0": {"adapt.max_general_loss": 0.0},
        "--train": {"adapt.train": True},
        "--dev D": {"adapt.dev": PAIRS, "load_sts.source": "D", "load_sts.name": "stsb_dev"},
        "--dev D --dev-set X": {"load_sts.name": "X"},
        "--labeled F": {"adapt.dev": LABELED, "load_labeled_texts.path": "F"},
        "--labeled F --text-column t": {"load_labeled_texts.text_column": "t"},
        "--labeled F --label-column l": {"load_labeled_texts.label_column": "l"},
        "--prompt P": {"adapt.model": Model("enc", prompts={"text": "P"}, default_prompt_name="text")},
    },
    "adapt-search enc text.csv": {
        "": {
            "adapt_search.model": Model("enc"),
            "adapt_search.documents": corpus(),
            "adapt_search.queries": "documents",
        },
        **READING,
        **_output("adapt_search.output", "check_output.output"),
        **_running("adapt_search"),
        "--queries q.txt": {"adapt_search.queries": ASKED, "read_queries.sources": ["q.txt"]},
        "--queries q.txt --max-line 99": {"read_queries.max_line": 99},
        "--keep-index": {"adapt_search.keep_index": True},
        "--retrieval F": {"adapt_search.dev": TASK, "load_retrieval.folder": "F"},
        "--passages 2": {"passages.words": 2},
        "--query-prompt Q": {"adapt_search.model": Model("enc", prompts={"query": "Q"})},
        "--document-prompt D": {"adapt_search.model": Model("enc", prompts={"document": "D"})},
    },
    "search enc text.csv": {
        "": {
            "load_any.path": "enc",
            "read_documents.sources": "text.csv",
            "HybridSearch.model": SimpleNamespace(prompts={}),
            "HybridSearch.documents": ["one", "two"],
        },
        "cat dog": {"search.queries": ["cat", "dog"]},
        "--queries q.txt": {"read_queries.sources": "q.txt", "search.queries": ASKED, "HybridSearch.queries": ASKED},
        "cat --top-k 3": {"search.top_k": 3},
        "--index i": {"HybridSearch.folder": Path("i"), "save search.folder": Path("i")},
        "--column body": {"read_documents.column": "body"},
        "--max-line 99": {"read_documents.max_line": 99},
        "--queries q.txt --max-line 99": {"read_queries.max_line": 99},
        "--bm25-weight 0.5": {"HybridSearch.bm25_weight": 0.5},
        "--query-prompt Q": {"HybridSearch.model": SimpleNamespace(prompts={"query": "Q"})},
        "--document-prompt D": {"HybridSearch.model": SimpleNamespace(prompts={"document": "D"})},
        "--batch-size 7": {"HybridSearch.batch_size": 7},
        "--quiet": {"HybridSearch.show_progress_bar": False},
        "cat --json": {"HybridSearch.show_progress_bar": False, **JSON},
    },
    "demo": {
        **_output("demonstrate.output", "check_output.output"),
        "--steps 3": {"demonstrate.steps": 3},
        "--seed 13": {"demonstrate.seed": 13},
        "--overwrite": {"demonstrate.overwrite": True, "check_output.overwrite": True},
        "--files there": {"write_samples.folder": Path("there")},
        "--quiet": {"demonstrate.show_progress_bar": False},
        "--json": {"demonstrate.show_progress_bar": False, **JSON},
    },
    "calibrate enc text.csv": {
        "": {"load_any.path": "enc", "sample_texts.texts": corpus()},
        **READING,
        "--batch-size 7": {"encode_pairs.batch_size": 7},
        "--prompt 'query: '": {"encode_pairs.prompt": "query: "},
        "--before old": {"load_any.path": "old"},
        "--queries q.txt": {"read_queries.sources": ["q.txt"], "sample_queries.queries": ASKED}
        | {"encode_pairs.queries": ASKED},
        "--queries q.txt --seed 13": {"sample_queries.seed": 13},
        "--queries q.txt --max-line 99": {"read_queries.max_line": 99},
        "--quiet": {"encode_pairs.show_progress_bar": False},
        "--picture p.png": {"plot_unrelated_cosines.embeddings": ANY},
        "--seed 13": {"sample_texts.seed": 13},
        "--json": JSON,
    },
    "doctor": {"--json": JSON},
    "evaluate enc": {
        "": {"load_any.path": "enc", "sts_evaluator.names": SEVEN_STS, "sts_evaluator.source": "hub"},
        "--sts D": {"sts_evaluator.source": "D"},
        "--sets X --sets Y": {"sts_evaluator.names": ["X", "Y"]},
        "--setting wmean": {"sts_evaluator.setting": "wmean"},
        "--mteb STS12": {"mteb_tasks.names": ["STS12"], "mteb_scores.show_progress_bar": True},
        "--labeled F": {"load_labeled_texts.path": "F", "LabeledTextEvaluator.labels": LABELED.labels}
        | {"compare_labeled.evaluator": None},
        "--labeled F --text-column t": {"load_labeled_texts.text_column": "t"},
        "--labeled F --label-column l": {"load_labeled_texts.label_column": "l"},
        "--retrieval F": {"load_retrieval.folder": "F", "compare_retrieval.task": TASK}
        | {"compare_retrieval.show_progress_bar": True, "compare_retrieval.bm25": True},
        "--retrieval F --split dev": {"load_retrieval.split": "dev"},
        "--retrieval F --query-prompt Q": {"compare_retrieval.query_prompt": "Q"},
        "--retrieval F --document-prompt D": {"compare_retrieval.document_prompt": "D"},
        "--retrieval F --quiet": {"compare_retrieval.show_progress_bar": False},
        "--labeled F --quiet": {"LabeledTextEvaluator.show_progress_bar": False},
        "--quiet": {"sts_evaluator.show_progress_bar": False},
        "--json": {"sts_evaluator.show_progress_bar": False, **JSON},
    },
    "refine whitening enc text.csv": {
        "": {"load_any.path": "enc", "Whitening.attach.model": LOADED, "Whitening.attach.corpus": corpus()},
        **READING,
        **_encoding("Whitening.attach"),
        "--device cpu": {"Whitening.attach.encode_options": {"device": "cpu"}},
        **_output("save_model.output", "check_output.output"),
        "--set dimensions=3": {"Whitening.attach.dimensions": 3},
        "--set epsilon=0.125": {"Whitening.attach.epsilon": 0.125},
        "--stock": {"with_modules.modules": ["plain", "dense"]},
        "--overwrite": {"check_output.overwrite": True},
        "--json": JSON,
    },
    "refine whitening enc -o out": {
        "--statistics s": {"Whitening.fit.statistics": STATISTICS, "statistics.path": Path("s")},
        "--statistics s --prompt q:": {"Whitening.fit.encode_options": {"prompt": "q:"}},
    },
    "refine all-but-the-top enc text.csv -o out": {
        "": {"AllButTheTop.attach.model": LOADED, "AllButTheTop.attach.corpus": corpus()},
        **_encoding("AllButTheTop.attach"),
        "--set components=0": {"AllButTheTop.attach.components": 0},
        "--stock": {"with_modules.modules": ["plain", "dense"]},
    },
    "refine all-but-the-top enc -o out": {"--statistics s": {"AllButTheTop.fit.statistics": STATISTICS}},
    "refine locality-preserving enc text.csv -o out": {
        "": {"LocalityPreserving.attach.model": LOADED, "LocalityPreserving.attach.corpus": corpus()},
        **_encoding("LocalityPreserving.attach"),
        "--set tfidf=no": {"LocalityPreserving.attach.tfidf": False},
        "--set recolor=0": {"LocalityPreserving.attach.recolor": 0.0},
        "--stock": {"with_modules.modules": ["plain", "dense"]},
    },
    "refine sif enc text.csv -o out": {
        "": {"SIF.attach.model": LOADED, "SIF.attach.corpus": corpus()},
        "--set a=0.125": {"SIF.attach.a": 0.125},
    },
    "refine sif enc -o out": {
        "--frequencies f.json": {
            "SIF.fit.statistics": TABLE,
            "from_file.path": "f.json",
            "from_file.tokenizer": Model.tokenizer,
        },
    },
    "refine repal enc text.csv -o out": {
        "": {"RepAL.attach.model": LOADED, "RepAL.attach.corpus": corpus(), "RepAL.attach.lambda_2": 1.0},
        "--batch-size 7": {"RepAL.attach.batch_size": 7},
        "--set lambda_1=0": {"RepAL.attach.lambda_1": 0.0},
        "--set lambda_2=0.125": {"RepAL.attach.lambda_2": 0.125},
        "--set keywords=rake": {"RepAL.attach.keywords": "rake"},
        "--set redundancy=pooled": {"RepAL.attach.redundancy": "pooled"},
    },
    "refine repal enc -o out": {"--statistics s": {"RepAL.fit.statistics": STATISTICS}},
    "repal tune enc --sts sts": {
        "": {"load_any.path": "enc", "load_sts.source": "sts", "load_sts.name": "stsb_dev"},
        "--dev-set X": {"load_sts.name": "X"},
        **_output("save_model.output", "check_output.output"),
        "--overwrite": {"check_output.overwrite": True},
        "--sentence-term-only": {"tune.lambda_2_grid": [0.0]},
        "--by-subset": {"tune.groups": PAIRS.subsets},
        "--json": JSON,
    },
    "repal evaluate enc": {
        "": {"load_any.path": "enc", "sts_evaluator.names": SEVEN_STS, "sts_evaluator.source": "hub"},
        "--sts D": {"sts_evaluator.source": "D"},
        "--sets X --sets Y": {"sts_evaluator.names": ["X", "Y"]},
        "--json": JSON,
    },
    "statistics compute enc text.csv": {
        "": {"load_any.path": "enc", "compute.sentences": corpus()},
        **READING,
        **_encoding("compute"),
        **_output("save statistics.path"),
        "--shard 3/16": {"read_sentences.shard": (3, 16)},
        "--overwrite -o text.csv": {"save statistics.path": Path("text.csv")},
        "--quiet": {"compute.show_progress_bar": False},
        "--json": {"compute.show_progress_bar": False, **JSON},
    },
    "statistics merge a.safetensors": {
        "": {"statistics.path": Path("a.safetensors")},
        **_output("save statistics.path"),
        "--overwrite -o text.csv": {"save statistics.path": Path("text.csv")},
        "--json": JSON,
    },
    "frequencies count enc text.csv": {
        "": {"tokenizer.name": "enc", "count.texts": corpus()},
        **READING,
        **_output("save.path"),
        "--shard 3/16": {"read_sentences.shard": (3, 16)},
        "--processes 2": {"count.num_processes": 2},
        "--add f.json": {"from_file.path": Path("f.json")},
        "--add f.json --json": {"stdout.tokens": 4},
        "--overwrite -o text.csv": {"save.path": Path("text.csv")},
        "--quiet": {"count.show_progress_bar": False},
        "--json": {"count.show_progress_bar": False, **JSON},
    },
    "frequencies info table.json": {
        "": {"from_file.path": Path("table.json")},
        "--encoder E": {"tokenizer.name": "E", "from_file.tokenizer": Model.tokenizer},
        "--ratio 0.25": {"labels.low_frequency_ratio": 0.25},
        "--json": JSON,
    },
}
"""For each command the words added to it ("" for its arguments), and what then arrives that did not without them.

A command that needs an output and names none here gets one.
"""
