"""Where the values of every option of every command must arrive. See test_options.py."""

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
OTHER_TABLE = FrequencyTable(["a", "b"], [1, 1])
STATISTICS = CorpusStatistics(2)
LOADED = "what load_any returns"
QUERIES = [f"query {i}" for i in range(20)]
"""Queries of a file: as many as the weight of BM25 is found from."""
LABELED = LabeledTexts(["a", "b"], ["one", "two"])
TASK = RetrievalTask({"q": "one"}, {"d": "two"}, {"q": {"d": 1.0}})
PAIRS = STSDataset("pairs", ["a", "b"], ["c", "d"], [0.0, 1.0], ["one", "two"])

Arguments = dict[str, dict[str, Any]]
"""Arguments that arrive, by the call that receives them."""

THERE = {"output": Path("there")}
JSON: Arguments = {"stdout": {"is_json": True}}
READ: Arguments = {"read_sentences": {"column": "body", "max_line": 99}}
ENCODED = {"batch_size": 7, "encode_options": {"device": ["a", "b"], "prompt": "query: "}}
STORED: Arguments = {"save_model": THERE, "check_output": {**THERE, "overwrite": True}}
_READING = "--column body --max-line 99"
_ENCODING = "--batch-size 7 --device a --device b --prompt 'query: '"
_RUNNING = f"{_READING} --output there --limit 600 --minutes 2.5 --batch-size 7 --seed 13 --resume --overwrite --quiet"
RUNNING = {**THERE, "limit": 600, "minutes": 2.5, "batch_size": 7, "seed": 13, "resume": True, "overwrite": True}
RUNNING |= {"show_progress_bar": False}
CHECKED: Arguments = {"check_output": {**THERE, "resume": True, "overwrite": True}}

