"""What works on texts: its parameters and what each allows."""

from __future__ import annotations

from st_extras import text
from st_extras.text.corpus import reservoir_sample
from st_extras.text.frequency import FrequencyTable
from tests.conftest import SENTENCES
from tests.fuzz import values as v
from tests.fuzz import world
from tests.fuzz.values import Target


def _is_shard(value: object) -> bool | None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    return None if all(type(part) is int for part in value) else False


def _shard_read(shard: object) -> list[str]:
    """The sentences of a shard: what is read is every count-th sentence."""
    return list(text.stream_sentences(world.root() / "ok.jsonl", shard=shard))  # type: ignore[arg-type]


def _sampled(items: object, count: object, seed: object, distinct: object) -> list[object]:
    """A sample of what was asked for."""
    sample = reservoir_sample(items, count, seed, distinct=distinct)  # type: ignore[arg-type, call-overload]
    assert len(set(sample)) == len(sample) <= int(count)  # type: ignore[call-overload]
    return list(sample)


def text_targets() -> list[Target]:
    """Each extractor, reader and table."""
    words = v.optional(v.function)
    stop = v.optional(v.sentences(0))
    top = v.optional(v.count(1))
    spelled = {"synonyms": {"cat": ["feline"]}}
    return [
        Target(text.JiebaKeywords, {"top_k": top}),
        Target(text.RakeKeywords, {"top_k": top, "stop_words": stop}),
        Target(
            text.TfidfKeywords.fit,
            {"sentences": v.sentences(1), "top_k": top, "stop_words": stop, "max_df": v.either(v.SHARE)},
            {"sentences": SENTENCES},
        ),
        Target(
            text.TfidfKeywords,
            {"idf": v.instance(dict), "unseen_idf": v.NOT_NEGATIVE, "top_k": top, "stop_words": v.sentences(0)},
            {"idf": {"cat": 1.0}, "unseen_idf": 2.0},
        ),
        Target(
            text.RakePhrases,
            {
                "language": v.choice("english", "chinese"),
                "stop_words": stop,
                "words": words,
                "min_words": v.count(1),
                "max_words": top,
            },
        ),
        Target(
            text.ChunkPhrases,
            {"kinds": v.sentences(1), "grammar": v.text, "parse": v.function, "seed": v.seed},
            {"parse": lambda sentence: sentence},
        ),
        Target(text.ChunkPhrases, {"tagger": v.function}, {}),
        Target(
            text.PhraseMasking,
            {
                "extractor": words,
                "top_k": v.count(1),
                "mask_token": v.text,
                "sample": v.boolean,
                "augmentation": words,
                "words": words,
                "column": v.text,
                "seed": v.seed,
            },
        ),
        Target(
            text.EDA,
            {
                "synonym_ratio": v.SHARE,
                "deletion_ratio": v.SHARE,
                "swap_ratio": v.SHARE,
                "stop_words": stop,
                "words": v.function,
                "seed": v.seed,
                "synonyms": v.either(v.optional(v.instance(dict, type, type(len)))),
            },
            spelled,
        ),
        Target(
            text.read_sentences,
            {"limit": top, "column": v.optional(v.text), "shard": v.optional(_is_shard)},
            {"sources": world.root() / "ok.jsonl"},
        ),
        Target(_shard_read, {"shard": v.optional(_is_shard)}, {"shard": (0, 2)}, name="stream_sentences"),
        Target(
            _sampled,
            {"items": v.sentences(0), "count": v.count(1, 2**31 - 1), "seed": v.seed, "distinct": v.boolean},
            {"items": SENTENCES, "count": 3, "seed": 0, "distinct": True},
            name="reservoir_sample",
        ),
        Target(
            FrequencyTable,
            {"tokens": v.sentences(2), "counts": v.numbers(2, v.count(0)), "num_texts": v.count(0)},
            {"tokens": ("a", "b"), "counts": [1, 2]},
        ),
        Target(
            FrequencyTable.count,
            {
                "texts": v.sentences(1),
                "batch_size": v.count(1),
                "show_progress_bar": v.boolean,
                "tokenizer": v.instance(type(world.encoder().tokenizer)),
            },
            {"texts": SENTENCES, "tokenizer": world.encoder().tokenizer},
            name="FrequencyTable.count",
        ),
        Target(
            FrequencyTable.count,
            {"num_processes": v.count(1, 10**4)},
            {"texts": SENTENCES, "tokenizer": world.encoder().tokenizer},
            runs=False,
            name="FrequencyTable.count",
        ),
        Target(world.table().labels, {"low_frequency_ratio": v.FRACTION}, name="FrequencyTable.labels"),
    ]
