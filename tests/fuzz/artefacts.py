"""What the library saves, damaged: loading is refused by the file's name, or gives what can be used."""

import functools
import json
import math
import shutil
from collections.abc import Callable
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
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.check import EITHER, REFUSE, Case
from tests.fuzz.files import spliced

Damage = tuple[str, str, Callable[[Path], Any]]
"""Its name, what must come of it, and what makes it."""


class Artefact(NamedTuple):
    """A saved folder, the file in it that is damaged, and what loads and uses it: numbers, which must be finite."""

    folder: Path
    file: Path
    use: Callable[[Path], Any]


# --- damage ---

_WRONG = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from([{}, [[1]]])


@st.composite
def _json_damage(draw: st.DrawFn, content: dict[str, Any]) -> Damage:
    key, wrong = draw(st.sampled_from(sorted(content))), draw(_WRONG)
    value, how = content[key], draw(st.sampled_from(["without", "wrong", "item"]))
    if how == "without":
        content = {other: one for other, one in content.items() if other != key}
    elif how == "wrong" or not isinstance(value, list) or not value:
        content = content | {key: wrong}
    else:
        at = draw(st.integers(0, len(value) - 1))
        content = content | {key: [*value[:at], wrong, *value[at + 1 :]]}
    written = json.dumps(content)
    return f"{key} {how} {wrong!r}", EITHER, lambda file: file.write_text(written, "utf8")


@st.composite
def _tensor_damage(draw: st.DrawFn, path: Path) -> Damage:
    with safe_open(str(path), framework="pt") as opened:
        tensors, metadata = {key: opened.get_tensor(key) for key in opened.keys()}, opened.metadata()  # noqa: SIM118
    name = draw(st.sampled_from(sorted(tensors)))
    tensor = tensors[name]
    found = {"surplus": tensors | {"surplus": torch.zeros(2)}}
    found["missing"] = {key: one for key, one in tensors.items() if key != name}
    if tensor.ndim and tensor.numel():
        found["shorter"] = tensors | {name: tensor[:-1].clone()}
        found["of another axis"] = tensors | {name: tensor[None].clone()}
    if tensor.is_floating_point() and tensor.numel():
        infinite = tensor.clone()
        infinite.view(-1)[-1] = math.nan
        found |= {"NaN": tensors | {name: infinite}, "whole numbers": tensors | {name: tensor.long()}}
    how = draw(st.sampled_from(sorted(found)))
    return f"{name} {how}", REFUSE, lambda file: save_file(found[how], file, metadata)


@st.composite
def _damaged(draw: st.DrawFn, path: Path) -> Damage:
    how, data = draw(st.sampled_from(["content", "content", "cut", "spliced", "removed"])), path.read_bytes()
    if how == "content" and path.suffix == ".json":
        return draw(_json_damage(json.loads(data)))
    if how == "content" and path.suffix == ".safetensors":
        return draw(_tensor_damage(path))
    if how == "removed":
        return how, REFUSE, lambda file: file.unlink()
    if how == "cut":
        end = draw(st.integers(0, max(0, len(data) - 2)))
        return f"cut at {end}", REFUSE, lambda file: file.write_bytes(data[:end])
    changed = draw(spliced(data))
    return "spliced", EITHER, lambda file: file.write_bytes(changed)


# --- what is saved ---


def _copy(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.name == "copy")


def _embeddings(path: Path) -> Any:
    return st_extras.load(str(_copy(path))).encode(SENTENCES[:2])


def _whitening(path: Path) -> Any:
    statistics = modules.CorpusStatistics.load(path)
    try:
        return modules.WhiteningPostProcessor(statistics.embedding_dimension, 4).fit(statistics=statistics).kernel
    except ValueError:
        return statistics.mean  # too few texts, for example


@functools.cache
def _artefacts() -> dict[str, Artefact]:
    encoder, folder, table = world.encoder(), world.new_folder(), world.new_folder() / "table"
    world.table().save(folder / "table.json")
    modules.CorpusStatistics.compute(encoder, SENTENCES).save(folder / "statistics.safetensors")
    EmbeddingTable.compute(encoder, encoder, SENTENCES, show_progress_bar=False, folder=table)
    found = {
        "table": Artefact(
            folder, Path("table.json"), lambda path: [FrequencyTable.load(path, encoder.tokenizer).num_seen]
        ),
        "sums": Artefact(folder, Path("statistics.safetensors"), _whitening),
    }
    for file in ("rows.json", "index.bin", "rows.bin"):
        looked_up = lambda path: EmbeddingTable.load(path.parent)(encoder.preprocess(SENTENCES))  # noqa: E731
        found[f"embeddings {file}"] = Artefact(table, Path(file), looked_up)
    searched = world.new_folder() / "search"
    HybridSearch(encoder, SENTENCES, bm25_weight=0.1).save(searched)
    for path in (path for path in searched.rglob("*") if path.is_file()):
        search = lambda path: [h["score"] for h in HybridSearch.load(_copy(path), encoder).search("a cat")[0]]  # noqa: E731
        found[f"search {path.name}"] = Artefact(searched, path.relative_to(searched), search)
    refined: dict[str, SentenceTransformer] = {
        "repal": modules.RepALPostProcessor.attach(encoder, lambda_1=0.3, lambda_2=0.5, corpus=SENTENCES),
        "whitening": modules.WhiteningPostProcessor.attach(encoder, dimensions=4, epsilon=0.1, corpus=SENTENCES),
        "sif": modules.SIFPooling.attach(encoder, world.table()),
    }
    for name, model in refined.items():
        saved = world.new_folder()
        model.save(str(saved))
        for entry in json.loads((saved / "modules.json").read_text()):
            for file in (Path(entry["path"], "config.json"), Path(entry["path"], "model.safetensors")):
                if entry["type"].startswith("st_extras") and entry["path"] and (saved / file).is_file():
                    found[f"{name} {file}"] = Artefact(saved, file, _embeddings)
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Every saved file, damaged."""
    name = draw(st.sampled_from(sorted(_artefacts())))
    folder, file, use = _artefacts()[name]
    what, expected, damage = draw(_damaged(folder / file))

    def run() -> Any:
        copy = world.new_folder() / "copy"
        shutil.copytree(folder, copy)
        try:
            damage(copy / file)
            return use(copy / file)
        finally:
            shutil.rmtree(copy)

    def verify(found: Any) -> str | None:
        return None if bool(torch.as_tensor(found).isfinite().all()) else "what was loaded gives numbers that are not"

    return Case(f"{name}, {what}", run, expected, ("copy",), verify)
