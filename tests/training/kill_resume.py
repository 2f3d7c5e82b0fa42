"""Kill trainings at random moments, resume them, and compare the weights with those of an uninterrupted one.

``python -m tests.training.kill_resume --kills 40`` trains all losses with and without an evaluator; it exits with 1 if
one ended otherwise. About half of the kills hit a file operation (opening, moving or removing a file), the others any
moment. It prints how each ended.
"""

import argparse
import functools
import hashlib
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.training import train_encoder
from tests.fixtures import SENTENCES, build_encoder
from tests.losses.cases import CASES

STEPS = 8
WRITES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}
LOSSES = {
    "simcse": CASES["simcse, head"], "dclr": CASES["dclr"], "adcse": CASES["adcse"],
    "slt_fai": CASES["slt-fai over consert"], "paser": CASES["paser"],
}  # fmt: skip


class Operations:
    """Counts the file operations below a folder, and kills the process at one of them."""

    def __init__(self, folder: Path, last: int | None) -> None:
        self.folder, self.last, self.count = str(folder), last, 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        removing = event in {"os.remove", "os.rmdir"} and arguments[1] != -1  # by rmtree, relative to a folder
        if event not in WRITES or not (removing or str(arguments[0]).startswith(self.folder)):
            return
        if event == "open" and (arguments[1] is None or not set(str(arguments[1])) & set("wax+")):
            return
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def train(name: str, model: SentenceTransformer, dev: bool, output: str, resume: bool) -> None:
    scores = [float(value * 5 % 4) for value in range(4)]
    pairs = STSDataset("pairs", SENTENCES[:4], SENTENCES[4:], scores)
    train_encoder(
        model,
        LOSSES[name].make,
        Dataset.from_dict(LOSSES[name].data()),
        output,
        evaluator=STSEvaluator([pairs], write_csv=False) if dev else None,
        batch_size=4,
        learning_rate=5e-3,
        max_steps=STEPS,
        eval_steps=2,
        resume=resume,
        overwrite=not resume,
        show_progress_bar=False,
    )


def work(name: str, dev: bool, output: Path, encoder: Path, kill: str, resume: bool) -> None:
    """Train for a few steps, and die where ``kill`` says: "none", "time:SECONDS" or "file:N" (the Nth operation)."""
    torch.set_num_threads(1)
    kind, _, number = kill.partition(":")
    operations = Operations(output.parent, int(number) if kind == "file" else None)
    sys.addaudithook(operations)
    model = SentenceTransformer(str(encoder), device="cpu")
    if kind == "time":
        timer = threading.Timer(float(number), os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    began = time.perf_counter()
    train(name, model, dev, str(output), resume)
    sys.stdout.write(f"{operations.count} operations in {time.perf_counter() - began} s\n")


# --- kills ---

SECONDS = 300
"""After this time a training counts as hanging, and is ended."""


class Whole(NamedTuple):
    """An uninterrupted training: the digest of its weights, its file operations, and its seconds."""

    digest: str
    operations: int
    seconds: float


def worker(folder: Path, name: str, dev: bool, output: Path, kill: str, *, resume: bool) -> tuple[int, str]:
    """Train in a process of its own; return its exit code and what it printed.

    The process is a fork of this one, which has done nothing but imports: that saves the seconds of importing torch.
    """
    log = folder / "log.txt"
    process = os.fork()
    if process == 0:
        code = 1
        try:
            signal.alarm(SECONDS)
            with log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            if not (folder / "encoder").exists():  # made in a fork as well: no thread is started here
                build_encoder(folder / "parts", seed=0).save(str(folder / "encoder"))
            work(name, dev, output, folder / "encoder", kill, resume)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), log.read_text(encoding="utf8", errors="replace")


def digest(output: Path) -> str:
    """Of the weights."""
    found = [path for path in sorted(output.rglob("*")) if path.suffix in (".safetensors", ".bin")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()


def uninterrupted(folder: Path, name: str, dev: bool) -> Whole:
    output = folder / f"{name}-{dev}-whole" / "out"
    code, printed = worker(folder, name, dev, output, "none", resume=False)
    found = re.search(r"(\d+) operations in ([\d.]+) s", printed)
    if code != 0 or found is None:
        raise RuntimeError(printed[-2000:])
    return Whole(digest(output), int(found[1]), float(found[2]))


def outcome(folder: Path, name: str, dev: bool, output: Path, kill: str, expected: str) -> str:
    """Kill a training, continue it as its messages say, and return how it ended: "equal ..." or something else."""
    code, printed = worker(folder, name, dev, output, kill, resume=False)
    while code == 0 and kill.startswith("time:"):  # faster than the uninterrupted run: kill it earlier
        kill = f"time:{float(kill.removeprefix('time:')) / 2:.3f}"
        code, printed = worker(folder, name, dev, output, kill, resume=False)
    if code != -signal.SIGKILL:
        raise RuntimeError(f"the kill {kill} did not happen: {printed[-2000:]}")
    continued = "resumed"
    code, printed = worker(folder, name, dev, output, "none", resume=True)
    if code != 0 and "got none" in printed:
        continued = "started again, as nothing was recorded yet"
        code, printed = worker(folder, name, dev, output, "none", resume=False)
    if code != 0:
        return f"failed: {printed.strip().splitlines()[-1]}"
    if left := sorted(path.name for path in output.parent.iterdir() if path != output):
        return f"left over: {left}"
    return f"{'equal' if digest(output) == expected else 'other'} weights, {continued}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40, help="number of kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: %(default)s)")
    parser.add_argument("losses", nargs="*", help=f"of {', '.join(LOSSES)}; default: all")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    order = [(name, dev) for name in options.losses or LOSSES for dev in (True, False)]
    draw.shuffle(order)
    equal = 0
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        whole = functools.cache(functools.partial(uninterrupted, folder))
        for number in range(options.kills):
            key = name, dev = order[number % len(order)]
            at_file = (number + number // len(order)) % 2 == 0
            expected = whole(*key)
            if at_file:
                kill = f"file:{1 + int(draw.random() * expected.operations)}"
            else:
                kill = f"time:{draw.uniform(0, 0.9) * expected.seconds:.3f}"
            ended = outcome(folder, name, dev, folder / str(number) / "out", kill, expected.digest)
            equal += ended.startswith("equal")
            sys.stdout.write(f"{name}, {'with' if dev else 'without'} an evaluator, {kill}: {ended}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{equal} of {options.kills} ended with equal weights\n")
    sys.exit(equal != options.kills)


if __name__ == "__main__":
    main()
