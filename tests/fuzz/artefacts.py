"""What the library saves, damaged: loading is refused by the file's name, or gives what can be used."""

import functools
import json
import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

import st_extras
from st_extras import modules
from st_extras.encoders import EmbeddingTable
from st_extras.search import HybridSearch
from st_extras.search.hybrid import Hits
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.changes import spliced
from tests.fuzz.classify import EITHER, REFUSE, Case


class Artefact(NamedTuple):
    """A saved folder, the file in it that is damaged, its loader, and what is wrong with what was loaded."""

    folder: Path
    file: Path
    load: Callable[[Path], Any]
    check: Callable[[Any], str | None]


# --- damage ---

_WRONG = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.integers(), max_size=2),
    st.sampled_from([{}, 10**30, "0.3", [[1]]]),
)  # fmt: skip


@st.composite
def _json_damage(draw: st.DrawFn, content: dict[str, Any]) -> tuple[str, str, bytes]:
    key = draw(st.sampled_from(sorted(content)))
    value, wrong = content[key], draw(_WRONG)
    changed = draw(st.sampled_from(["without", "wrong", "item", "shorter"]))
    if changed == "without":
        content = {other: one for other, one in content.items() if other != key}
    elif changed == "wrong" or not isinstance(value, list) or not value:
        content = content | {key: wrong}
    elif changed == "shorter":
        content = content | {key: value[:-1]}
    else:
        at = draw(st.integers(0, len(value) - 1))
        content = content | {key: [*value[:at], wrong, *value[at + 1 :]]}
    return f"{key} {changed} {wrong!r}", EITHER, json.dumps(content).encode("utf8")


def _tensor_damage(tensors: dict[str, torch.Tensor], name: str) -> dict[str, dict[str, torch.Tensor]]:
    """What must be refused, by its name."""
    tensor = tensors[name]
    found: dict[str, dict[str, torch.Tensor]] = {"surplus": tensors | {"surplus": torch.zeros(2)}}
    found["missing"] = {key: one for key, one in tensors.items() if key != name}
    if tensor.ndim and tensor.numel():
        found["shorter"] = tensors | {name: tensor[:-1].clone()}
        found["of another axis"] = tensors | {name: tensor[None].clone()}
    if tensor.is_floating_point() and tensor.numel():
        for wrong in (math.nan, math.inf):
            changed = tensor.clone()
            changed.view(-1)[-1] = wrong
            found[str(wrong)] = tensors | {name: changed}
        found |= {"whole numbers": tensors | {name: tensor.long()}, "Boolean": tensors | {name: tensor.bool()}}
    return found


@st.composite
def _damaged(draw: st.DrawFn, path: Path) -> tuple[str, str, Callable[[Path], Any]]:
    """The name of a damage, what must come of it, and what makes it."""
    how, data = draw(st.sampled_from(["content", "content", "cut", "spliced", "removed", "text"])), path.read_bytes()
    if how == "content" and path.suffix == ".json":
        name, expected, changed = draw(_json_damage(json.loads(data)))
        return name, expected, lambda file: file.write_bytes(changed)
    if how == "content" and path.suffix == ".safetensors":
        with safe_open(str(path), framework="pt") as opened:
            tensors, metadata = {key: opened.get_tensor(key) for key in opened.keys()}, opened.metadata()  # noqa: SIM118
        tensor = draw(st.sampled_from(sorted(tensors)))
        name, other = draw(st.sampled_from(sorted(_tensor_damage(tensors, tensor).items(), key=lambda item: item[0])))
        return f"{tensor} {name}", REFUSE, lambda file: save_file(other, file, metadata)
    if how == "removed":
        return how, REFUSE, lambda file: file.unlink()
    if how == "text":
        return how, REFUSE, lambda file: file.write_text("not what it should be\n")
    if how == "cut":
        end = draw(st.integers(0, max(0, len(data) - 2)))
        return f"cut at {end}", REFUSE, lambda file: file.write_bytes(data[:end])
    changed = draw(spliced(data))
    return "spliced", EITHER, lambda file: file.write_bytes(changed)


# --- what is saved ---


