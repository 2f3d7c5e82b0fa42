"""``st-extras train``: arguments in, a loss and its rows, training, a table out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from st_extras.console import Json, Quiet, percent, print_json, show

BASES = ("simcse", "consert", "dclr", "adcse")
OBJECTIVES = (*BASES, "slt-fai", "paser")
UNLABELED = "unlabeled"

Encoder = Annotated[str, typer.Argument(help="Folder or hub id of a transformer or SentenceTransformer.")]
Text = Annotated[list[str], typer.Argument(help=".txt, .jsonl, .csv, .tsv files (also .gz) or data set ids.")]
Column = Annotated[str | None, typer.Option(help="Column of jsonl, csv, tsv and data sets.")]
DevSet = Annotated[str, typer.Option(help="Which set of --dev.")]
BatchSize = Annotated[int, typer.Option(help="Sentences a step.")]
LearningRate = Annotated[float, typer.Option("--learning-rate", "--lr", help="At the start.")]
MaxLength = Annotated[int | None, typer.Option(help="Tokens a sentence; default: the encoder's own.")]
Pooling = Annotated[str | None, typer.Option(help="cls, mean, max, first-last or last-two.")]
Layers = Annotated[int | None, typer.Option(help="Keep the first so many layers.")]
Bf16 = Annotated[bool, typer.Option(help="bfloat16 autocast.")]
Limit = Annotated[int | None, typer.Option(help="Use the first so many sentences.")]


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


def frequency_table(source: str, tokenizer: Any) -> Any:
    """The table that ``--frequencies`` names: a file, or wordfreq:LANGUAGE."""
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


def _loss_maker(
    objective: str,
    sentences: list[str],
    batch_size: int,
    guide: str | None,
    settings: dict[str, Any],
    slt_fai: dict[str, Any],
) -> Callable[[Any], Any]:
    """What makes the loss from the model; a bad ``--base-set`` is refused here, before the encoder is loaded."""
    if objective != "slt-fai":
        return lambda model: _make_loss(objective, model, settings, sentences, guide)
    base = slt_fai["base"] or "simcse"
    base_settings = _settings(slt_fai["base-set"] or [])
    warmup = slt_fai["warmup-epochs"]
    if warmup is None:
        warmup = 0.5 if base == "consert" else 0.1

    def make_loss(model: Any) -> Any:
        from st_extras.losses import epochs_to_steps

        options = {
            "frequency_table": frequency_table(slt_fai["frequencies"], model.tokenizer),
            "base_loss": _make_loss(base, model, base_settings, sentences, guide),
            "warmup_steps": epochs_to_steps(warmup, len(sentences), batch_size),
        }
        return _make_loss(objective, model, options | settings, sentences, None)

    return make_loss


def train(
    objective: Annotated[str, typer.Argument(help=f"What to train with: {', '.join(OBJECTIVES)}.")],
    encoder: Encoder,
    text: Text,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the trained model.")],
    column: Column = None,
    dev: Annotated[
        str | None, typer.Option(help='What chooses the weights: STS source (folder, .tsv, "hub"), or "unlabeled".')
    ] = None,
    dev_set: DevSet = "stsb_dev",
    test: Annotated[str | None, typer.Option(help="STS source of the seven sets, scored before and after.")] = None,
    batch_size: BatchSize = 64,
    learning_rate: LearningRate = 3e-5,
    loss_learning_rate: Annotated[
        float | None, typer.Option("--loss-learning-rate", "--loss-lr", help="Of decoder, discriminators or head.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Optimizer steps; -1: --epochs counts.")] = -1,
    epochs: Annotated[float, typer.Option(help="Passes over the text.")] = 1.0,
    eval_steps: Annotated[int, typer.Option(help="Steps between evaluations and checkpoints.")] = 125,
    patience: Annotated[int | None, typer.Option(help="Stop after so many evaluations without a better one.")] = None,
    max_length: MaxLength = None,
    pooling: Pooling = None,
    layers: Layers = None,
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
    bf16: Bf16 = False,
    length_buckets: Annotated[
        int | None, typer.Option(help="Run a batch as so many groups of like length: less padding (4 is good).")
    ] = None,
    limit: Limit = None,
    resume: Annotated[bool, typer.Option(help="Continue from the last checkpoint in --output.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier training in --output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on unlabeled sentences and save it as a plain SentenceTransformer."""
    from datasets import disable_progress_bars

    from st_extras.evaluation import SEVEN_STS, UnlabeledSelectionEvaluator, sts_evaluator
    from st_extras.modules.length_buckets import use_length_buckets
    from st_extras.modules.loading import load_encoder
    from st_extras.runs import check_output, train_encoder
    from st_extras.text.corpus import read_sentences

    check_output(output, resume=resume, overwrite=overwrite)
    slt_fai = {"frequencies": frequencies, "base": base, "warmup-epochs": warmup_epochs, "base-set": base_set}
    paser = {"phrases": phrases, "top-k": top_k, "augment": augment, "language": language, "processes": processes}
    _check_objective(objective, complementary, slt_fai, paser)
    sentences = read_sentences(text, column=column, limit=limit)
    make_loss = _loss_maker(objective, sentences, batch_size, complementary, _settings(set_ or []), slt_fai)
    evaluator: Any = None
    if dev is not None:
        evaluator = UnlabeledSelectionEvaluator(sentences) if dev == UNLABELED else sts_evaluator(dev_set, dev)
    tester = None if test is None else sts_evaluator(SEVEN_STS, test, write_csv=False)
    model = load_encoder(encoder, pooling=pooling, layers=layers, max_seq_length=max_length)  # type: ignore[arg-type]
    if length_buckets is not None:
        use_length_buckets(model, length_buckets)
    if quiet or as_json:
        disable_progress_bars()
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
        loss_learning_rate=loss_learning_rate,
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
        print_json(report | {"output": str(output), "seconds": run.seconds})
    else:
        _report(before, after, run, output)


def _report(before: dict[str, float], after: dict[str, float], run: Any, output: Path) -> None:
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
