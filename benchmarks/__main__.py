"""The one entrance: run studies, write tables and pictures, measure speed and memory.

    python -m benchmarks list                        every study, what it asks, and its records
    python -m benchmarks run STUDY --data FOLDER     what has no record yet; a run that was stopped resumes
    python -m benchmarks run papers [--plan]         the five papers' tables with BERT base, or what they take
    python -m benchmarks tables [--check]            the tables of README.md, docs/ and RESULTS.md, from the records
    python -m benchmarks pictures                    the pictures of docs/, from the records
    python -m benchmarks speed | scale | hashes      a training step; large work; do the numbers stay the same?
    python -m benchmarks encoders FOLDER             encoders by others, from packages

A study is a configuration in ``benchmarks/configs`` (``benchmarks/studies.py`` describes them) and one file of records
in ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.records import RESULTS
from benchmarks.studies import Mistake, Options, named_study, study_names


def run(options: argparse.Namespace) -> None:
    """Run studies, each by the module that its ``kind`` names."""
    studies = [named_study(name) for name in options.studies]
    of_papers = all(study["kind"] == "papers" for study in studies)
    data = options.data or ("hub" if of_papers else "")
    if not data or (data == "hub" and not of_papers):
        sys.exit("--data FOLDER (or ST_EXTRAS_DATA) must name the folder with the corpora and the scored sets.")
    given = {"--encoder": options.encoder, "--plan": options.plan or None, "--mini-batch-size": options.mini_batch_size}
    wrong = [name for name, value in given.items() if value is not None]
    if wrong and not of_papers:
        raise Mistake(f"{wrong[0]} must be given to the studies papers and papers_zh alone.")
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    chosen = Options(
        Path(data),
        options.work,
        options.results,
        options.methods,
        options.seeds,
        options.encoders,
        options.sets,
        options.encoder,
        options.plan,
        options.mini_batch_size,
    )
    for study in studies:
        importlib.import_module(f"benchmarks.{study['kind']}").run(study, chosen)


def list_studies(_: argparse.Namespace) -> None:
    """Print every study, how many records it has, and what it asks."""
    from benchmarks.tables.pages import about, record_counts

    counts = record_counts()
    for name in study_names():
        print(f"{name:28} {counts.get(name, 0):5}  {about(name)}")


def tables(options: argparse.Namespace) -> None:
    """Write the tables, or check that they are what the records give."""
    if options.results is not None:
        from benchmarks.tables.papers import page

        target = options.results / "papers.md"
        target.write_text(page(options.results), encoding="utf8")
        print(target)
        return
    from benchmarks.tables.pages import write

    changed = [page.name for page in write(only_check=options.check)]
    if options.check and changed:
        sys.exit(f"{', '.join(changed)} must be what benchmarks/results gives: run python -m benchmarks tables.")
    print(f"changed: {', '.join(changed) or 'nothing'}")


def pictures(_: argparse.Namespace) -> None:
    """Draw the pictures."""
    from benchmarks.pictures import draw

    draw()


def speed(options: argparse.Namespace) -> None:
    """Measure training steps."""
    from benchmarks.speed import measure_cases

    measure_cases(options)


def scale(options: argparse.Namespace) -> None:
    """Measure hybrid search or jobs."""
    from benchmarks.scale import measure

    measure(options)


def hashes(options: argparse.Namespace) -> None:
    """Hash the weights of short trainings."""
    from benchmarks.weight_hashes import compare

    compare(options.steps, options.output, options.compare)


def encoders(options: argparse.Namespace) -> None:
    """Make folders of encoders by others."""
    from benchmarks.encoders import SOURCES, prepare

    for name in options.only or SOURCES:
        prepare(name, options.folder)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    described = argparse.RawDescriptionHelpFormatter
    whole = argparse.ArgumentParser("python -m benchmarks", description=__doc__, formatter_class=described)
    commands = whole.add_subparsers(title="commands", required=True, metavar="COMMAND")

    command = commands.add_parser("run", help="run what has no record yet")
    command.set_defaults(do=run)
    command.add_argument("studies", nargs="+", metavar="STUDY", help="a configuration: its name in benchmarks/configs")
    command.add_argument(
        "--data",
        default=os.environ.get("ST_EXTRAS_DATA"),
        help="folder (default: $ST_EXTRAS_DATA), or of papers: hub",
    )
    command.add_argument(
        "--work", type=Path, default=Path("runs"), help="folder for weights and embeddings (%(default)s)"
    )
    command.add_argument("--results", type=Path, default=RESULTS, help="folder for records (default: the repository's)")
    command.add_argument("--methods", nargs="+", help="only these methods, or rows")
    command.add_argument("--seeds", nargs="+", type=int, help="only these seeds")
    command.add_argument("--encoders", nargs="+", help="only these encoders")
    command.add_argument("--encoder", help="of papers: train this folder or model on the hub, not BERT base")
    command.add_argument("--plan", action="store_true", help="of papers: print what would be run, and stop")
    command.add_argument("--mini-batch-size", type=int, help="of papers: sentences that the encoder sees at a time")
    command.add_argument("--sets", nargs="+", help="only these domains, or collections")
    command.add_argument("--threads", type=int, default=1, help="threads of torch (default: %(default)s)")

    command = commands.add_parser("list", help="list the studies and their records")
    command.set_defaults(do=list_studies)

    command = commands.add_parser("tables", help="write the tables of all pages")
    command.set_defaults(do=tables)
    command.add_argument("--check", action="store_true", help="write nothing; fail if a page differs from the records")
    command.add_argument("--results", type=Path, help="folder of records: write FOLDER/papers.md alone, from them")

    command = commands.add_parser("pictures", help="draw the pictures of docs/")
    command.set_defaults(do=pictures)

    command = commands.add_parser("speed", help="measure training steps and RepAL's ways to encode")
    command.set_defaults(do=speed)
    command.add_argument("--cases", nargs="+", help="only these, and those that they are compared with")
    command.add_argument("--batch", type=int, default=64, help="sentences (default: %(default)s)")
    command.add_argument("--length", type=int, default=32, help="tokens (default: %(default)s)")
    command.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    command.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    command.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    command.add_argument("--data", type=Path, help="take sts_unlabeled of this folder, not the sample sentences")
    command.add_argument("--encoder", help="folder of the encoder (default: three layers of the packaged MiniLM)")
    command.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    command.add_argument("--no-memory", action="store_true", help="measure time only")
    command.add_argument("--no-record", action="store_true", help="print only")

    command = commands.add_parser("scale", help="measure queries of a hybrid search, and jobs")
    command.set_defaults(do=scale)
    command.add_argument("what", choices=("latency", "jobs"))
    command.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of jobs")
    command.add_argument("--encoder", help="of jobs: folder (default: the packaged MiniLM)")
    command.add_argument("--data", type=Path, help="of jobs: take sts_unlabeled of this folder, not the samples")
    command.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    command.add_argument("--smoke", action="store_true", help="a few sentences, no record")

    command = commands.add_parser("hashes", help="hash the weights of short trainings")
    command.set_defaults(do=hashes)
    command.add_argument("--steps", type=int, default=50, help="of each training (default: %(default)s)")
    command.add_argument("--output", type=Path, help="write the hashes to this file, after every case")
    command.add_argument("--compare", type=Path, help="compare with this file, and fail if a hash differs")

    command = commands.add_parser("encoders", help="make folders of encoders by others, from packages")
    command.set_defaults(do=encoders)
    command.add_argument("folder", type=Path, help="the studies expect runs/encoders")
    command.add_argument("--only", nargs="+", help="only these")
    return whole


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    options = parser().parse_args(arguments)
    options.do(options)


if __name__ == "__main__":
    try:
        main()
    except Mistake as error:
        sys.exit(f"python -m benchmarks: {error}")