def _statistics_right(statistics: modules.CorpusStatistics) -> str | None:
    """They are finite, and post-processing can be fitted on them or refuses them."""
    if not bool(statistics.mean.isfinite().all() and statistics.scatter.isfinite().all()) or statistics.count < 0:
        return "not finite"
    with suppress(ValueError):
        module = modules.WhiteningPostProcessor(statistics.embedding_dimension, 4).fit(statistics=statistics)
        return None if bool(module.kernel.isfinite().all()) else "a kernel that is not finite"
    return None


def _copy(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.name == "copy")


def _load(path: Path) -> SentenceTransformer:
    return st_extras.load(str(_copy(path)))


def _hits_right(found: list[Hits]) -> str | None:
    return None if len(found[0]) == len(SENTENCES) and all(math.isfinite(hit["score"]) for hit in found[0]) else "hits"


def _encodes(model: SentenceTransformer) -> str | None:
    found = model.encode(SENTENCES[:2], convert_to_tensor=True)
    return None if bool(found.isfinite().all()) else "embeddings are not finite"


def _lengths_right(vectors: torch.Tensor) -> str | None:
    lengths = vectors.norm(dim=1)
    return None if bool(((lengths - 1).abs() < 0.02).all()) else f"lengths {lengths.min():.3g} to {lengths.max():.3g}"


@functools.cache
def _artefacts() -> dict[str, Artefact]:
    encoder, folder, table = world.encoder(), world.new_folder(), world.new_folder() / "table"
    world.table().save(folder / "table.json")
    modules.CorpusStatistics.compute(encoder, SENTENCES).save(folder / "statistics.safetensors")
    EmbeddingTable.compute(encoder, encoder, SENTENCES, show_progress_bar=False, folder=table)
    load_table = functools.partial(FrequencyTable.load, tokenizer=encoder.tokenizer)
    found = {
        "table": Artefact(folder, Path("table.json"), load_table, lambda t: None if t.num_seen else "empty"),
        "sums": Artefact(folder, Path("statistics.safetensors"), modules.CorpusStatistics.load, _statistics_right),
    }  # fmt: skip
    for file in ("rows.json", "index.bin", "rows.bin"):
        looked_up = lambda path: EmbeddingTable.load(path.parent)(encoder.preprocess(SENTENCES))  # noqa: E731
        found[f"embeddings {file}"] = Artefact(table, Path(file), looked_up, _lengths_right)
    searched = world.new_folder() / "search"
    HybridSearch(encoder, SENTENCES, bm25_weight=0.1).save(searched)
    for path in (path for path in searched.rglob("*") if path.is_file()):
        search = lambda path: HybridSearch.load(_copy(path), encoder).search("a cat")  # noqa: E731
        found[f"search {path.name}"] = Artefact(searched, path.relative_to(searched), search, _hits_right)
    for name, model in {
        "repal": modules.RepALPostProcessor.attach(encoder, lambda_1=0.3, lambda_2=0.5, corpus=SENTENCES),
        "whitening": modules.WhiteningPostProcessor.attach(encoder, dimensions=4, epsilon=0.1, corpus=SENTENCES),
        "sif": modules.SIFPooling.attach(encoder, world.table()),
        "locality": modules.LocalityPreservingPostProcessor.attach(encoder, corpus=world.corpus()[:120]),
    }.items():
        saved = world.new_folder()
        model.save(str(saved))
        for entry in json.loads((saved / "modules.json").read_text()):
            for file in (Path(entry["path"], "config.json"), Path(entry["path"], "model.safetensors")):
                if entry["type"].startswith("st_extras") and entry["path"] and (saved / file).is_file():
                    found[f"{name} {file}"] = Artefact(saved, file, _load, _encodes)
    return found


@st.composite
def _drawn(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(sorted(_artefacts())))
    folder, file, load, check = _artefacts()[name]
    what, expected, damage = draw(_damaged(folder / file))

    def run() -> str | None:
        copy = world.new_folder() / "copy"
        shutil.copytree(folder, copy)
        try:
            damage(copy / file)
            return check(load(copy / file))
        finally:
            shutil.rmtree(copy)

    return Case(f"{name}, {what}", run, expected, ("copy",), lambda wrong: wrong)


def cases() -> st.SearchStrategy[Case]:
    """Every saved file, damaged."""
    return _drawn()
