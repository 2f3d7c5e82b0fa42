"""What no run wrote is never changed or removed, at any entrance, wherever a job fails."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_extras.adaptation import adapt, adapt_search
from st_extras.files import FILES, MARK, replace_folder
from st_extras.losses import SimCSELoss
from st_extras.training import train_encoder
from st_extras.training.checkpoints import RECORD
from tests.adaptation.texts import TEXTS, quiet
from tests.fixtures import SENTENCES
from tests.helpers import some_fast, write


def train(model: SentenceTransformer, texts: Any, output: Path, **options: Any) -> None:
    settings: dict[str, Any] = {"batch_size": 4, "max_steps": 2, "eval_steps": 1, "show_progress_bar": False}
    train_encoder(model, SimCSELoss, texts, output, **settings, **options)


def adapt_it(model: SentenceTransformer, texts: Any, output: Path, **options: Any) -> None:
    adapt(model, texts, output, **quiet(**options))


def adapt_search_it(model: SentenceTransformer, texts: Any, output: Path, **options: Any) -> None:
    queries = [" ".join(text.split()[:3]) for text in TEXTS]
    adapt_search(model, texts, output, **quiet(queries=queries, **options))


ENTRANCES = [train, adapt_it, adapt_search_it]
NAMES = [
    *("checkpoint-2/model.safetensors", "checkpoint-500/model.safetensors", "eval/a.csv", "runs/events.out.tfevents.1"),
    *("new/a", "replaced/a", "model/config.json", "model.safetensors", "modules.json", "README.md", "1_Pooling/a.json"),
    *("2_Dense/model.safetensors", "adaptation.json", "neighbors.md", "neighbors.png", "searches.md", ".DS_Store"),
    *(RECORD, FILES, MARK, "out.unfinished", "out.checkpoints.txt", "notes/thesis.txt", "trained.safetensors"),
]


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def plant(folder: Path, *, without: tuple[str, ...] = ()) -> None:
    for name in NAMES:
        if name not in without:
            write(folder / name, f"mine: {name}")


def places() -> list[tuple[Any, str]]:
    of_all = itertools.product(ENTRANCES, ("out", ".out.unfinished"))
    return [*of_all, (train, "out.checkpoints")]


@pytest.mark.parametrize(("entrance", "place"), places())
def test_a_folder_of_others_is_refused_before_anything_is_computed(encoder, tmp_path, monkeypatch, entrance, place):
    monkeypatch.setattr(SentenceTransformer, "forward", raising(AssertionError()))
    for without in ((), (FILES,), (RECORD,), (MARK,), (FILES, RECORD, MARK)):
        plant(tmp_path / place, without=without)
        before = contents(tmp_path)
        for options in ({}, {"overwrite": True}, *([{"resume": True}] if entrance is train else [])):
            with pytest.raises(ValueError, match=r"^(output|resume) "):
                entrance(encoder, SENTENCES, tmp_path / "out", **options)
        assert contents(tmp_path) == before


def raising(error: Exception, after: int = 0) -> Callable[..., Any]:
    calls: list[int] = []

    def fail(*arguments: Any, **_: Any) -> Any:
        calls.append(1)
        if len(calls) > after:
            raise error
        return forward(*arguments)

    return fail


forward, save = SentenceTransformer.forward, SentenceTransformer.save


def half_saved(model: SentenceTransformer, path: str, *_: Any, **__: Any) -> None:
    write(Path(path) / "model.safetensors", "half")
    raise KeyError("saving")


def result_half_saved(model: SentenceTransformer, path: str, *arguments: Any, **options: Any) -> None:
    if "checkpoint" in str(path):
        return save(model, path, *arguments, **options)
    return half_saved(model, path)


FAULTS: dict[str, Callable[[], Any]] = {
    "text": lambda: None,
    "encoding, at once": lambda: (SentenceTransformer, "forward", raising(KeyError("encoding"))),
    "encoding, later": lambda: (SentenceTransformer, "forward", raising(KeyError("encoding"), after=1)),
    "saving": lambda: (SentenceTransformer, "save", result_half_saved),
    "saving, a checkpoint": lambda: (SentenceTransformer, "save", half_saved),
    "renaming": lambda: (os, "rename", raising(KeyError("renaming"))),
}
EARLIER = ("no folder", "an empty folder", "a result")
FAST = [(stage, one) for stage in FAULTS for one in EARLIER if one == "a result" or stage in ("text", "renaming")]
"""What is not there yet makes no difference until the last renames."""


@pytest.mark.usefixtures("few_general_pairs")
@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(("stage", "earlier"), some_fast(itertools.product(FAULTS, EARLIER), FAST))
def test_a_job_that_fails_leaves_all_as_it_was(encoder, tmp_path, monkeypatch, entrance, stage, earlier):
    if entrance is not train and stage == "saving, a checkpoint":
        pytest.skip("only a training has checkpoints")
    plant(tmp_path)
    out, checkpoints = tmp_path / "out", tmp_path / "out.checkpoints"
    if earlier == "a result":
        with replace_folder(out) as folder:
            write(folder / "1_Pooling" / "config.json", "{}")
            write(folder / "model.safetensors", "model")
    elif earlier == "an empty folder":
        out.mkdir()
    before = contents(tmp_path)
    enough = TEXTS if "encoding" in stage and "adapt" in entrance.__name__ else SENTENCES  # of a few, none is encoded
    fault, texts = FAULTS[stage](), enough if stage != "text" else [SENTENCES[0], None, *SENTENCES[1:]]
    if fault is not None:
        monkeypatch.setattr(*fault)
    with pytest.raises((KeyError, ValueError), match=stage.split(",")[0] if fault else "None"):
        entrance(encoder, texts, out, overwrite=True)
    left = {path: content for path, content in contents(tmp_path).items() if checkpoints not in (path, *path.parents)}
    assert left == before
    resumable = entrance is train and stage in ("encoding, later", "saving", "renaming")
    assert checkpoints.exists() == resumable
