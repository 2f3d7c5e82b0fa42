"""What the library saves, damaged: loading is refused by the file's name, or gives what the file holds."""

import contextlib
import functools
import json
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments

import st_extras
from st_extras import losses, modules
from st_extras.encoders import EmbeddingTable, load_encoder
from st_extras.text.frequency import FrequencyTable
from st_extras.training import LossStateCallback
from st_extras.training.loss_state import FILE_NAME
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.classify import REFUSE, Case
from tests.fuzz.damage import Change, changes


def _table_right(path: Path, table: FrequencyTable) -> str | None:
    stored = json.loads(path.read_bytes().decode("utf8"))
    if table.tokens != world.table().tokens:
        return "another vocabulary"
    return None if table.counts.tolist() == stored["counts"] and min(stored["counts"]) >= 0 else "other counts"


@functools.cache
def _models() -> dict[str, Path]:
    """Saved models, each with its own module last: its folder is what is damaged."""
    encoder = world.encoder()
    models = {
        "repal": modules.RepALPostProcessor.attach(encoder, lambda_1=0.3, lambda_2=0.5, corpus=SENTENCES),
        "whitening": modules.WhiteningPostProcessor.attach(encoder, dimensions=4, epsilon=0.1, corpus=SENTENCES),
        "all but the top": modules.AllButTheTopPostProcessor.attach(encoder, components=2, corpus=SENTENCES),
        "sif": modules.SIFPooling.attach(encoder, world.table()),
        "locality": modules.LocalityPreservingPostProcessor.attach(encoder, corpus=world.corpus()[:120]),
    }
    for name, model in models.items():
        model.save(str(world.root() / name))
    return {name: world.root() / name for name in models}


def _statistics_right(path: Path, statistics: modules.CorpusStatistics) -> str | None:
    """They are finite, and post-processing can be fitted on them or says why not."""
    if not bool(statistics.mean.isfinite().all() and statistics.scatter.isfinite().all()) or statistics.count < 0:
        return "not finite"
    with contextlib.suppress(ValueError):
        module = modules.WhiteningPostProcessor(statistics.embedding_dimension, 4).fit(statistics=statistics)
        return None if bool(module.kernel.isfinite().all()) else "a kernel that is not finite"
    return None


def _looked_up(path: Path) -> torch.Tensor:
    """Open the folder of a table, and look all its sentences up."""
    return EmbeddingTable.load(path.parent)(world.encoder().preprocess(SENTENCES))


def _vectors_right(path: Path, vectors: torch.Tensor) -> str | None:
    norms = vectors.norm(dim=1)
    return None if bool(((norms - 1).abs() < 0.02).all()) else f"norms {norms.min():.3g} to {norms.max():.3g}"


def _load(path: Path) -> SentenceTransformer:
    return st_extras.load(str(next(folder for folder in path.parents if folder.name == "copy")))


def _encodes(model: SentenceTransformer) -> str | None:
    """Finite embeddings that a change of the module moves only as far as a bit of it can."""
    embeddings = model.encode(SENTENCES[:2], convert_to_tensor=True)
    return None if bool(embeddings.isfinite().all()) else "embeddings are not finite"


@functools.cache
def _trainer(name: str) -> SentenceTransformerTrainer:
    model = load_encoder(world.encoder_folder())
    makers: dict[str, Callable[[], torch.nn.Module]] = {
        "dclr": lambda: losses.DCLRLoss(model, projection=True),
        "adcse": lambda: losses.AdCSELoss(model, num_adversaries=3),
        "slt-fai": lambda: losses.SLTFAILoss(model, frequency_table=world.table()),
    }
    output = str(world.root() / f"run-{name}")
    args = SentenceTransformerTrainingArguments(output_dir=output, report_to="none", use_cpu=True)
    data = Dataset.from_dict({"sentence": SENTENCES})
    trainer = SentenceTransformerTrainer(model, args=args, train_dataset=data, loss=makers[name]())
    callback = LossStateCallback.attach(trainer)
    callback.on_save(args, trainer.state, trainer.control)
    trainer.fuzzed = callback  # type: ignore[attr-defined]
    return trainer


