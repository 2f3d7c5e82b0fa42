"""What the library saves, damaged: loading is refused by the file's name, or gives what can be used."""

import functools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from st_extras.search import HybridSearch
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.check import EITHER, REFUSE, fuzz, outcome
from tests.fuzz.test_files import spliced

Artefact = tuple[Path, str, Callable[[Path], Any]]
"""A saved folder, the file in it that is damaged, and what loads a copy and uses it: numbers, which must be finite."""

# --- damage ---

_WRONG = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from([{}, [[1]]])


def damage(draw: Callable[[st.SearchStrategy[Any]], Any], file: Path) -> str:
    """Damage a file; return what must come of it."""
    how, data = draw(st.sampled_from(["content", "content", "cut", "spliced", "removed"])), file.read_bytes()
    if how == "content" and file.suffix == ".json":
        file.write_text(json.dumps(draw(_other_json(json.loads(data)))), "utf8")
        return EITHER
    if how == "content" and file.suffix == ".safetensors":
        with safe_open(str(file), framework="pt") as opened:
            tensors, metadata = {key: opened.get_tensor(key) for key in opened.keys()}, opened.metadata()  # noqa: SIM118
        save_file(draw(_other_tensors(tensors)), file, metadata)
    elif how == "cut":
        file.write_bytes(data[: draw(st.integers(0, max(0, len(data) - 2)))])
    elif how == "removed":
        file.unlink()
    else:
        file.write_bytes(draw(spliced(data)))
        return EITHER
    return REFUSE


@st.composite
def _other_json(draw: st.DrawFn, content: dict[str, Any]) -> dict[str, Any]:
    """A value is missing, is another or, in a list, has another item."""
    key, wrong = draw(st.sampled_from(sorted(content))), draw(_WRONG)
    value, how = content[key], draw(st.sampled_from(["without", "wrong", "item"]))
    if how == "without":
        return {other: one for other, one in content.items() if other != key}
    if how == "item" and isinstance(value, list) and value:
        at = draw(st.integers(0, len(value) - 1))
        wrong = [*value[:at], wrong, *value[at + 1 :]]
    return content | {key: wrong}


@st.composite
def _other_tensors(draw: st.DrawFn, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A tensor is missing, too much, or of another shape, type or value."""
    name = draw(st.sampled_from(sorted(tensors)))
    tensor = tensors[name]
    found = [{}, {"surplus": torch.zeros(2), name: tensor}]
    if tensor.ndim and tensor.numel():
        found += [{name: tensor[:-1].clone()}, {name: tensor[None].clone()}]
    if tensor.is_floating_point() and tensor.numel():
        infinite = tensor.clone()
        infinite.view(-1)[-1] = math.nan
        found += [{name: infinite}, {name: tensor.long()}]
    return {key: one for key, one in tensors.items() if key != name} | draw(st.sampled_from(found))


# --- what is saved ---


@functools.cache
def _artefacts() -> dict[str, Artefact]:
    encoder, folder = world.encoder(), world.new_folder()
    world.table().save(folder / "table.json")
    searched = world.new_folder() / "search.parquet"
    HybridSearch(encoder, SENTENCES, bm25_weight=0.1).save(searched)

    def counted(copy: Path) -> Any:
        return [FrequencyTable.load(copy / "table.json", encoder.tokenizer).num_seen]

    def search(copy: Path) -> Any:
        return [hit["score"] for hit in HybridSearch.open(copy / searched.name, encoder).search("a cat")[0]]

    found: list[Artefact] = [
        (folder, "table.json", counted),
        (searched.parent, searched.name, search),
    ]
    return {f"{folder.name}/{file}": (folder, file, use) for folder, file, use in found}


@fuzz(15, 400, data=st.data())
def test_a_saved_file_that_was_damaged(data):
    folder, file, use = _artefacts()[data.draw(st.sampled_from(sorted(_artefacts())), "artefact")]
    copy = shutil.copytree(folder, world.new_folder() / "copy")
    expected = damage(data.draw, copy / file)

    def verify(found: Any) -> str | None:
        return None if bool(torch.as_tensor(found).isfinite().all()) else "what was loaded gives numbers that are not"

    return outcome(lambda: use(copy), "copy", expected=expected, verify=verify)
