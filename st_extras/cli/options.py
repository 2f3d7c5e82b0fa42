"""Arguments and options of the commands: their names and help texts. Defaults are set in the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from st_extras.checks import check_count, check_fraction, check_interval, check_not_negative, check_positive

# ------------------------------------------------------------------------------------------- what a number may be


def checked(check: Callable[[str, Any], Any]) -> Callable[[typer.CallbackParam, Any], Any]:
    """Return a callback for ``typer.Option`` that applies ``check`` to the option's name and value, unless None.

    The check raises a ValueError before the command starts, so that nothing is read or made for a wrong number.
    """

    def callback(parameter: typer.CallbackParam, value: Any) -> Any:
        return value if value is None else check(max(parameter.opts, key=len), value)

    return callback


_MOST = 2**31 - 1


def _count(name: str, value: int) -> int:
    return check_count(name, value, 1, _MOST)


def _steps(name: str, value: int) -> int:
    return value if value == -1 else check_count(f"{name}, unless it is -1,", value, 1, _MOST)


AT_LEAST_ONE = checked(_count)
POSITIVE = checked(check_positive)
NOT_NEGATIVE = checked(check_not_negative)
FRACTION = checked(check_fraction)
STEPS = checked(_steps)
DROPOUT = checked(lambda name, value: check_interval(name, value, 0, 1, high_included=False))
LORA = checked(lambda name, value: check_count(name, value, 1, 4096))
MAX_LENGTH = checked(lambda name, value: check_count(name, value, 3, _MOST))
PROCESSES = checked(lambda name, value: check_count(name, value, 1, 1024))
MAX_LINE = checked(lambda name, value: check_count(name, value, 1, 2**30))
SEED = checked(lambda name, value: check_count(name, value, 0, 2**32 - 1))

# ------------------------------------------------------------------------------------------- input and output

LONGEST_LINE = 1_000_000
"""The default of ``--max-line``, that of ``read_sentences``; importing it from there would take seconds."""

Encoder = Annotated[str, typer.Argument(help="Transformer or SentenceTransformer to work on: folder or hub id.")]
AnyEncoder = Annotated[str, typer.Argument(help="Encoder, with or without post-processing: folder or hub id.")]
Text = Annotated[
    list[str],
    typer.Argument(
        help="Files (.txt, .jsonl, .csv, .tsv, .parquet, .json; also .gz), folders, patterns, data set ids or "
        "hf:// paths."
    ),
]
Column = Annotated[str | None, typer.Option(help="Column to read, of all but .txt files; default: the one with text.")]
Limit = Annotated[int | None, typer.Option(help="Use only the first N sentences.", callback=AT_LEAST_ONE)]
MaxLine = Annotated[
    int, typer.Option(help="Longest line of a text file, in bytes; a longer one is refused.", callback=MAX_LINE)
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to save to.")]
Overwrite = Annotated[bool, typer.Option(help="Replace earlier results in --output.")]
Resume = Annotated[bool, typer.Option(help="Continue from the last checkpoint in --output.")]
Force = Annotated[
    bool, typer.Option("--force", help="With --resume: continue although the text or a setting differs, and log it.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Hide progress bars; implied by --json.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

# ------------------------------------------------------------------------------------------- scoring

Sts = Annotated[
    str, typer.Option(help='STS sets: folder, "hub", or a table of yours with columns score, sentence1, sentence2.')
]
Sets = Annotated[
    list[str] | None,
    typer.Option(help="Name of an STS set; repeatable; default: the seven test sets, or the one of a single file."),
]
TrainDev = Annotated[
    str | None,
    typer.Option(help='Data to choose the best weights by: STS source (folder, table, "hub") or "unlabeled".'),
]
DevSet = Annotated[
    str | None,
    typer.Option(help="Name of the labelled set to choose by; default: that of a single file, else stsb_dev."),
]
Test = Annotated[
    str | None, typer.Option(help="STS source whose seven test sets are scored before and after training.")
]

# ------------------------------------------------------------------------------------------- the encoder

MaxLength = Annotated[
    int | None, typer.Option(help="Maximum tokens per sentence; default: the encoder's own.", callback=MAX_LENGTH)
]
Pooling = Annotated[
    str | None, typer.Option(help="cls, mean, max, lasttoken, first-last or last-two; default: the encoder's own.")
]
Layers = Annotated[int | None, typer.Option(help="Number of layers to keep, from the first.", callback=AT_LEAST_ONE)]
Dropout = Annotated[
    float | None, typer.Option(help="Dropout to train with, such as 0.1; default: the encoder's own.", callback=DROPOUT)
]
PromptTemplate = Annotated[
    str | None, typer.Option(help="Text around every sentence, with one {} for the sentence; for decoders.")
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32, bfloat16 or float16: what the weights are loaded as; default: what they were saved as."
    ),
]
LengthBuckets = Annotated[
    int | None,
    typer.Option(
        help="Encode each batch as N groups of similar length, to save padding; try 4.", callback=AT_LEAST_ONE
    ),
]

# ------------------------------------------------------------------------------------------- training

BatchSize = Annotated[int, typer.Option(help="Sentences per step.", callback=AT_LEAST_ONE)]
MiniBatchSize = Annotated[
    int | None,
    typer.Option(
        help="Sentences that the encoder sees at a time, so that a large batch fits into memory; try 64.",
        callback=AT_LEAST_ONE,
    ),
]
LearningRate = Annotated[
    float,
    typer.Option("--learning-rate", "--lr", help="Initial learning rate; decays linearly to 0.", callback=POSITIVE),
]
LossLearningRate = Annotated[
    float | None,
    typer.Option(
        "--loss-learning-rate",
        "--loss-lr",
        help="Initial learning rate of the loss's own parameters (decoder, head); default: --lr.",
        callback=POSITIVE,
    ),
]
Steps = Annotated[int, typer.Option(help="Number of optimizer steps; -1: train for --epochs.", callback=STEPS)]
Epochs = Annotated[float, typer.Option(help="Passes over the text, if --steps is -1.", callback=POSITIVE)]
EvalSteps = Annotated[int, typer.Option(help="Steps between evaluations and checkpoints.", callback=AT_LEAST_ONE)]
Patience = Annotated[
    int | None, typer.Option(help="Stop after N evaluations in a row without improvement.", callback=AT_LEAST_ONE)
]
KeepDuplicates = Annotated[
    bool, typer.Option(help="Allow identical sentences in one batch, where they act as false negatives.")
]
Seed = Annotated[int, typer.Option(help="Random seed for data order, dropout and the loss.", callback=SEED)]
Bf16 = Annotated[bool, typer.Option(help="Use bfloat16 autocast.")]

Lora = Annotated[
    int | None,
    typer.Option(help="Train LoRA adapters of rank N and merge them at the end; try 16. Needs peft.", callback=LORA),
]
GradientCheckpointing = Annotated[
    bool, typer.Option("--gradient-checkpointing", help="Save memory by computing activations twice.")
]

# ------------------------------------------------------------------------------------------- objectives

Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="Setting of the loss, NAME=VALUE, by the name of its argument; repeatable."),
]
Complementary = Annotated[
    str | None,
    typer.Option(help='dclr: complementary encoder, "start" (a frozen copy of ENCODER), or "self".'),
]
Frequencies = Annotated[str | None, typer.Option(help='slt-fai (required): file of token counts, or "wordfreq:en".')]
Base = Annotated[str | None, typer.Option(help="slt-fai: base loss, simcse (default), consert, dclr or adcse.")]
BaseSetting = Annotated[
    list[str] | None, typer.Option("--base-set", help="slt-fai: setting of the base loss, NAME=VALUE; repeatable.")
]
WarmupEpochs = Annotated[
    float | None,
    typer.Option(
        help="slt-fai: epochs with the base loss only; default 0.1, or 0.5 with --base consert.", callback=NOT_NEGATIVE
    ),
]
Phrases = Annotated[
    str | None, typer.Option(help="paser: rake (default), or np, vp, sbar (NLTK's tagger), joined by +.")
]
TopK = Annotated[
    int | None, typer.Option(help="paser: phrases to mask per sentence, one per row; default 3.", callback=AT_LEAST_ONE)
]
Augment = Annotated[
    str | None, typer.Option(help="paser: sr (WordNet synonyms), rd (deletion), rs (swap), joined by +.")
]
Language = Annotated[str | None, typer.Option(help="paser: language of rake's stop words; default english.")]
Processes = Annotated[
    int | None, typer.Option(help="paser: worker processes for extracting phrases.", callback=PROCESSES)
]

# ------------------------------------------------------------------------------------------- adapting

MINUTES = checked(lambda name, value: check_interval(name, value, 0, 10_000, low_included=False))
TEXTS = checked(lambda name, value: check_count(name, value, 500, 50_000))

Minutes = Annotated[
    float, typer.Option(help="How long it may take, about; a slow encoder gets fewer texts.", callback=MINUTES)
]
DrawnTexts = Annotated[int, typer.Option("--limit", help="Use at most N texts, drawn at random.", callback=TEXTS)]
MaxGeneralLoss = Annotated[
    float | None,
    typer.Option(
        help="Points it may lose on pairs of general English (Spearman x 100); default: a fortieth of what it lacks to "
        "100 there.",
        callback=NOT_NEGATIVE,
    ),
]
AnyGeneralLoss = Annotated[
    bool, typer.Option("--any-general-loss", help="Allow any loss there: for encoders used for this text alone.")
]
AdaptTrain = Annotated[bool, typer.Option("--train", help="Try short trainings too, while there is time.")]
AdaptResume = Annotated[bool, typer.Option(help="Continue an interrupted run: what it encoded is used.")]
AdaptDev = Annotated[
    str | None, typer.Option(help='STS source (folder, table, "hub") to choose by; default: the text alone.')
]
AdaptLabeled = Annotated[
    str | None, typer.Option("--labeled", help="File of texts with a column label to choose by, in place of --dev.")
]
EncodingBatch = Annotated[int, typer.Option("--batch-size", help="Texts per forward pass.", callback=AT_LEAST_ONE)]
DrawSeed = Annotated[int, typer.Option("--seed", help="Random seed for which texts are drawn.", callback=SEED)]
