"""Kill work at random moments, resume it, and compare what it saved with that of an uninterrupted run.

``python -m tests.training.kill_resume --kills 40`` trains all losses with and without an evaluator and prints a table,
``... --kills 30 adapt search table`` adapts, also for search, and computes an EmbeddingTable; it exits with 1 if
something resumed ended otherwise. About half of the kills hit a file operation (opening, moving or removing a file),
the others any moment.
"""

import argparse
import hashlib
import os
import random
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fixtures import build_encoder
from tests.training.killed_worker import LOSSES, WORKS
from tests.training.killed_worker import main as work

SECONDS = 300
"""After this time a training counts as hanging, and is ended."""


@dataclass(frozen=True)
class Kill:
    """One trial: what was trained, where it was killed, how it was continued and whether the weights are equal."""

    loss: str
    dev: bool
    where: str
    continued: str
    equal: bool


@dataclass(frozen=True)
class Case:
    """A loss with or without an evaluator, and its uninterrupted run."""

    loss: str
    dev: bool
    digest: str
    operations: int
    seconds: float


def worker(folder: Path, loss: str, dev: bool, output: Path, kill: str, *, resume: bool) -> tuple[int, str]:
    """Run killed_worker.py in a process of its own; return its exit code and what it printed.

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
            work(loss, str(int(dev)), str(output), str(folder / "encoder"), kill, str(int(resume)))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), log.read_text(encoding="utf8", errors="replace")


def digest(output: Path) -> str:
    """Of the weights, or of a table's rows; checkpoints are not compared."""
    found = [path for path in sorted(output.rglob("*")) if path.suffix in (".safetensors", ".bin")]
    kept = [path.read_bytes() for path in found if "checkpoints" not in path.parts]
    return hashlib.sha256(b"".join(kept)).hexdigest()


def uninterrupted(folder: Path, loss: str, dev: bool) -> Case:
    """Train without a kill."""
    output = folder / f"{loss}-{dev}-whole"
    code, printed = worker(folder, loss, dev, output, "none", resume=False)
    found = re.search(r"(\d+) operations in ([\d.]+) s", printed)
    if code != 0 or found is None:
        raise RuntimeError(printed[-2000:])
    return Case(loss, dev, digest(output), int(found[1]), float(found[2]))


def try_kill(folder: Path, case: Case, number: int, kill: str) -> Kill:
    """Kill a training, continue it as its messages say, and compare."""
    output = folder / f"{case.loss}-{case.dev}-{number}"
    code, printed = worker(folder, case.loss, case.dev, output, kill, resume=False)
    while code == 0 and kill.startswith("time:"):  # faster than the uninterrupted run: kill it earlier
        kill = f"time:{float(kill.removeprefix('time:')) / 2:.3f}"
        code, printed = worker(folder, case.loss, case.dev, output, kill, resume=False)
    if code != -signal.SIGKILL:
        raise RuntimeError(f"the kill {kill} did not happen: {printed[-2000:]}")
    continued = "resumed"
    code, printed = worker(folder, case.loss, case.dev, output, "none", resume=True)
    if code != 0 and ("start again with overwrite" in printed or "got none" in printed):
        continued = "started again"
        code, printed = worker(folder, case.loss, case.dev, output, "none", resume=False)
    if code != 0:
        return Kill(case.loss, case.dev, kill, f"failed: {printed.strip().splitlines()[-1]}", False)
    return Kill(case.loss, case.dev, kill, continued, digest(output) == case.digest)


def try_kills(folder: Path, count: int, seed: int = 0, works: Sequence[str] = tuple(LOSSES)) -> list[Kill]:
    """Kill ``count`` times, spread over the works with and without what chooses.

    Args:
        folder: an empty folder to train in.
        count: number of kills.
        seed: of the moments.
        works: what is done, see killed_worker.py.
    """
    process = os.fork()  # the encoder is made in a fork as well: no thread is started here
    if process == 0:
        build_encoder(folder / "parts", seed=0).save(str(folder / "encoder"))
        os._exit(0)
    os.waitpid(process, 0)
    draw = random.Random(seed)
    order = [(loss, dev) for loss in works for dev in (True, False)]
    draw.shuffle(order)
    cases: dict[tuple[str, bool], Case] = {}
    results = []
    for number in range(count):
        key = order[number % len(order)]
        case = cases[key] if key in cases else cases.setdefault(key, uninterrupted(folder, *key))
        in_file = (number + number // len(order)) % 2 == 0
        moment = draw.uniform(0, 0.9)  # of the time that the uninterrupted run took
        kill = f"file:{1 + int(draw.random() * case.operations)}" if in_file else f"time:{moment * case.seconds:.3f}"
        results.append(try_kill(folder, case, number, kill))
        sys.stdout.write(f"{results[-1]}\n")
        sys.stdout.flush()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40, help="number of kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: %(default)s)")
    parser.add_argument("works", nargs="*", help=f"of {', '.join(WORKS)}; default: all losses")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = try_kills(Path(folder), options.kills, options.seed, options.works or tuple(LOSSES))
    equal = sum(result.equal for result in results)
    in_files = sum(result.where.startswith("file") for result in results)
    again = sum(result.continued == "started again" for result in results)
    sys.stdout.write(
        f"{equal} of {len(results)} ended with equal weights; {in_files} were killed at a file operation; {again} had "
        "no complete checkpoint yet and were started again\n"
    )
    sys.exit(equal != len(results))


if __name__ == "__main__":
    main()
