"""``st-extras adapt``: an encoder made better on text of one's own, or left as it is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from st_extras.checks import check_count, check_interval
from st_extras.cli import options
from st_extras.cli.console import print_json, print_line, print_table, shows_bars
from st_extras.cli.evaluate import dev_name, load_labeled

if TYPE_CHECKING:
    from st_extras.adaptation import Adapted

_ANY = 200.0  # from 100 to -100: a candidate cannot lose more
_TEXTS = options.checked(lambda name, value: check_count(name, value, 500, 50_000))
_MINUTES = options.checked(lambda name, value: check_interval(name, value, 0, 10_000, low_included=False))


def adapt(
    context: typer.Context,
    encoder: options.Encoder,
    text: options.Text,
    output: options.Output,
    column: options.Column = None,
    limit: Annotated[int, typer.Option(help="Use at most N texts, drawn at random.", callback=_TEXTS)] = 12_000,
    max_line: options.MaxLine = options.LONGEST_LINE,
    minutes: Annotated[
        float, typer.Option(help="How long it may take, about; a slow encoder gets fewer texts.", callback=_MINUTES)
    ] = 10.0,
    max_general_loss: Annotated[
        float | None,
        typer.Option(
            help="Points it may lose on pairs of general English (Spearman x 100); default: a fortieth of what it "
            "lacks to 100 there.",
            callback=options.NOT_NEGATIVE,
        ),
    ] = None,
    any_general_loss: Annotated[
        bool, typer.Option("--any-general-loss", help="Allow any loss there: for encoders used for this text alone.")
    ] = False,
    train: Annotated[bool, typer.Option("--train", help="Try short trainings too, while there is time.")] = False,
    dev: Annotated[
        str | None, typer.Option(help='STS source (folder, table, "hub") to choose by; default: the text alone.')
    ] = None,
    dev_set: options.DevSet = None,
    labeled: options.Labeled = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = "label",
    search: Annotated[bool, typer.Option("--search", help="Adapt for search: TEXT holds the documents.")] = False,
    queries: Annotated[
        list[str] | None, typer.Option(help="With --search: files of queries; default: made from the documents.")
    ] = None,
    retrieval: Annotated[
        str | None, typer.Option(help="With --search: folder of judged queries (BEIR's layout) to choose by.")
    ] = None,
    keep_index: Annotated[
        bool, typer.Option("--keep-index", help="With --search: change queries alone; stored documents stay valid.")
    ] = False,
    passages: Annotated[
        int | None,
        typer.Option(help="With --search: cut documents into passages of N words.", callback=options.AT_LEAST_ONE),
    ] = None,
    query_prompt: options.QueryPrompt = None,
    document_prompt: options.DocumentPrompt = None,
    prompt: options.Prompt = None,
    batch_size: options.EncodeBatch = 64,
    seed: options.DrawSeed = 42,
    resume: Annotated[bool, typer.Option(help="Continue an interrupted run: what it encoded is used.")] = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Refine an encoder for your text, without labels, or leave it as it is; make one of a language model.

    Linear steps of four strengths, and with --train two short trainings, are tried and judged on texts that they were
    not made from; the gentlest one that gains about as much as the best is saved. With --search, queries and documents
    get steps of their own, which may not make a search worse.
    """
    from st_extras import adaptation, evaluation
    from st_extras.adaptation.report import COLUMNS, SEARCHES, TEXT_FILE
    from st_extras.encoders import load_encoder
    from st_extras.text import corpus

    adaptation.check_adaptation_output(output, resume=resume, overwrite=overwrite)
    if any_general_loss:
        options.refuse_unread(context, "does not go with --any-general-loss", "max_general_loss")
    options.check_column(context, text)
    options.refuse_refined(encoder)
    if search:
        reason = "does not go with --search, which has a judge of its own"
        unread = ["dev", "dev_set", "labeled", "train", "max_general_loss", "any_general_loss", "prompt"]
        options.refuse_unread(context, reason, *unread)
    else:
        unread = ["queries", "retrieval", "keep_index", "passages", "query_prompt", "document_prompt"]
        options.refuse_unread(context, "needs --search", *unread)
    chooser: Any = None
    if labeled is None:
        options.refuse_unread(context, "needs --labeled", "text_column", "label_column")
    if dev is None:
        options.refuse_unread(context, "needs --dev", "dev_set")
    if labeled is not None:
        options.refuse_unread(context, "does not go with --labeled: choose by one of them", "dev", "dev_set")
        chooser = load_labeled(labeled, text_column, label_column)
    elif retrieval is not None:
        chooser = evaluation.load_retrieval(retrieval)
    elif dev is not None:
        chooser = evaluation.load_sts(dev_name(dev_set, dev), dev)
    sentences: Any = corpus.stream_sentences(text, column=column, max_line=max_line)
    asked: Any = None
    if search:
        with options.columns_named("the one with queries must be sentence or text"):
            asked = corpus.read_sentences(queries, max_line=max_line) if queries else "documents"
        sentences = sentences if passages is None else corpus.passages(sentences, passages)
    named: Any = {} if prompt is None else {"prompts": {"text": prompt}, "default_prompt_name": "text"}
    model = load_encoder(encoder, **named)
    prompts = {"query": query_prompt, "document": document_prompt}
    model.prompts.update({name: one for name, one in prompts.items() if one is not None})
    adapted = adaptation.adapt(
        model,
        sentences,
        output,
        dev=chooser,
        queries=asked,
        keep_index=keep_index,
        minutes=minutes,
        limit=limit,
        max_general_loss=_ANY if any_general_loss else max_general_loss,
        train=train,
        batch_size=batch_size,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        show_progress_bar=shows_bars(quiet, as_json),
    )
    if as_json:
        candidates = [dataclasses.asdict(row) for row in adapted.rows]
        report = {"chosen": adapted.chosen, "reason": adapted.reason, "candidates": candidates, "facts": adapted.facts}
        print_json(report | {"seconds": adapted.seconds, "output": str(output)})
        return
    print_line(f'{_result(adapted)} Saved to {output}: SentenceTransformer("{output}")')
    if adapted.chosen is not None:
        shown = SEARCHES if search else TEXT_FILE
        print_line(f"Before and after, to read: {output / shown}. Whether it is better, judgements of yours tell:")
        judged = "--retrieval FOLDER  # BEIR's layout" if search else "--labeled FILE.tsv  # columns label and text"
        print_line(f"st-extras evaluate {encoder} {output} {judged}")
    print_line(_described(adapted.facts))
    if adapted.rows:
        judged = "by the judge, on held-out text (no unit)" if chooser is None else "on the development set, x 100"
        if chooser is None and adapted.rows[0].low is None:  # a language model
            judged = "in words that texts share and graded pairs, x 100"
        judged = "in the average precision of BM25's first documents" if search and chooser is None else judged
        print_table(f"Gain over the start, {judged}", list(COLUMNS), adapted.cells())


