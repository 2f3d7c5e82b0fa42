"""What several test files need: short trainings, counting encoder passes, resuming, examples of docstrings."""

import bz2
import doctest
import functools
import gzip
import importlib
import inspect
import lzma
import math
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
import torch
import torch.distributed as dist
from datasets import Dataset
from sentence_transformers import (
    InputExample,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from st_extras.training import LossStateCallback


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normal random numbers in float64 from a generator of their own."""
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def cosine(x: Sequence[float] | Tensor, y: Sequence[float] | Tensor) -> float:
    """The cosine of two vectors as a plain loop."""
    x, y = (one.tolist() if isinstance(one, Tensor) else one for one in (x, y))  # to loop over a tensor is slow
    pairs = list(zip(x, y, strict=True))
    return sum(a * b for a, b in pairs) / math.sqrt(sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs))


def some_fast(names: Iterable[Any], fast: Iterable[Any]) -> list[Any]:
    """The names, or tuples of values, as parameters of a test; those that are not in ``fast`` are slow."""
    rows = [(name, name if isinstance(name, tuple) else (name,)) for name in names]
    return [name if name in fast else pytest.param(*values, marks=pytest.mark.slow) for name, values in rows]


def columns(sentences: list[str], count: int = 1) -> dict[str, list[str]]:
    """A dataset's columns: the sentence, and its positive where count is 2."""
    pairs = {"sentence": sentences, "positive": [f"{sentence} ." for sentence in sentences]}
    return dict(list(pairs.items())[:count])


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, packed where its name says so, in a folder that need not be there."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.get(path.suffix.lower(), bytes)
    path.write_bytes(pack(data))
    return path


def arguments(folder: Path, **options: Any) -> SentenceTransformerTrainingArguments:
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 1,
        "learning_rate": 1e-2,
        "seed": 7,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    return SentenceTransformerTrainingArguments(output_dir=str(folder), **(settings | options))


def train(
    model: SentenceTransformer,
    loss: Any,
    data: dict[str, list[str]],
    folder: Path,
    *,
    resume: str | None = None,
    callbacks: list[TrainerCallback] | None = None,
    attach: bool = True,
    **options: Any,
) -> SentenceTransformerTrainer:
    trainer = SentenceTransformerTrainer(
        model, args=arguments(folder, **options), train_dataset=Dataset.from_dict(data), loss=loss, callbacks=callbacks
    )
    if attach:
        LossStateCallback.attach(trainer)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def fit(model: SentenceTransformer, loss: nn.Module, data: dict[str, list[str]], folder: Path) -> None:
    examples = [InputExample(texts=list(row)) for row in zip(*data.values(), strict=True)]
    model.fit(
        train_objectives=[(DataLoader(examples, batch_size=4, shuffle=True), loss)],
        epochs=1,
        warmup_steps=0,
        optimizer_params={"lr": 1e-2},
        show_progress_bar=False,
        checkpoint_path=str(folder),
    )


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """A copy of its tensors on the CPU: ``fit`` moves a model to the GPU."""
    tensors = {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}
    return {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}


def differing(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


@contextmanager
def count_rows(model: nn.Module) -> Iterator[list[int]]:
    """The number of rows of each pass through the encoder while the context is open."""
    passes: list[int] = []

    def note(module: nn.Module, args: tuple[Any, ...], output: dict[str, Tensor]) -> None:
        passes.append(output["sentence_embedding"].size(0))

    handle = model.register_forward_hook(note)
    try:
        yield passes
    finally:
        handle.remove()


class Recorder:
    """Remembers the arguments of functions by name, and calls them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.calls: dict[str, list[dict[str, Any]]] = {}

    def on(self, *places: str) -> None:
        """Record the calls of "module:name" or "module:Class.method", in the module that calls it."""
        for place in places:
            name = place.rpartition(":")[2]
            self.patch.setattr(place.replace(":", "."), self._recorded(name, pkgutil.resolve_name(place)))

    def _recorded(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def called(*given: Any, **named: Any) -> Any:
            bound = signature.bind(*given, **named)
            bound.apply_defaults()
            self.calls.setdefault(name, []).append(dict(bound.arguments))
            return original(*given, **named)

        return called

    def one(self, name: str) -> dict[str, Any]:
        """The arguments of the only call."""
        (call,) = self.calls[name]
        return call


class Wrapped(nn.Module):
    """What DistributedDataParallel ("module") and torch.compile ("_orig_mod") look like from outside."""

    def __init__(self, inner: nn.Module, attribute: str = "module") -> None:
        super().__init__()
        setattr(self, attribute, inner)
        self.attribute = attribute

    def forward(self, *inputs: Any) -> Any:
        return getattr(self, self.attribute)(*inputs)


def run_in_two_processes(module: str, *arguments: str) -> None:
    """Run ``python -m module arguments`` in two processes, which tell each other apart by RANK."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv_backend=c10d"]
    command += ["--rdzv_endpoint=localhost:0", "-m", module, *arguments]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode:
        raise AssertionError((done.stdout + done.stderr)[-12000:])


def end_process() -> NoReturn:
    """End one of several processes at once, when all have come here.

    While the interpreter takes its objects apart, gloo's threads can wait for it for ever, or be ended with an abort.
    """
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def docstring_examples(package: ModuleType) -> list[doctest.DocTest]:
    """The docstrings with examples of a package's files; subpackages are left out."""
    files = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.ispkg]
    modules = [package, *(importlib.import_module(f"{package.__name__}.{name}") for name in files)]
    return [found for module in modules for found in doctest.DocTestFinder().find(module) if found.examples]


def run_example(example: doctest.DocTest) -> None:
    """Run a docstring's example as written; every line of it, so +SKIP is a fault as well."""
    if skipped := [line.source for line in example.examples if line.options.get(doctest.SKIP)]:
        raise AssertionError(f"{example.name} skips {skipped}")
    report: list[str] = []
    if doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append).failed:
        raise AssertionError("".join(report))