def _restore(name: str, path: Path) -> str:
    """Restore a loss: what is wrong with it afterwards, after an error too, which must leave it as it was."""
    callback: LossStateCallback = _trainer(name).fuzzed  # type: ignore[attr-defined]
    before = {key: value.detach().clone() for key, value in callback._state().items()}
    try:
        callback.restore(path.parent)
    except Exception:
        if any(not torch.equal(before[key], value) for key, value in callback._state().items()):
            return "an error left the loss half restored"
        raise
    found = callback._state()
    bad = [key for key, value in found.items() if not bool(torch.isfinite(value.float()).all())]
    with torch.no_grad():
        for key, value in found.items():
            value.copy_(before[key])
    return f"not finite: {bad}" if bad else ""


Load = Callable[[Path], Any]
Check = Callable[[Path, Any], "str | None"]


@functools.cache
def _artefacts() -> dict[str, tuple[Path, str, Load, Check]]:
    """Name, folder, file in it, its loader, and what is wrong with a damaged file that is loaded."""
    tokenizer, folder = world.encoder().tokenizer, world.new_folder()
    world.table().save(folder / "table.json")
    modules.CorpusStatistics.compute(world.encoder(), SENTENCES).save(folder / "statistics.safetensors")
    table = world.new_folder() / "table"
    EmbeddingTable.compute(world.encoder(), world.encoder(), SENTENCES, show_progress_bar=False, folder=table)
    found: dict[str, tuple[Path, str, Load, Check]] = {
        "FrequencyTable.load": (folder, "table.json", lambda p: FrequencyTable.load(p, tokenizer), _table_right),
        "FrequencyTable.from_file": (folder, "table.json", lambda p: FrequencyTable.from_file(p, tokenizer),
                                     lambda p, t: None if t.counts.min() >= 0 else "negative"),
        "CorpusStatistics.load": (folder, "statistics.safetensors", modules.CorpusStatistics.load, _statistics_right),
        **{f"EmbeddingTable folder {file}": (table, file, _looked_up, _vectors_right)
           for file in ("rows.json", "index.bin", "rows.bin")},
    }  # fmt: skip
    for name, model in _models().items():
        listed = json.loads((model / "modules.json").read_text())
        own = [entry["path"] for entry in listed if entry["type"].startswith("st_extras") and entry["path"]]
        for file in (Path(part, file) for part in own for file in ("config.json", "model.safetensors")):
            if (model / file).is_file():
                found[f"{name} {file}"] = model, str(file), _load, lambda path, loaded: _encodes(loaded)
    for name in ("dclr", "adcse", "slt-fai"):
        checkpoint = Path(str(_trainer(name).args.output_dir)) / "checkpoint-0"
        restore = functools.partial(_restore, name)
        found[f"loss state {name}"] = checkpoint, FILE_NAME, restore, lambda path, wrong: wrong or None
    return found


def _case(name: str, folder: Path, file: str, load: Load, check: Check, change: tuple[str, str, Change]) -> Case:
    what, expected, damage = change

    def run() -> Any:
        copy = world.new_folder() / "copy"
        shutil.copytree(folder, copy)
        try:
            damage(copy / file)
            return check(copy / file, load(copy / file))
        finally:
            shutil.rmtree(copy)

    return Case(f"{name}, {what}", run, expected, ("copy",), (), lambda wrong: wrong)


# ------------------------------------------------------------------------------------------- writing fails


@contextmanager
def _no_file_over(size: int) -> Iterator[None]:
    """No file may grow beyond ``size`` bytes: what a full disk is like."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def _writers() -> list[Case]:
    """Saving where there is no room, or no place: an error, and nothing left behind."""
    made, name, write = [], "FrequencyTable.save", world.table().save
    for size in (0, 1, 100, 400):
        folder = world.new_folder()
        for file in (folder / "new.tsv", folder / "old.tsv"):

            def full(file: Path = file, size: int = size) -> None:
                with _no_file_over(size):
                    write(file)

            (folder / "old.tsv").write_text("an older file")
            made.append(Case(f"{name}({file.name}), {size} bytes", full, REFUSE, untouched=folder, system=True))
    where = world.new_folder()
    (where / "taken").mkdir()
    for place in ("taken", "no/new"):
        call = functools.partial(write, where / place)
        made.append(Case(f"{name}({place})", call, REFUSE, (place,), untouched=where))
    return made


def cases(generator: random.Random) -> list[Case]:
    """Every saved file with every change; writing where it cannot be done."""
    made = _writers()
    for name, (folder, file, load, check) in _artefacts().items():
        made += [_case(name, folder, file, load, check, change) for change in changes(folder / file, generator)]
    return made
