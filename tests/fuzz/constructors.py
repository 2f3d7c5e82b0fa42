"""Constructors and functions: each parameter with each value, the others as they should be."""

from __future__ import annotations

import functools
import itertools
import json
import random
from typing import Any

from st_extras import encoders
from tests.conftest import SENTENCES
from tests.fuzz import values as v
from tests.fuzz import world
from tests.fuzz.classify import ACCEPT, EITHER, REFUSE, Case, written
from tests.fuzz.domain_targets import domain_targets
from tests.fuzz.loss_targets import loss_targets
from tests.fuzz.model_targets import encoder_targets, evaluator_targets
from tests.fuzz.module_targets import module_targets
from tests.fuzz.text_targets import text_targets
from tests.fuzz.values import Target

_outputs = itertools.count()
# attach hands its corpus to fit, whose parameter is called sentences; Sentence Transformers refuses encode's options
_ALIASES = {
    "corpus": ("corpus", "sentences", "texts"),
    "path": ("path", "encoder", "file"),
    "tables": ("tables", "folder"),
    "text_column": ("column",),
    "label_column": ("column",),
    "encode_options": ("encode_options", "encode()"),
}


@functools.cache
def targets() -> list[Target]:
    lines = "".join(json.dumps({"sentence": sentence}) + "\n" for sentence in SENTENCES)
    (world.root() / "ok.jsonl").write_text(lines, encoding="utf8")
    families = (loss_targets, text_targets, encoder_targets, module_targets, evaluator_targets, domain_targets)
    return [target for family in families for target in family()]


def _name(target: Target) -> str:
    return target.name or target.call.__qualname__


def _case(target: Target, parameter: str, value: Any) -> Case | None:
    fits = target.domains[parameter](value)
    if not target.runs and fits is not False:
        return None
    name = _name(target)
    output = world.root() / f"output{next(_outputs)}"
    arguments = target.good | {parameter: value}
    if "output" in arguments:
        arguments["output"] = output
    if target.name == "use_length_buckets" and parameter != "model":
        arguments = {"model": encoders.load_encoder(world.encoder_folder())} | arguments
    expected = {True: ACCEPT, False: REFUSE, None: EITHER}[fits]
    return Case(
        f"{name}({parameter}={written(value)[0]})",
        lambda: target.call(**arguments),
        expected,
        _ALIASES.get(parameter, (parameter,)),
        written(value),
        lambda result: (
            None if parameter == "size" else v.held(result, parameter, value)
        ),  # size is at most what there is
        output,
    )


def cases(generator: random.Random) -> list[Case]:
    """Every parameter of every target with 18 values drawn from the lists and at random."""
    made = []
    for target in targets():
        for parameter in target.domains:
            tried = [
                *generator.sample(v.NUMBERS, 9),
                *generator.sample(v.OTHERS, 7),
                v.draw(generator),
                v.draw(generator),
            ]
            made += [case for value in tried if (case := _case(target, parameter, value))]
    return made
