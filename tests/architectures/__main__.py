"""``python -m tests.architectures``: try every method on every encoder, and write docs/encoders.md."""

import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers.utils import logging

from tests.architectures import table
from tests.architectures.encoders import ARCHITECTURES
from tests.architectures.methods import outcomes
from tests.architectures.world import World


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    found, faults = {}, 0
    for name in ARCHITECTURES:
        start = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found[name] = outcomes(World(name, Path(folder) / "model"))
        for method, outcome in found[name].items():
            if outcome.kind == "fault":
                faults += 1
                _say(f"{name}, {method}: {outcome.note}")
        _say(f"{name}: {time.process_time() - start:.1f} s")
    table.PAGE.write_text(table.render(found), encoding="utf8")
    _say(f"{len(found)} encoders, {faults} faults: {table.PAGE}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
