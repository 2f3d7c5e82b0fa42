"""``st-extras adapt``: an encoder made better on text of one's own, or left as it is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_extras.cli import options
from st_extras.cli.console import print_json, print_line, print_table
from st_extras.cli.scoring import dev_name

if TYPE_CHECKING:
    from st_extras.adaptation import Adapted

_ANY = 200.0  # from 100 to -100: a candidate cannot lose more


def adapt(
    encoder: options.Encoder,
    text: options.Text,
    output: options.Output,
    column: options.Column = None,
    limit: options.DrawnTexts = 12_000,
    max_line: options.MaxLine = options.LONGEST_LINE,
    minutes: options.Minutes = 10.0,
    max_general_loss: options.MaxGeneralLoss = None,
    any_general_loss: options.AnyGeneralLoss = False,
    train: options.AdaptTrain = False,
    dev: options.AdaptDev = None,
    dev_set: options.DevSet = None,
    labeled: options.AdaptLabeled = None,
    batch_size: options.EncodingBatch = 64,
    seed: options.DrawSeed = 42,
    resume: options.AdaptResume = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Refine an encoder for your text, without labels, or leave it as it is.

    Linear steps of four strengths, and with --train two short trainings, are tried and judged on texts that they were
    not made from; the gentlest one that gains about as much as the best is saved.
    """
    from st_extras import adaptation
    from st_extras.adaptation.report import COLUMNS, TEXT_FILE
    from st_extras.encoders import load_encoder
    from st_extras.text import corpus

    adaptation.check_adaptation_output(output, resume=resume, overwrite=overwrite)
    chooser = _chooser(dev, dev_set, labeled)
    sentences: Any = corpus.stream_sentences(text, column=column, max_line=max_line)
    adapted = adaptation.adapt(
        load_encoder(encoder),
        sentences,
        output,
        dev=chooser,
        minutes=minutes,
        limit=limit,
        max_general_loss=_ANY if any_general_loss else max_general_loss,
        train=train,
        batch_size=batch_size,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress_bar=not (quiet or as_json),
    )
    if as_json:
        print_json(_summary(adapted, output))
        return
    print_line(_described(adapted.facts))
    if adapted.rows:
        judged = "by the judge, on held-out text (no unit)" if chooser is None else "on the development set, x 100"
        print_table(f"Gain over the start, {judged}", list(COLUMNS), adapted.cells())
    print_line(f'{adapted.reason} Saved to {output}: SentenceTransformer("{output}")')
    if adapted.chosen is not None:
        print_line(f"Neighbours before and after, to read: {output / TEXT_FILE}")


def _chooser(dev: str | None, dev_set: str | None, labeled: str | None) -> Any:
    """Return the labelled data to choose by; None: there are none."""
    from st_extras import evaluation

    if dev is not None and labeled is not None:
        raise ValueError("--dev does not go with --labeled: choose by one of them.")
    if labeled is not None:
        return evaluation.load_labeled_texts(labeled)
    return None if dev is None else evaluation.load_sts(dev_name(dev_set, dev), dev)


def _summary(adapted: Adapted, output: Path) -> dict[str, Any]:
    return {
        "chosen": adapted.chosen,
        "reason": adapted.reason,
        "candidates": [dataclasses.asdict(row) for row in adapted.rows],
        "facts": adapted.facts,
        "seconds": adapted.seconds,
        "output": str(output),
    }


def _described(facts: dict[str, Any]) -> str:
    """Say what was found out about text and encoder."""
    said = f"Text: {facts['read']:,} read, {facts['texts']:,} different ones used, {facts['mean_words']} words each"
    if "near_duplicates" in facts:
        said += f", {facts['near_duplicates']:.0%} near-duplicates. Encoder: mean cosine {facts['mean_cosine']:.2f}"
    if facts.get("general") is not None:
        said += f", {facts['general']:.1f} on general pairs"
    return f"{said}."
