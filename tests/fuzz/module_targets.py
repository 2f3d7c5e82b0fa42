"""Post-processing and its statistics: their parameters and what each allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from st_extras import losses, modules
from st_extras.encoders import EmbeddingTable
from st_extras.text.frequency import FrequencyTable
from tests.conftest import SENTENCES
from tests.fuzz import values as v
from tests.fuzz import world
from tests.fuzz.values import Target

_MODEL = v.instance(SentenceTransformer)
_TABLE = v.optional(v.instance(FrequencyTable))


def _rows(value: object) -> bool | None:
    """Embeddings of two dimensions: a tensor, an array or a list of them; lists of nothing may do."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return None if isinstance(value, list | tuple) and all(isinstance(row, list) for row in value) else False
    return None if len(shape) == 2 and shape[1] == 4 else False


def _updated(embeddings: object) -> modules.CorpusStatistics:
    return modules.CorpusStatistics(4).update(embeddings)


def _computed(**arguments: Any) -> EmbeddingTable:
    """Folders that are named by text lie in a new folder, not in the one that the fuzzer is run from."""
    folder = arguments.get("folder")
    if isinstance(folder, str | Path):
        arguments["folder"] = f"{world.new_folder()}/{folder}"
    return EmbeddingTable.compute(world.encoder(), world.encoder(), show_progress_bar=False, **arguments)


def _merged(tables: object) -> EmbeddingTable:
    return EmbeddingTable.merge(tables, world.new_folder() / "merged")  # type: ignore[arg-type]


def _is_path(value: object) -> bool | None:
    """A place for a new folder: nothing else of that name is there."""
    return None if value is None or isinstance(value, str | Path) else False


def module_targets() -> list[Target]:
    """The members of the post-processing family, what they are fitted on, and tables of a guide."""
    model, corpus = {"model": world.encoder()}, {"corpus": SENTENCES[:6]}
    some = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    table = {"frequency_table": world.table()}
    repal = modules.RepALPostProcessor.attach(world.encoder(), lambda_1=0.0, lambda_2=0.5)
    statistics: dict[str, v.Domain] = {"statistics": lambda value: False}
    options = v.optional(v.either(v.instance(dict)))
    return [
        Target(
            modules.AllButTheTopPostProcessor,
            {
                "embedding_dimension": v.count(1, 10**6),
                "components": v.optional(v.either(v.count(0, 7))),
                "corpus_size": v.count(0),
            },
            {"embedding_dimension": 8},
        ),
        Target(
            modules.AllButTheTopPostProcessor.attach,
            {
                "model": _MODEL,
                "components": v.optional(v.either(v.count(0, 15))),
                "batch_size": v.count(1),
                "corpus": v.optional(v.sentences(2)),
                "encode_options": options,
            },
            model | corpus,
            name="AllButTheTop.attach",
        ),
        Target(modules.AllButTheTopPostProcessor.attach, statistics, dict(model), name="AllButTheTop.attach"),
        Target(modules.RepALPostProcessor.fit, statistics, {"self": repal[-1]}, name="RepAL.fit"),
        Target(
            modules.SIFPooling,
            {
                "frequency_table": _TABLE,
                "a": v.real(1e-9, 1, closed=(True, True), usual=(1e-9, 1)),
                "include_prompt": v.boolean,
                "embedding_dimension": v.optional(v.count(1, 10**6)),
                "vocabulary_size": v.optional(v.count(1, 2**24)),
                "corpus_size": v.count(0),
            },
            {},
        ),
        Target(
            modules.SIFPooling.attach,
            {"model": _MODEL, "frequency_table": _TABLE, "a": v.real(1e-9, 1, closed=(True, True), usual=(1e-9, 1))},
            model | table,
            name="SIFPooling.attach",
        ),
        Target(
            modules.SIFPooling.attach, {"corpus": v.optional(v.sentences(1))}, dict(model), name="SIFPooling.attach"
        ),
        Target(modules.CorpusStatistics, {"embedding_dimension": v.count(1, 10**6)}, {"embedding_dimension": 4}),
        Target(
            modules.CorpusStatistics.compute,
            {
                "model": _MODEL,
                "sentences": v.sentences(1),
                "batch_size": v.count(1),
                "show_progress_bar": v.boolean,
                "encode_options": options,
            },
            model | {"sentences": SENTENCES[:4]},
            name="CorpusStatistics.compute",
        ),
        Target(_updated, {"embeddings": _rows}, {"embeddings": some}, name="CorpusStatistics.update"),
        Target(
            losses.IncompleteSentenceFilteringLoss,
            {"on_missing_mask": v.choice("error", "delete")},
            model | table,
            name="on_missing_mask of IncompleteSentenceFilteringLoss",
        ),
        Target(
            losses.SLTFAILoss,
            {"on_missing_mask": v.choice("error", "delete")},
            model | table,
            name="on_missing_mask of SLTFAILoss",
        ),
        Target(
            _computed,
            {
                "sentences": v.sentences(1),
                "batch_size": v.count(1),
                "prompt": v.optional(v.text),
                "folder": _is_path,
                "dtype": lambda value: value in ("float32", "float16") if isinstance(value, str) else False,
                "encode_options": options,
            },
            {"sentences": SENTENCES[:3]},
            name="EmbeddingTable.compute",
        ),
        Target(_merged, {"tables": lambda value: False}, {}, name="EmbeddingTable.merge"),
    ]
