"""Ways to damage a saved file: its bytes, its JSON, its tensors."""

import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tests.fuzz.classify import ACCEPT, EITHER, REFUSE

Change = Callable[[Any], Any]


def bytes_changes(generator: random.Random) -> dict[str, tuple[str, Callable[[bytes], bytes]]]:
    place = generator.random()

    def flip(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + bytes([data[at] ^ (1 << generator.randrange(8))]) + data[at + 1 :]

    return {
        "cut": (REFUSE, lambda data: data[: int(place * (len(data) - 2))]),
        "flip": (EITHER, flip),
        "surplus": (EITHER, lambda data: data + b"\0{}"),
        "empty": (REFUSE, lambda data: b""),
        "noise": (REFUSE, lambda data: generator.randbytes(len(data))),
        "text": (REFUSE, lambda data: b"not what it should be\n"),
        "nothing": (ACCEPT, lambda data: data),
    }


WRONG: list[Any] = [None, "x", -1, math.nan, math.inf, 1.5, [], {}, [[1]], 10**30, True, "0.3"]


def _json_changes(generator: random.Random, data: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Keys dropped and added, and values replaced; a list also gets a wrong item, and loses its last one."""
    yield "not an object", REFUSE, [data]
    for key, value in data.items():
        needed = EITHER if key in ("version", "format") else REFUSE
        yield f"without {key}", needed, {k: v for k, v in data.items() if k != key}
        for wrong in WRONG:
            same = type(wrong) is type(value) or (isinstance(value, float) and type(wrong) in (int, float))
            yield f"{key} = {wrong!r}", EITHER if same else REFUSE, data | {key: wrong}
            if isinstance(value, list):
                at = generator.randrange(len(value))
                fine = isinstance(value[0], str) and (wrong is None or isinstance(wrong, str))  # an id without a token
                changed = data | {key: [*value[:at], wrong, *value[at + 1 :]]}
                yield f"{key}[{at}] = {wrong!r}", EITHER if fine else REFUSE, changed
        if isinstance(value, list):
            yield f"{key} shorter", REFUSE, data | {key: value[:-1]}
            yield f"{key} longer", REFUSE, data | {key: [*value, value[0]]}
        if isinstance(value, int):
            yield f"{key} other", EITHER, data | {key: value + 1}


def _tensor_changes(tensors: dict[str, torch.Tensor]) -> Iterator[tuple[str, str, dict[str, torch.Tensor]]]:
    yield "surplus tensor", REFUSE, tensors | {"surplus": torch.zeros(2)}
    for name, tensor in tensors.items():
        where = f"{name}: "
        yield where + "missing", REFUSE, {k: t for k, t in tensors.items() if k != name}
        if tensor.ndim and tensor.numel():
            yield where + "shorter", REFUSE, tensors | {name: tensor[:-1].clone()}
        if tensor.ndim:
            yield where + "another axis", REFUSE, tensors | {name: tensor[None].clone()}
        yield where + "boolean", ACCEPT if tensor.dtype == torch.bool else REFUSE, tensors | {name: tensor.bool()}
        if tensor.is_floating_point() and tensor.numel():
            for wrong in (math.nan, math.inf, -math.inf):
                changed = tensor.clone()
                changed.view(-1)[0] = wrong
                yield where + str(wrong), REFUSE, tensors | {name: changed}
            yield where + "whole numbers", REFUSE, tensors | {name: tensor.long()}
            yield where + "float64", EITHER, tensors | {name: tensor.double()}
        elif tensor.dtype == torch.long and tensor.numel():
            yield where + "negative", REFUSE, tensors | {name: -tensor - 5}
            yield where + "fractions", REFUSE, tensors | {name: tensor.float()}


def _tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def changes(path: Path, generator: random.Random) -> Iterator[tuple[str, str, Callable[[Path], None]]]:
    """Ways to damage a file: its bytes, and its JSON or its tensors."""
    for _ in range(3):
        for name, (expected, change) in bytes_changes(generator).items():
            yield name, expected, lambda file, change=change: file.write_bytes(change(file.read_bytes()))
    yield "removed", REFUSE, lambda file: file.unlink()
    yield "a folder", REFUSE, lambda file: (file.unlink(), file.mkdir())  # type: ignore[func-returns-value]
    if path.suffix == ".json" and isinstance(data := json.loads(path.read_text("utf8")), dict):
        for name, expected, changed in _json_changes(generator, data):
            yield name, expected, lambda file, changed=changed: file.write_text(json.dumps(changed), "utf8")
    elif path.suffix == ".safetensors":
        tensors, metadata = _tensors(path)
        for name, expected, other in _tensor_changes(tensors):
            yield name, expected, lambda file, other=other: save_file(other, file, metadata)
