"""One row for every option of every command: where its value must arrive. See test_options.py."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from st_extras.evaluation import SEVEN_STS, LabeledTexts, STSDataset
from st_extras.modules import CorpusStatistics
from st_extras.text.files import MAX_LINE
from st_extras.text.frequency import FrequencyTable


class Row(NamedTuple):
    """An option of a command, and the argument of a call in which its value must arrive.

    Attributes:
        command: the command's words.
        option: the way to write it; an argument has its name.
        value: the word after it; None for a switch.
        call: the name of the recorded call.
        argument: its argument.
        arrives: the value there.
        needs: further words, with and without the option.
        base: the command's words; None: those of COMMANDS.
    """

    command: str
    option: str
    value: str | None
    call: str
    argument: str
    arrives: Any
    needs: tuple[str, ...] = ()
    base: tuple[str, ...] | None = None


class Model(NamedTuple):
    """What stands for a loaded encoder: how it was loaded."""

    path: str
    pooling: str | None = None
    layers: int | None = None
    max_seq_length: int | None = None
    dropout: float | None = None
    prompt_template: str | None = None
    dtype: str | None = None

    device = "cpu"
    tokenizer = SimpleNamespace(mask_token="[MASK]")


class Evaluator(NamedTuple):
    """What stands for an evaluator: how it was made. Its score is 50."""

    names: Any
    source: str

    def __call__(self, model: Any) -> dict[str, float]:
        return {"sts12_spearman_cosine": 0.5}


def corpus(sources: Any = ("text.txt",), column: Any = None, limit: Any = None, max_line: int = MAX_LINE) -> list[str]:
    """What stands for the sentences: how they were read."""
    return [f"{[str(source) for source in sources]} {column} {limit} {max_line}"]


FREQUENCIES = ("--frequencies", "f.json")
TABLE = FrequencyTable(["a", "b"], [1, 1])
STATISTICS = CorpusStatistics(2)
OTHER_TABLE = FrequencyTable(["a", "b"], [1, 1])
LABELED = LabeledTexts(["a", "b"], ["one", "two"])
PAIRS = STSDataset("pairs", ["a", "b"], ["c", "d"], [0.0, 1.0], ["one", "two"])

WITHOUT_TEXT = {f"{group} fit": (group, "fit", "enc", "-o", "out") for group in ("repal", "whiten", "center", "sif")}

SHARED_BY_TRAININGS = [
    ("--column", "body", "data", corpus(column="body")),
    ("--limit", "3", "data", corpus(limit=3)),
    ("--max-line", "99", "data", corpus(max_line=99)),
    ("--max-length", "9", "model", Model("enc", max_seq_length=9)),
    ("--pooling", "cls", "model", Model("enc", pooling="cls")),
    ("--layers", "1", "model", Model("enc", layers=1)),
    ("--dropout", "0.25", "model", Model("enc", dropout=0.25)),
    ("--prompt-template", "a {} b", "model", Model("enc", prompt_template="a {} b")),
    ("--dtype", "bfloat16", "model", Model("enc", dtype="bfloat16")),
    ("--lora", "8", "lora", 8),
    ("--gradient-checkpointing", None, "gradient_checkpointing", True),
    ("--batch-size", "7", "batch_size", 7),
    ("--learning-rate", "0.5", "learning_rate", 0.5),
    ("--lr", "0.5", "learning_rate", 0.5),
    ("--steps", "11", "max_steps", 11),
    ("--eval-steps", "12", "eval_steps", 12),
    ("--seed", "13", "seed", 13),
    ("--bf16", None, "bf16", True),
    ("--overwrite", None, "overwrite", True),
    ("--quiet", None, "show_progress_bar", False),
    ("--json", None, "show_progress_bar", False),
    ("--output", "there", "output", Path("there")),
    ("-o", "there", "output", Path("there")),
    ("encoder", None, "model", Model("enc")),
    ("text", None, "data", corpus()),
]
SHARED_BY_ALL = [
    ("--json", None, "stdout", "is_json", True),
    ("--column", "body", "read_sentences", "column", "body"),
    ("--max-line", "99", "read_sentences", "max_line", 99),
    ("--overwrite", None, "check_output", "overwrite", True),
    ("--output", "there", "check_output", "output", Path("there")),
    ("-o", "there", "check_output", "output", Path("there")),
]


def _train() -> list[Row]:
    def train(*row: Any, objective: str = "simcse", needs: tuple[str, ...] = ()) -> Row:
        return Row("train", *row, needs=needs, base=("train", objective, "enc", "text.txt", "-o", "out"))

    paser = functools.partial(train, objective="paser")
    slt_fai = functools.partial(train, objective="slt-fai")
    eda = {"synonym_ratio": 0.0, "seed": 42}
    return [
        *(train(option, value, "train_encoder", *rest) for option, value, *rest in SHARED_BY_TRAININGS),
        *(train(*row) for row in SHARED_BY_ALL if row[1] is None or row[0] in ("--output", "-o")),
        train("objective", None, "SimCSELoss", "model", Model("enc")),
        train("objective", None, "ConSERTLoss", "model", Model("enc"), objective="consert"),
        train("objective", None, "DCLRLoss", "model", Model("enc"), objective="dclr"),
        train("objective", None, "AdCSELoss", "model", Model("enc"), objective="adcse"),
        slt_fai("objective", None, "SLTFAILoss", "model", Model("enc"), needs=FREQUENCIES),
        paser("objective", None, "PaSeRLoss", "model", Model("enc")),
        train("--mini-batch-size", "5", "SimCSELoss", "mini_batch_size", 5),
        train("--mini-batch-size", "5", "DCLRLoss", "mini_batch_size", 5, objective="dclr"),
        train("--mini-batch-size", "5", "ConSERTLoss", "mini_batch_size", 5, objective="consert"),
        train("--mini-batch-size", "5", "AdCSELoss", "mini_batch_size", 5, objective="adcse"),
        train("--dev", "D", "train_encoder", "evaluator", Evaluator("stsb_dev", "D")),
        train("--dev", "unlabeled", "train_encoder", "evaluator", ("unlabeled", corpus())),
        train("--dev-set", "X", "train_encoder", "evaluator", Evaluator("X", "D"), needs=("--dev", "D")),
        train("--test", "T", "sts_evaluator", "source", "T"),
        train("--test", "T", "sts_evaluator", "names", SEVEN_STS),
        train("--loss-learning-rate", "0.25", "train_encoder", "loss_learning_rate", 0.25),
        train("--loss-lr", "0.25", "train_encoder", "loss_learning_rate", 0.25),
        train("--epochs", "2.5", "train_encoder", "epochs", 2.5),
        train("--patience", "3", "train_encoder", "patience", 3),
        train("--length-buckets", "5", "use_length_buckets", "buckets", 5),
        train("--keep-duplicates", None, "train_encoder", "no_duplicates", False),
        train("--keep-duplicates", None, "train_encoder", "no_duplicates", False, objective="dclr"),
        train("--resume", None, "train_encoder", "resume", True),
        train("--resume", None, "check_output", "resume", True),
        train("--force", None, "train_encoder", "force", True, needs=("--resume",)),
        train("--force", None, "check_output", "force", True, needs=("--resume",)),
        train("--quiet", None, "disable_progress_bars", "called", True),
        train("--set", "temperature=0.3", "SimCSELoss", "temperature", 0.3),
        train("--complementary", "self", "DCLRLoss", "complementary_model", "self", objective="dclr"),
        train("--complementary", "start", "DCLRLoss", "complementary_model", "start", objective="dclr"),
        train("--complementary", "C", "DCLRLoss", "complementary_table", ("C", corpus()), objective="dclr"),
        slt_fai("--frequencies", "f.json", "from_file", "path", "f.json"),
        slt_fai("--frequencies", "f.json", "from_file", "tokenizer", Model.tokenizer),
        slt_fai("--frequencies", "f.json", "SLTFAILoss", "frequency_table", TABLE),
        slt_fai("--frequencies", "wordfreq:de", "from_wordfreq", "language", "de"),
        slt_fai("--frequencies", "wordfreq:de", "SLTFAILoss", "frequency_table", OTHER_TABLE),
        slt_fai("--base", "dclr", "DCLRLoss", "model", Model("enc"), needs=FREQUENCIES),
        slt_fai("--base-set", "temperature=0.3", "SimCSELoss", "temperature", 0.3, needs=FREQUENCIES),
        slt_fai("--set", "mask_ratio=0.3", "SLTFAILoss", "mask_ratio", 0.3, needs=FREQUENCIES),
        slt_fai("--warmup-epochs", "0.7", "epochs_to_steps", "epochs", 0.7, needs=FREQUENCIES),
        slt_fai("--batch-size", "7", "epochs_to_steps", "batch_size", 7, needs=FREQUENCIES),
        paser("--phrases", "np+vp", "ChunkPhrases", "all", {"kinds": ["NP", "VP"], "seed": 42}),
        paser("--seed", "13", "EDA", "seed", 13, needs=("--augment", "rd")),
        paser("--seed", "13", "ChunkPhrases", "seed", 13, needs=("--phrases", "np")),
        paser("--top-k", "5", "PhraseMasking", "top_k", 5),
        paser("--augment", "sr", "EDA", "all", eda | {"synonym_ratio": 0.5}),
        paser("--augment", "rd", "EDA", "all", eda | {"deletion_ratio": 0.1}),
        paser("--augment", "rs", "EDA", "all", eda | {"swap_ratio": 0.1}),
        paser("--augment", "rd+rs", "EDA", "all", eda | {"deletion_ratio": 0.1, "swap_ratio": 0.1}),
        paser("--language", "german", "RakePhrases", "language", "german"),
        paser("--processes", "2", "dataset", "num_proc", 2),
    ]


ROWS: list[Row] = [
    *_train(),
    *(Row("adapt", *row) for row in SHARED_BY_ALL),
    Row("adapt", "encoder", None, "adapt", "model", Model("enc")),
    Row("adapt", "text", None, "adapt", "sentences", corpus()),
    Row("adapt", "--limit", "600", "adapt", "limit", 600),
    Row("adapt", "--minutes", "2.5", "adapt", "minutes", 2.5),
    Row("adapt", "--max-general-loss", "0.5", "adapt", "max_general_loss", 0.5),
    Row("adapt", "--any-general-loss", None, "adapt", "max_general_loss", 200.0),
    Row("adapt", "--dev", "D", "adapt", "dev", PAIRS),
    Row("adapt", "--dev", "D", "load_sts", "source", "D"),
    Row("adapt", "--dev", "D", "load_sts", "name", "stsb_dev"),
    Row("adapt", "--dev-set", "X", "load_sts", "name", "X", ("--dev", "D")),
    Row("adapt", "--labeled", "F", "adapt", "dev", LABELED),
    Row("adapt", "--labeled", "F", "load_labeled_texts", "path", "F"),
    Row("adapt", "--batch-size", "7", "adapt", "batch_size", 7),
    Row("adapt", "--seed", "13", "adapt", "seed", 13),
    Row("adapt", "--output", "there", "adapt", "output", Path("there")),
    Row("adapt", "--train", None, "adapt", "train", True),
    Row("adapt", "--resume", None, "adapt", "resume", True),
    Row("adapt", "--overwrite", None, "adapt", "overwrite", True),
    Row("adapt", "--quiet", None, "adapt", "show_progress_bar", False),
    Row("adapt", "--json", None, "adapt", "show_progress_bar", False),
    Row("demo", "--output", "there", "demonstrate", "output", Path("there")),
    Row("demo", "-o", "there", "demonstrate", "output", Path("there")),
    Row("demo", "--output", "there", "check_output", "output", Path("there")),
    Row("demo", "--sts-dir", "D", "demonstrate", "sts", Path("D")),
    Row("demo", "--steps", "3", "demonstrate", "steps", 3),
    Row("demo", "--seed", "13", "demonstrate", "seed", 13),
    Row("demo", "--overwrite", None, "demonstrate", "overwrite", True),
    Row("demo", "--overwrite", None, "check_output", "overwrite", True),
    Row("demo", "--quiet", None, "demonstrate", "show_progress_bar", False),
    Row("demo", "--json", None, "demonstrate", "show_progress_bar", False),
    Row("demo", "--json", None, "stdout", "is_json", True),
    Row("doctor", "--json", None, "stdout", "is_json", True),
    *(
        row
        for command in ("evaluate", "repal evaluate")
        for row in (
            Row(command, "encoder", None, "load_any", "path", "enc"),
            Row(command, "--sts", "D", "sts_evaluator", "source", "D"),
            Row(command, "--sets", "X", "sts_evaluator", "names", ["X"]),
            Row(command, "--sets", "Y", "sts_evaluator", "names", ["X", "Y"], ("--sets", "X")),
            Row(command, "--json", None, "stdout", "is_json", True),
        )
    ),
    Row("evaluate", "--mteb", "STS12", "mteb_tasks", "names", ["STS12"]),
    Row("evaluate", "--labeled", "F", "load_labeled_texts", "path", "F"),
    Row("evaluate", "--labeled", "F", "LabeledTextEvaluator", "labels", LABELED.labels),
    Row("evaluate", "--quiet", None, "LabeledTextEvaluator", "show_progress_bar", False, ("--labeled", "F")),
    Row("evaluate", "--setting", "wmean", "sts_evaluator", "setting", "wmean"),
    Row("evaluate", "--quiet", None, "sts_evaluator", "show_progress_bar", False),
    Row("evaluate", "--json", None, "sts_evaluator", "show_progress_bar", False),
    *(
        row
        for command, attach in (
            ("repal fit", "RepAL.attach"),
            ("whiten fit", "Whitening.attach"),
            ("center fit", "AllButTheTop.attach"),
            ("locality fit", "LocalityPreserving.attach"),
            ("sif fit", "SIF.attach"),
        )
        for row in (
            *(Row(command, *shared) for shared in SHARED_BY_ALL),
            Row(command, "encoder", None, "load_any", "path", "enc"),
            Row(command, "text", None, attach, "corpus", corpus()),
            Row(command, "--output", "there", "save_model", "output", Path("there")),
        )
    ),
    Row("repal fit", "--lambda-1", "0.125", "RepAL.attach", "lambda_1", 0.125),
    Row("repal fit", "--lambda-2", "0.125", "RepAL.attach", "lambda_2", 0.125),
    Row("repal fit", "--keywords", "rake", "RepAL.attach", "keywords", "rake"),
    Row("repal fit", "--redundancy", "pooled", "RepAL.attach", "redundancy", "pooled"),
    Row("repal fit", "--on-missing-mask", "delete", "RepAL.attach", "on_missing_mask", "delete"),
    Row("whiten fit", "--dimensions", "3", "Whitening.attach", "dimensions", 3),
    *(
        row
        for command, attach in (("whiten fit", "Whitening.attach"), ("center fit", "AllButTheTop.attach"))
        for row in (
            Row(command, "--statistics", "s", attach, "statistics", STATISTICS, base=WITHOUT_TEXT[command]),
            Row(command, "--statistics", "s", "statistics", "path", Path("s"), base=WITHOUT_TEXT[command]),
        )
    ),
    *(
        row
        for command, attach in (
            ("whiten fit", "Whitening.attach"),
            ("center fit", "AllButTheTop.attach"),
            ("locality fit", "LocalityPreserving.attach"),
        )
        for row in (
            Row(command, "--stock", None, "with_modules", "modules", ["plain", "dense"]),
            Row(command, "--batch-size", "7", attach, "batch_size", 7),
            Row(command, "--device", "cpu", attach, "encode_options", {"device": "cpu"}),
            Row(command, "--device", "b", attach, "encode_options", {"device": ["a", "b"]}, ("--device", "a")),
            Row(command, "--prompt", "query: ", attach, "encode_options", {"prompt": "query: "}),
        )
    ),
    *(
        Row("locality fit", f"--{name.replace('_', '-')}", str(value), "LocalityPreserving.attach", name, value)
        for name, value in {
            "neighbors": 7,
            "power": 0.25,
            "recolor": 0.125,
            "epsilon": 0.375,
            "max_sentences": 70,
            "seed": 13,
        }.items()
    ),
    Row("locality fit", "--no-words", None, "LocalityPreserving.attach", "words", False),
    Row("locality fit", "--words", None, "LocalityPreserving.attach", "words", True, ("--no-words",)),
    Row("whiten fit", "--epsilon", "0.125", "Whitening.attach", "epsilon", 0.125),
    Row("center fit", "--components", "3", "AllButTheTop.attach", "components", 3),
    Row("sif fit", "--a", "0.125", "SIF.attach", "a", 0.125),
    Row("sif fit", "--frequencies", "f.json", "SIF.attach", "frequency_table", TABLE, base=WITHOUT_TEXT["sif fit"]),
    Row("sif fit", "--frequencies", "f.json", "from_file", "path", "f.json", base=WITHOUT_TEXT["sif fit"]),
    Row("repal fit", "--statistics", "s", "statistics", "path", Path("s"), base=WITHOUT_TEXT["repal fit"]),
    Row("repal fit", "--statistics", "s", "RepAL.fit", "statistics", STATISTICS, base=WITHOUT_TEXT["repal fit"]),
    Row("statistics compute", "encoder", None, "load_any", "path", "enc"),
    Row("statistics compute", "text", None, "compute", "sentences", corpus()),
    Row("statistics compute", "--column", "body", "read_sentences", "column", "body"),
    Row("statistics compute", "--max-line", "99", "read_sentences", "max_line", 99),
    Row("statistics compute", "--shard", "3/16", "read_sentences", "shard", (3, 16)),
    Row("statistics compute", "--output", "there", "save statistics", "path", Path("there")),
    Row("statistics compute", "-o", "there", "save statistics", "path", Path("there")),
    Row("statistics compute", "--overwrite", None, "save statistics", "path", Path("text.txt"), ("-o", "text.txt")),
    Row("statistics compute", "--batch-size", "7", "compute", "batch_size", 7),
    Row("statistics compute", "--device", "cpu", "compute", "encode_options", {"device": "cpu"}),
    Row("statistics compute", "--prompt", "query: ", "compute", "encode_options", {"prompt": "query: "}),
    Row("statistics compute", "--quiet", None, "compute", "show_progress_bar", False),
    Row("statistics compute", "--json", None, "compute", "show_progress_bar", False),
    Row("statistics compute", "--json", None, "stdout", "is_json", True),
    Row("statistics merge", "files", None, "statistics", "path", Path("a.safetensors")),
    Row("statistics merge", "--output", "there", "save statistics", "path", Path("there")),
    Row("statistics merge", "-o", "there", "save statistics", "path", Path("there")),
    Row("statistics merge", "--overwrite", None, "save statistics", "path", Path("text.txt"), ("-o", "text.txt")),
    Row("statistics merge", "--json", None, "stdout", "is_json", True),
    Row("repal tune", "encoder", None, "load_any", "path", "enc"),
    Row("repal tune", "--sts", "D", "load_sts", "source", "D"),
    Row("repal tune", "--dev-set", "X", "load_sts", "name", "X"),
    Row("repal tune", "--output", "there", "save_model", "output", Path("there")),
    Row("repal tune", "--output", "there", "check_output", "output", Path("there")),
    Row("repal tune", "-o", "there", "save_model", "output", Path("there")),
    Row("repal tune", "--overwrite", None, "check_output", "overwrite", True),
    Row("repal tune", "--sentence-term-only", None, "tune", "lambda_2_grid", [0.0]),
    Row("repal tune", "--by-subset", None, "tune", "groups", PAIRS.subsets),
    Row("repal tune", "--json", None, "stdout", "is_json", True),
    Row("frequencies count", "encoder", None, "tokenizer", "name", "enc"),
    Row("frequencies count", "text", None, "count", "texts", corpus()),
    Row("frequencies count", "--column", "body", "count", "texts", corpus(column="body")),
    Row("frequencies count", "--max-line", "99", "read_sentences", "max_line", 99),
    Row("frequencies count", "--shard", "3/16", "read_sentences", "shard", (3, 16)),
    Row(
        "frequencies count",
        "--max-line",
        "99",
        "count",
        "texts",
        corpus(("text.txt",), "body", max_line=99),
        ("--column", "body"),
    ),
    Row("frequencies count", "--processes", "2", "count", "num_processes", 2),
    Row("frequencies count", "--output", "there.tsv", "save", "path", Path("there.tsv")),
    Row("frequencies count", "-o", "there.tsv", "save", "path", Path("there.tsv")),
    Row("frequencies count", "--add", "f.json", "from_file", "path", Path("f.json")),
    Row("frequencies count", "--add", "f.json", "stdout", "tokens", 4, ("--json",)),
    Row("frequencies count", "--overwrite", None, "save", "path", Path("text.txt"), ("-o", "text.txt")),
    Row("frequencies count", "--quiet", None, "count", "show_progress_bar", False),
    Row("frequencies count", "--json", None, "count", "show_progress_bar", False),
    Row("frequencies count", "--json", None, "stdout", "is_json", True),
    Row("frequencies info", "path", None, "from_file", "path", Path("table.json")),
    Row("frequencies info", "--encoder", "E", "tokenizer", "name", "E"),
    Row("frequencies info", "--encoder", "E", "from_file", "tokenizer", Model.tokenizer),
    Row("frequencies info", "--ratio", "0.25", "labels", "low_frequency_ratio", 0.25),
    Row("frequencies info", "--json", None, "stdout", "is_json", True),
]
