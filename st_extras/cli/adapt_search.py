"""``st-extras adapt-search``: refine an encoder for searching a collection, or leave it unchanged."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from st_extras.checks import counted
from st_extras.cli import options
from st_extras.cli.adapt import print_candidates, print_choice, texts_used
from st_extras.cli.console import print_json, print_line, shows_bars

_RULE = (
    "Rule: the first candidate that is not worse than the base model by more than one standard error is chosen. BM25 "
    "shows harm, not how much better a search is."
)


def adapt_search(
    context: typer.Context,
    encoder: options.Encoder,
    documents: Annotated[
        list[str],
        typer.Argument(
            help="The documents: files, folders (also in BEIR's layout), patterns or data set ids.",
            callback=options.find_texts,
        ),
    ],
    output: options.Output,
    queries: Annotated[
        list[str] | None,
        typer.Option(
            help="File of queries; repeatable; default: those of a folder in BEIR's layout, or sentences of the "
            "documents."
        ),
    ] = None,
    keep_index: Annotated[
        bool, typer.Option("--keep-index", help="Change queries alone: stored embeddings of documents stay valid.")
    ] = False,
    retrieval: Annotated[
        str | None, typer.Option(help="Folder of judged queries (BEIR's layout) to choose by; default: BM25.")
    ] = None,
    language: options.Language = None,
    passages: options.Passages = None,
    query_prompt: options.QueryPrompt = None,
    document_prompt: options.DocumentPrompt = None,
    column: options.Column = None,
    whole_files: options.WholeFiles = False,
    query_column: options.QueryColumn = None,
    limit: options.Limit = 12_000,
    minutes: options.Minutes = None,
    batch_size: options.EncodeBatch = 64,
    seed: options.DrawSeed = 42,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Refine an encoder for searching your documents, without relevance judgements, or leave it unchanged.

    Queries and documents are centred and whitened halfway; the result has a route for each, encode_query and
    encode_document. The exit code is 0 also if the encoder is left unchanged; --json then has "changed": false.

    Example: st-extras adapt-search ENCODER documents.jsonl --queries queries.txt -o adapted
    """
    from st_extras import evaluation
    from st_extras.files import check_output
    from st_extras.text.corpus import stream_sentences

    check_output(output, overwrite=overwrite)
    options.check_column(context, documents)
    if not queries:
        options.refuse_unread(context, "needs --queries", "query_column")
    options.refuse_refined(encoder)
    judged: Any = None if retrieval is None else evaluation.load_retrieval(retrieval)
    texts: Any = stream_sentences(documents, column=column, whole_files=whole_files)
    wanted = options.read_given_queries(queries, documents, query_column)

    from st_extras import adaptation  # below: torch, which takes seconds
    from st_extras.encoders import load_encoder

    model = load_encoder(encoder)
    options.set_prompts(model, query_prompt, document_prompt)
    adapted = adaptation.adapt_search(
        model,
        texts,
        output,
        queries=wanted,
        dev=judged,
        keep_index=keep_index,
        language=language,
        passages=options.passage_words(passages),
        options=adaptation.AdaptationOptions(
            minutes=minutes,
            limit=limit,
            batch_size=batch_size,
            seed=seed,
            overwrite=overwrite,
            show_progress_bar=shows_bars(quiet, as_json),
        ),
    )
    if as_json:
        print_json(adapted.as_json() | {"output": str(output)})
        return
    print_choice(adapted, output)
    chosen, details = adapted.chosen_result, adapted.details
    if chosen is not None:
        print_line(f"Gain over the base model: {chosen.gain:+.3f} ({adapted.gain_measure}).")
        print_line(f"{details.changed:.0%} of the queries have another first document.")
    made = " made from them" if details.made_from_documents else ""
    print_line(f"Documents: {texts_used(adapted.texts)}; {counted(details.queries, 'query', 'queries')}{made}.")
    if chosen is not None:
        known = [folder for folder in (retrieval, *documents) if folder and Path(folder, "qrels").is_dir()]
        searches = output / "searches.md"
        print_line(f"Before and after, to read: {searches}. Whether it is better, your own judgements show:")
        tried = ["st-extras", "evaluate", encoder, str(output), "--retrieval", known[0] if known else "FOLDER"]
        print_line(shlex.join(tried))
    print_candidates(adapted)
    if adapted.candidates and judged is None:
        print_line(_RULE)
    weight = details.bm25_weight
    if weight is not None:
        print_line(f"Hybrid search: score = {adapted.model.similarity_fn_name} + {weight:.4g} x BM25.")
    elif adapted.texts.used < adapted.texts.read:
        print_line("Hybrid search: the search finds its weight of BM25, as not all documents were used here.")
    given = {"--column": column, "--language": language, "--passages": passages}  # with which the weight was found
    more = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    more += ["--whole-files"] if whole_files else []
    more += [word for source in documents[1:] for word in ("--documents", source)]
    read = [documents[0], *more]
    where = shlex.join([str(output), *read])
    by = "" if weight is None else f" --bm25-weight {weight:.4g}"  # without it, search finds the one of all documents
    print_line(f'st-extras search {where} "your query"{by}')