ROWS: dict[str, dict[str, Arguments]] = {
    "train simcse enc text.csv": {
        "": {"SimCSELoss": {"model": Model("enc")}, "train_encoder": {"model": Model("enc"), "data": corpus()}},
        f"--output there {_READING} --limit 3 --dev D --dev-set X --test T --batch-size 7 --mini-batch-size 5"
        " --learning-rate 0.5 --loss-learning-rate 0.25 --steps 11 --eval-steps 12 --patience 3 --max-length 9"
        " --pooling cls --layers 1 --dropout 0.25 --prompt-template 'a {} b' --dtype bfloat16 --length-buckets 5"
        " --keep-duplicates --set temperature=0.3 --seed 13 --bf16 --lora 8 --gradient-checkpointing --resume --force"
        " --overwrite --quiet": {
            **CHECKED,
            "SimCSELoss": {"mini_batch_size": 5, "temperature": 0.3},
            "sts_evaluator": {"source": "T", "names": SEVEN_STS},
            "use_length_buckets": {"buckets": 5},
            "disable_progress_bars": {"called": True},
            "train_encoder": {
                **THERE,
                "model": Model("enc", "cls", 1, 9, 0.25, "a {} b", "bfloat16"),
                "data": corpus(column="body", limit=3, max_line=99),
                "evaluator": Evaluator("X", "D"),
                "batch_size": 7,
                "learning_rate": 0.5,
                "loss_learning_rate": 0.25,
                "max_steps": 11,
                "eval_steps": 12,
                "patience": 3,
                "no_duplicates": False,
                "seed": 13,
                "bf16": True,
                "lora": 8,
                "gradient_checkpointing": True,
                "resume": True,
                "force": True,
                "overwrite": True,
                "show_progress_bar": False,
            },
        },
        "-o there --lr 0.5 --loss-lr 0.25 --epochs 2.5 --dev unlabeled --json": {
            **JSON,
            "train_encoder": {"learning_rate": 0.5, "loss_learning_rate": 0.25, "epochs": 2.5}
            | {"evaluator": ("unlabeled", corpus()), "show_progress_bar": False},
        },
        "--dev D": {"train_encoder": {"evaluator": Evaluator("stsb_dev", "D")}},
    },
    "train dclr enc text.csv -o out": {
        "": {"DCLRLoss": {"model": Model("enc")}, "train_encoder": {"no_duplicates": True}},
        "--complementary self --mini-batch-size 5": {
            "DCLRLoss": {"complementary_model": "self", "mini_batch_size": 5},
        },
        "--complementary C": {"DCLRLoss": {"complementary_table": ("C", corpus())}},
    },
    "train slt-fai enc text.csv -o out --frequencies f.json": {
        "": {
            "from_file": {"path": "f.json", "tokenizer": Model.tokenizer},
            "SLTFAILoss": {"model": Model("enc"), "frequency_table": TABLE},
            "epochs_to_steps": {"epochs": 0.1},
        },
        "--base dclr --complementary self --base-set threshold=0.3 --set mask_ratio=0.3 --warmup-epochs 0.7"
        " --batch-size 7": {
            "DCLRLoss": {"model": Model("enc"), "complementary_model": "self", "threshold": 0.3},
            "SLTFAILoss": {"mask_ratio": 0.3},
            "epochs_to_steps": {"epochs": 0.7, "batch_size": 7},
        },
    },
    "train slt-fai enc text.csv -o out": {
        "--frequencies wordfreq:de": {
            "from_wordfreq": {"language": "de"},
            "SLTFAILoss": {"frequency_table": OTHER_TABLE},
        }
    },
    "train paser enc text.csv -o out": {
        "": {
            "PaSeRLoss": {"model": Model("enc")},
            "train_encoder": {"no_duplicates": False},
            "PhraseMasking": {"top_k": 3},
        },
        "--phrases np+vp --top-k 5 --augment sr --seed 13 --processes 2": {
            "ChunkPhrases": {"kinds": ["NP", "VP"], "seed": 13},
            "PhraseMasking": {"top_k": 5},
            "EDA": {"synonym_ratio": 0.5, "seed": 13},
            "dataset": {"num_proc": 2},
        },
        "--augment rd+rs --language german": {
            "EDA": {"synonym_ratio": 0.0, "deletion_ratio": 0.1, "swap_ratio": 0.1, "seed": 42},
            "RakePhrases": {"language": "german"},
        },
    },
    "adapt enc text.csv": {
        "": {"adapt": {"model": Model("enc"), "texts": corpus()}},
        f"{_RUNNING} --max-general-loss 0 --train --dev D --dev-set X --prompt P": {
            **READ,
            **CHECKED,
            "load_sts": {"source": "D", "name": "X"},
            "adapt": RUNNING
            | {"max_general_loss": 0.0, "train": True, "dev": PAIRS}
            | {"model": Model("enc", prompts={"text": "P"}, default_prompt_name="text")},
        },
        "-o there --labeled F --text-column t --label-column l --json": {
            **JSON,
            "adapt": {**THERE, "dev": LABELED, "show_progress_bar": False},
            "load_labeled_texts": {"path": "F", "text_column": "t", "label_column": "l"},
        },
        "--dev D --strength gentle": {"load_sts": {"name": "stsb_dev"}, "adapt": {"strength": "gentle"}},
    },
    "adapt-search enc text.csv": {
        "": {"adapt_search": {"model": Model("enc"), "documents": corpus(), "queries": "documents"}},
        f"{_RUNNING} --queries q.txt --keep-index --retrieval F --passages 2 --query-prompt Q --document-prompt D": {
            **READ,
            **CHECKED,
            "read_queries": {"sources": ["q.txt"], "max_line": 99},
            "load_retrieval": {"folder": "F"},
            "passages": {"words": 2},
            "adapt_search": RUNNING
            | {"queries": QUERIES, "keep_index": True, "dev": TASK}
            | {"model": Model("enc", prompts={"query": "Q", "document": "D"})},
        },
        "-o there --json": {**JSON, "adapt_search": {**THERE, "show_progress_bar": False}},
    },
    "search enc text.csv": {
        "": {
            "load_any": {"path": "enc"},
            "read_documents": {"sources": "text.csv"},
            "HybridSearch": {"model": SimpleNamespace(prompts={}), "documents": ["one", "two"]},
        },
        f"--queries q.txt --index i {_READING} --query-prompt Q --document-prompt D --batch-size 7 --quiet": {
            "read_documents": {"column": "body", "max_line": 99},
            "read_queries": {"sources": "q.txt", "max_line": 99},
            "search": {"queries": QUERIES},
            "save search": {"folder": Path("i")},
            "HybridSearch": {"model": SimpleNamespace(prompts={"query": "Q", "document": "D"})}
            | {"queries": QUERIES, "folder": Path("i"), "batch_size": 7, "show_progress_bar": False},
        },
        "cat dog --top-k 3 --bm25-weight 0.5 --json": {
            **JSON,
            "search": {"queries": ["cat", "dog"], "top_k": 3},
            "HybridSearch": {"bm25_weight": 0.5, "show_progress_bar": False},
        },
    },
    "demo": {
        "--output there --steps 3 --seed 13 --overwrite --quiet": {
            "demonstrate": {**THERE, "steps": 3, "seed": 13, "overwrite": True, "show_progress_bar": False},
            "check_output": {**THERE, "overwrite": True},
        },
        "-o there --json": {**JSON, "demonstrate": {**THERE, "show_progress_bar": False}},
        "--files there": {"write_samples": {"folder": Path("there")}},
    },
    "calibrate enc text.csv": {
        "": {"load_any": {"path": "enc"}, "sample_texts": {"texts": corpus()}},
        f"{_READING} --batch-size 7 --prompt 'query: ' --before old --picture p.png --seed 13 --quiet": {
            **READ,
            "encode_pairs": {"batch_size": 7, "prompt": "query: ", "show_progress_bar": False},
            "load_any": {"path": "old"},
            "plot_unrelated_cosines": {"embeddings": ANY},
            "sample_texts": {"seed": 13},
        },
        "--queries q.txt --max-line 99 --seed 13 --json": {
            **JSON,
            "read_queries": {"sources": ["q.txt"], "max_line": 99},
            "sample_queries": {"queries": QUERIES, "seed": 13},
            "encode_pairs": {"queries": QUERIES},
        },
    },
    "doctor": {"--json": JSON},
    "evaluate enc": {
        "": {"load_any": {"path": "enc"}, "sts_evaluator": {"names": SEVEN_STS, "source": "hub"}},
        "--sts D --sets X --sets Y --setting wmean --quiet": {
            "sts_evaluator": {"source": "D", "names": ["X", "Y"], "setting": "wmean", "show_progress_bar": False}
        },
        "--mteb STS12": {"mteb_tasks": {"names": ["STS12"]}, "mteb_scores": {"show_progress_bar": True}},
        "--labeled F --text-column t --label-column l --quiet": {
            "load_labeled_texts": {"path": "F", "text_column": "t", "label_column": "l"},
            "LabeledTextEvaluator": {"labels": LABELED.labels, "show_progress_bar": False},
        },
        "--retrieval F --split dev --query-prompt Q --document-prompt D": {
            "load_retrieval": {"folder": "F", "split": "dev"},
            "compare_retrieval": {"task": TASK, "query_prompt": "Q", "document_prompt": "D"}
            | {"show_progress_bar": True, "bm25": True},
        },
        "--json": {**JSON, "sts_evaluator": {"show_progress_bar": False}},
    },
    "refine whitening enc text.csv": {
        "": {"load_any": {"path": "enc"}, "Whitening.attach": {"model": LOADED, "corpus": corpus()}},
        f"{_READING} {_ENCODING} --output there --set dimensions=3 --set epsilon=0.125 --stock --overwrite": {
            **READ,
            **STORED,
            "Whitening.attach": {**ENCODED, "dimensions": 3, "epsilon": 0.125},
            "with_modules": {"modules": ["plain", "dense"]},
        },
        "-o there --device cpu --json": {
            **JSON,
            "save_model": THERE,
            "Whitening.attach": {"encode_options": {"device": "cpu"}},
        },
    },
    "refine whitening enc -o out": {
        "--statistics s --prompt q:": {
            "statistics": {"path": Path("s")},
            "Whitening.fit": {"statistics": STATISTICS, "encode_options": {"prompt": "q:"}},
        },
    },
    "refine sif enc text.csv -o out": {
        "": {"SIF.attach": {"model": LOADED, "corpus": corpus()}},
        "--set a=0.125": {"SIF.attach": {"a": 0.125}},
    },
    "refine sif enc -o out": {
        "--frequencies f.json": {
            "SIF.fit": {"statistics": TABLE},
            "from_file": {"path": "f.json", "tokenizer": Model.tokenizer},
        },
    },
    "refine repal enc text.csv -o out": {
        "": {"RepAL.attach": {"model": LOADED, "corpus": corpus(), "lambda_2": 1.0}},
        "--batch-size 7 --set lambda_1=0 --set lambda_2=0.125 --set keywords=rake --set redundancy=pooled": {
            "RepAL.attach": {"lambda_1": 0.0, "lambda_2": 0.125, "keywords": "rake", "redundancy": "pooled"}
            | {"batch_size": 7},
        },
    },
    "refine repal enc -o out": {"--statistics s": {"RepAL.fit": {"statistics": STATISTICS}}},
    "repal tune enc --sts sts": {
        "": {"load_any": {"path": "enc"}, "load_sts": {"source": "sts", "name": "stsb_dev"}},
        "--dev-set X --output there --overwrite --sentence-term-only --by-subset": {
            **STORED,
            "load_sts": {"name": "X"},
            "tune": {"lambda_2_grid": [0.0], "groups": PAIRS.subsets},
        },
        "-o there --json": {**JSON, "save_model": THERE},
    },
    "repal evaluate enc": {
        "": {"load_any": {"path": "enc"}, "sts_evaluator": {"names": SEVEN_STS, "source": "hub"}},
        "--sts D --sets X --sets Y --json": {**JSON, "sts_evaluator": {"source": "D", "names": ["X", "Y"]}},
    },
    "statistics compute enc text.csv": {
        "": {"load_any": {"path": "enc"}, "compute": {"sentences": corpus()}},
        f"{_READING} {_ENCODING} --shard 3/16 --output text.csv --overwrite --quiet": {
            "read_sentences": {"column": "body", "max_line": 99, "shard": (3, 16)},
            "compute": {**ENCODED, "show_progress_bar": False},
            "save statistics": {"path": Path("text.csv")},
        },
        "-o there --json": {
            **JSON,
            "save statistics": {"path": Path("there")},
            "compute": {"show_progress_bar": False},
        },
    },
    "statistics merge a.safetensors": {
        "": {"statistics": {"path": Path("a.safetensors")}},
        "--output text.csv --overwrite": {"save statistics": {"path": Path("text.csv")}},
        "-o there --json": {**JSON, "save statistics": {"path": Path("there")}},
    },
    "frequencies count enc text.csv": {
        "": {"tokenizer": {"name": "enc"}, "count": {"texts": corpus()}},
        f"{_READING} --shard 3/16 --processes 2 --add f.json --output text.csv --overwrite --quiet": {
            "read_sentences": {"column": "body", "max_line": 99, "shard": (3, 16)},
            "count": {"num_processes": 2, "show_progress_bar": False},
            "from_file": {"path": Path("f.json")},
            "save": {"path": Path("text.csv")},
        },
        "-o there --add f.json --json": {
            "stdout": {"is_json": True, "tokens": 4},
            "save": {"path": Path("there")},
            "count": {"show_progress_bar": False},
        },
    },
    "frequencies info table.json": {
        "": {"from_file": {"path": Path("table.json")}},
        "--encoder E --ratio 0.25 --json": {
            **JSON,
            "tokenizer": {"name": "E"},
            "from_file": {"tokenizer": Model.tokenizer},
            "labels": {"low_frequency_ratio": 0.25},
        },
    },
}
"""For each command the options added to it ("" for its arguments alone), and what then arrives that did not without.

A command that needs an output and names none here gets one.
"""