def _result(adapted: Adapted) -> str:
    """Say what was done, and what it changes."""
    facts, row = adapted.facts, next((row for row in adapted.rows if row.name == adapted.chosen), None)
    if row is None:
        return adapted.reason
    who = "queries have another first document" if "queries" in facts else "texts have another nearest neighbour"
    said = f"{adapted.reason} {facts['changed']:.0%} of the {who}."
    if row.general is not None:
        said += f" General English: {facts['general']:.1f} -> {row.general:.1f}."
    unrelated = facts.get("unrelated", {})
    if 1000 in unrelated.get("after", {}):
        before, after = (unrelated[side][1000][0] for side in ("before", "after"))
        said += f" 1 in 1,000 pairs of texts has a cosine above {after:.2f}, not {before:.2f}."
    return said


def _described(facts: dict[str, Any]) -> str:
    """Say what was found out about text and encoder."""
    said = f"Text: {facts['read']:,} read, {facts['texts']:,} different ones used"
    if "queries" in facts:
        made = " that were made from them" if facts["made"] else ""
        return f"{said}, {facts['queries']:,} queries{made}."
    said += f", {facts['mean_words']} words each"
    if "near_duplicates" in facts:
        said += f", {facts['near_duplicates']:.0%} near-duplicates. Encoder: mean cosine {facts['mean_cosine']:.2f}"
    if facts.get("general") is not None:
        said += f", {facts['general']:.1f} on general pairs"
    return f"{said}."
