"""Arguments and options of the commands: their names and help texts. Defaults are set in the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# ------------------------------------------------------------------------------------------- input and output

Encoder = Annotated[str, typer.Argument(help="Transformer or SentenceTransformer to train: folder or hub id.")]
AnyEncoder = Annotated[str, typer.Argument(help="Encoder, with or without post-processing: folder or hub id.")]
Text = Annotated[list[str], typer.Argument(help="Text: .txt, .jsonl, .csv, .tsv files (also .gz) or data set ids.")]
Column = Annotated[str | None, typer.Option(help="Column to read from .jsonl, .csv and .tsv files and data sets.")]
Limit = Annotated[int | None, typer.Option(help="Use only the first N sentences.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to save to.")]
Overwrite = Annotated[bool, typer.Option(help="Replace earlier results in --output.")]
Resume = Annotated[bool, typer.Option(help="Continue from the last checkpoint in --output.")]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", help="Hide progress bars, except the one while the model card is written; implied by --json."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

# ------------------------------------------------------------------------------------------- scoring

Sts = Annotated[str, typer.Option(help='Source of the STS sets: folder, .tsv file or "hub".')]
Sets = Annotated[list[str] | None, typer.Option(help="Name of an STS set; repeatable; default: the seven test sets.")]
TrainDev = Annotated[
    str | None,
    typer.Option(help='Data to choose the best weights by: STS source (folder, .tsv, "hub") or "unlabeled".'),
]
RecipeDev = Annotated[
    str | None, typer.Option(help='STS source (folder, .tsv, "hub") to choose by; default: the sentences alone.')
]
DevSet = Annotated[str, typer.Option(help="Name of the labelled set to choose by.")]
Test = Annotated[
    str | None, typer.Option(help="STS source whose seven test sets are scored before and after training.")
]

# ------------------------------------------------------------------------------------------- the encoder

MaxLength = Annotated[int | None, typer.Option(help="Maximum tokens per sentence; default: the encoder's own.")]
Pooling = Annotated[
    str | None, typer.Option(help="cls, mean, max, first-last or last-two; default: the encoder's own.")
]
Layers = Annotated[int | None, typer.Option(help="Number of layers to keep, from the first.")]
LengthBuckets = Annotated[
    int | None, typer.Option(help="Encode each batch as N groups of similar length, to save padding; try 4.")
]

# ------------------------------------------------------------------------------------------- training

BatchSize = Annotated[int, typer.Option(help="Sentences per step.")]
LearningRate = Annotated[
    float, typer.Option("--learning-rate", "--lr", help="Initial learning rate; decays linearly to 0.")
]
LossLearningRate = Annotated[
    float | None,
    typer.Option(
        "--loss-learning-rate",
        "--loss-lr",
        help="Initial learning rate of the loss's own parameters (decoder, head); default: --lr.",
    ),
]
Steps = Annotated[int, typer.Option(help="Number of optimizer steps; -1: train for --epochs.")]
Epochs = Annotated[float, typer.Option(help="Passes over the text, if --steps is -1.")]
EvalSteps = Annotated[int, typer.Option(help="Steps between evaluations and checkpoints.")]
Patience = Annotated[int | None, typer.Option(help="Stop after N evaluations in a row without improvement.")]
KeepDuplicates = Annotated[
    bool, typer.Option(help="Allow identical sentences in one batch, where they act as false negatives.")
]
Seed = Annotated[int, typer.Option(help="Random seed for data order, dropout and the loss.")]
Bf16 = Annotated[bool, typer.Option(help="Use bfloat16 autocast.")]

# ------------------------------------------------------------------------------------------- objectives

Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="Setting of the loss, NAME=VALUE, by the name of its argument; repeatable."),
]
Complementary = Annotated[str | None, typer.Option(help='dclr: complementary encoder, or "self".')]
Frequencies = Annotated[str | None, typer.Option(help='slt-fai (required): file of token counts, or "wordfreq:en".')]
Base = Annotated[str | None, typer.Option(help="slt-fai: base loss, simcse (default), consert, dclr or adcse.")]
BaseSetting = Annotated[
    list[str] | None, typer.Option("--base-set", help="slt-fai: setting of the base loss, NAME=VALUE; repeatable.")
]
WarmupEpochs = Annotated[
    float | None, typer.Option(help="slt-fai: epochs with the base loss only; default 0.1, or 0.5 with --base consert.")
]
Phrases = Annotated[
    str | None, typer.Option(help="paser: rake (default), or np, vp, sbar (NLTK's tagger), joined by +.")
]
TopK = Annotated[int | None, typer.Option(help="paser: phrases to mask per sentence, one per row; default 3.")]
Augment = Annotated[
    str | None, typer.Option(help="paser: sr (WordNet synonyms), rd (deletion), rs (swap), joined by +.")
]
Language = Annotated[str | None, typer.Option(help="paser: language of rake's stop words; default english.")]
Processes = Annotated[int | None, typer.Option(help="paser: worker processes for extracting phrases.")]

# ------------------------------------------------------------------------------------------- the recipe

Augmentations = Annotated[
    str, typer.Option(help='How the two views are made; "dropout+dropout" works with every encoder.')
]
Whiten = Annotated[bool | None, typer.Option(help="Whiten before RepAL; default: if --dev scores better with it.")]
