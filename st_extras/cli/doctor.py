"""``st-extras doctor``: what is installed, what this machine can do, and what is missing."""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import typer

from st_extras import __version__
from st_extras.cli.console import one_line, print_json, print_line
from st_extras.cli.options import Json

NLTK_DATA = ("corpora/wordnet/", "taggers/averaged_perceptron_tagger_eng/", "corpora/stopwords/")
"""Where NLTK looks for the data of EDA's synonyms, of chunk phrases, and of rake in other languages than English."""


def doctor(as_json: Json = False) -> None:
    """Show versions, devices, and what is missing and how to install it.

    The exit code is 1 if something that every command needs is missing, too old or broken.
    """
    report = {"st_extras": f"{__version__}, in {Path(__file__).parents[1]}"}
    report["Python"] = f"{platform.python_version()}, {sys.executable}, {platform.platform()}"
    _packages(report)
    try:
        _libraries(report)
    except Exception as error:  # whatever a broken installation raises
        report["libraries"] = f"BROKEN: {one_line(error)}"
    broken = [name for name, text in report.items() if text.startswith("BROKEN")]
    report["all in all"] = f"broken: {', '.join(broken)}" if broken else "what every command needs is there"
    if as_json:
        print_json(report)
    else:
        for name, text in report.items():
            print_line(f"{name:<36}{text}")
    if broken:
        raise typer.Exit(1)


def _packages(report: dict[str, str]) -> None:
    """Report the versions of what this package requires, if it is installed and not run from a folder."""
    from packaging.requirements import Requirement

    for own in metadata.distributions(name="st-extras"):
        extras = {"", *own.metadata.get_all("Provides-Extra", ())} - {"dev", "docs"}
        for requirement in map(Requirement, own.requires or ()):
            name, marker = requirement.name, requirement.marker
            extra = min((extra for extra in extras if not marker or marker.evaluate({"extra": extra})), default=None)
            found = next((part.version for part in metadata.distributions(name=name)), "missing")
            if extra is not None:
                report[name] = found
                if found == "missing" or not requirement.specifier.contains(found, prereleases=True):
                    install = f'"st-extras[{extra}]"' if extra else f'"{name}{requirement.specifier}"'
                    report[name] = f"{'' if extra else 'BROKEN: '}{found}, pip install {install}"


def _libraries(report: dict[str, str]) -> None:
    """Compute on the device that is used by default, and look for the data of NLTK.

    Sentence Transformers is not imported, which takes longer than all the rest.
    """
    import nltk.data
    import torch

    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    torch.ones(2, 2, device=device).sum().item()
    report["device"] = f"{device}, {torch.get_num_threads()} threads"
    for i in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(i)
        bfloat16 = "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "no bfloat16"
        report[f"device cuda:{i}"] = f"{found.name}, {found.total_memory / 2**30:.0f} GiB, {bfloat16}"
    for place in NLTK_DATA:
        name = Path(place).name
        report[f"data {name}"] = f"missing, of use for paser alone: python -m nltk.downloader {name}"
        with suppress(LookupError):
            nltk.data.find(place)
            report[f"data {name}"] = "installed"
