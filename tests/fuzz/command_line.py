"""The command line, in this process: wrong options and values, each judged by exit code, message and what is left."""

import functools
import io
import itertools
import random
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from st_extras import modules
from st_extras.cli.app import main
from tests.fixtures import SENTENCES
from tests.fuzz import world
from tests.fuzz.classify import ACCEPT, REFUSE, Case, UsageError

BAD_NUMBERS = ["nan", "inf", "-inf", "-1", "1e-300x", "x", "", " ", "True", "1e999", "-0.5", "9" * 400, "１"]
BAD_COUNTS = [*BAD_NUMBERS, "0", "0.5", "1e3"]
BAD_TEXTS = ["", " ", "nothing-of-the-kind", "a+b", "+", "🙂", "--", "../..", "x" * 300]
BAD_FILES = ["nowhere.txt", "nowhere/nothing.tsv", "", "{folder}", "{binary}", "{empty}", "{nul}", "{utf16}", "{cut}"]
BAD_SETTINGS = [
    "temperature=nan", "temperature=-1", "temperature=x", "temperature=1e-300", "temperature=True", "temperature=",
    "temperature", "=0.5", "nothing=1", "temperature=[1]", "temperature=null", "projection=False2", "projection=2",
    "projection=nope", "augmentations=x", 'augmentations=["dropout"]', "augmentations=dropout", "model=x", "self=1",
    "__class__=1", "temperature=0.1=2", "generator=1", "Temperature=1", "cutoff_rate=2", "temperature={}",
]  # fmt: skip

_GRADES = {"judged": "0\t1", "unknown": "no\t1", "nothing": "0\t0", "endless": "0\tinf", "none": "0\tnan", "two": "0"}
"""Folders of search collections, and what their judgement of a query says; all but the first are wrong."""
_BAD_FOLDERS = [*BAD_FILES, *(f"{{{name}}}" for name in [*_GRADES, "text"][1:])]
_NOISE = re.compile(r"\d+/\d+ \[|warn", re.IGNORECASE)  # progress bars, and what other libraries warn of


@functools.cache
def _places() -> dict[str, str]:
    """Good and bad files, and the encoders, by the names that stand for them in the arguments."""
    folder = world.new_folder()
    (folder / "a folder").mkdir()
    lines = [*SENTENCES, *(f"{first} and {second}" for first, second in itertools.pairwise(SENTENCES))]
    pairs = "".join(f"s\t{i % 6}\t{a}\t{b}\n" for i, (a, b) in enumerate(itertools.pairwise(SENTENCES * 2)))
    texts = {
        "text.txt": "\n".join(lines), "empty.txt": "", "cut.jsonl": '{"sentence": "a cat"}\n{"sentence": "a d',
        "nul.txt": "a cat\nthe\0dog\n", "sts.tsv": "subset\tscore\tsentence1\tsentence2\n" + pairs,
        "domain.txt": "\n".join(world.corpus()[:120]), "few.txt": "\n".join(world.corpus()[:10]),
        "queries.txt": "\n".join(text[3:] for text in world.corpus()[200:240]),
        "labelled.tsv": "label\ttext\n" + "".join(f"{i % 2}\t{text}\n" for i, text in enumerate(SENTENCES)),
    }  # fmt: skip
    for name, content in texts.items():
        (folder / name).write_text(content, encoding="utf8")
    (folder / "binary.txt").write_bytes(random.Random(0).randbytes(500))
    (folder / "utf16.txt").write_bytes("\n".join(SENTENCES).encode("utf-16-le"))
    for name, grade in _GRADES.items():
        world.search_folder(folder / name, grade)
    world.table().save(folder / "table.json")
    repal = modules.RepALPostProcessor.attach(world.encoder(), lambda_1=0.3, lambda_2=0.0, keywords="rake")
    repal.save(str(folder / "repal"))
    files = {path.stem: str(path) for path in folder.iterdir()}
    return files | {"folder": files["a folder"], "encoder": str(world.encoder_folder())}


_WORDS = {
    "train": "train simcse {encoder} {text} -o {output} --steps 2 --batch-size 4 --quiet",
    "slt-fai": "train slt-fai {encoder} {text} -o {output} --steps 2 --batch-size 4 --quiet --frequencies {table}",
    "repal fit": "refine repal {encoder} {text} -o {output} --set keywords=rake",
    "repal tune": "repal tune {repal} --sts {sts} -o {output}", "sif": "refine sif {encoder} {text} -o {output}",
    "whiten": "refine whitening {encoder} {text} -o {output}",
    "top": "refine all-but-the-top {encoder} {text} -o {output}",
    "locality": "refine locality-preserving {encoder} {domain} -o {output}", "info": "frequencies info {table}",
    "count": "frequencies count {encoder} {text} -o {output}.json", "calibrate": "calibrate {encoder} {domain}",
    "evaluate": "evaluate {encoder} --sts {sts} --sets mine", "labelled": "evaluate {encoder} --labeled {labelled}",
    "retrieval": "evaluate {encoder} --retrieval {judged}", "adapt": "adapt {encoder} {text} -o {output} --quiet",
    "search": "adapt-search {encoder} {domain} -o {output} --quiet --queries {queries}",
}  # fmt: skip
COMMANDS = {name: words.split() for name, words in _WORDS.items()}


def _set(name: str, values: list[str]) -> list[str]:
    return [f"{name}={value}" for value in values]


_SEEDS = ["x", "", "nan", "0.5", "-1", "9" * 40]
_SHARED = {
    "--batch-size": BAD_COUNTS, "--lr": [*BAD_NUMBERS, "0"], "--steps": [x for x in BAD_COUNTS if x != "-1"],
    "--eval-steps": BAD_COUNTS, "--max-length": BAD_COUNTS, "--layers": BAD_COUNTS, "--pooling": BAD_TEXTS,
    "--limit": BAD_COUNTS, "--dropout": [*BAD_NUMBERS, "1", "2"], "--lora": [*BAD_COUNTS, "4097"], "--dtype": BAD_TEXTS,
    "--prompt-template": ["no place", "{} and {}", " {}", "{x}", "chat"], "--seed": _SEEDS, "--dev": BAD_FILES,
    "--test": BAD_FILES, "--nothing": ["1"], "--column": [],
}  # fmt: skip
OPTIONS: dict[str, dict[str, list[str]]] = {
    "train": _SHARED | {"--loss-lr": [*BAD_NUMBERS, "0", "0.1"], "--patience": BAD_COUNTS,
        "--length-buckets": BAD_COUNTS, "--mini-batch-size": BAD_COUNTS, "--set": BAD_SETTINGS,
        "--complementary": ["self"], "--base": ["dclr"], "--frequencies": ["{table}"],
        "--base-set": ["temperature=0.1"], "--warmup-epochs": ["1"], "--processes": ["1"], "--phrases": ["rake"],
        "--top-k": ["2"], "--augment": ["rd"], "--language": ["english"], "--dev-set": []},
    "slt-fai": {"--frequencies": [*BAD_FILES, "wordfreq:xx", "wordfreq:"], "--base": BAD_TEXTS,
        "--set": ["mask_ratio=2", "warmup_steps=-1", "always_mask_one=2", "frequency_table=x"],
        "--base-set": BAD_SETTINGS, "--warmup-epochs": BAD_NUMBERS},
    "repal fit": {"--set": [x for name in ("lambda_1", "lambda_2") for x in _set(name, BAD_NUMBERS)] + [
        x for name in ("keywords", "redundancy", "on_missing_mask") for x in _set(name, BAD_TEXTS)]},
    "repal tune": {"--sts": BAD_FILES, "--nothing": ["1"]},
    "whiten": {"--set": _set("dimensions", [*(x for x in BAD_COUNTS if x != "1e3"), "17", "1000"])},
    "count": {"--add": BAD_FILES, "--processes": BAD_COUNTS, "-o": ["{folder}", "nowhere/at/all.json", ""]},
    "info": {"--ratio": [*BAD_NUMBERS, "0", "1"], "--encoder": ["nowhere", "", "{folder}"]},
    "evaluate": {"--sts": BAD_FILES, "--setting": BAD_TEXTS, "--split": ["x"], "--query-prompt": ["x"]},
    "retrieval": {"--retrieval": _BAD_FOLDERS, "--split": BAD_TEXTS, "--sts": ["{sts}"], "--labeled": ["{labelled}"],
        "--sets": ["x"], "--setting": ["wmean"], "--mteb": ["STS12"], "--label-column": ["x"]},
    "calibrate": {"--batch-size": BAD_COUNTS, "--max-line": [*BAD_COUNTS, "9"], "--seed": _SEEDS, "--column": ["x"]},
    "search": {"--queries": [*BAD_FILES, "{few}", "{domain}"], "--retrieval": _BAD_FOLDERS, "--passages": BAD_COUNTS,
        "--max-line": BAD_COUNTS, "--batch-size": BAD_COUNTS, "--column": ["x"]},
    "top": {"--set": _set("components", [*BAD_NUMBERS, "17"]), "--frequencies": ["x"], "--statistics": BAD_FILES},
    "sif": {"--set": _set("a", [*BAD_NUMBERS, "0"]), "--batch-size": ["4"], "--frequencies": ["{table}"]},
    "labelled": {"--labeled": [*BAD_FILES, "{sts}"], "--sts": ["{sts}"], "--sets": ["x"], "--setting": ["wmean"]},
    "adapt": {"--limit": [*BAD_COUNTS, "499"], "--minutes": [*BAD_NUMBERS, "0", "10001"],
        "--max-general-loss": BAD_NUMBERS, "--dev": BAD_FILES, "--labeled": BAD_FILES, "--batch-size": BAD_COUNTS,
        "--seed": _SEEDS, "--column": [], "--max-line": BAD_COUNTS, "--dev-set": []},
    "locality": {"--set": [*_set("neighbors", [*BAD_COUNTS, "60", "1001"]), *_set("power", [*BAD_NUMBERS, "10.5"]),
        *_set("epsilon", BAD_NUMBERS), *_set("recolor", [*BAD_NUMBERS, "1.5"]), *_set("seed", _SEEDS[:4]),
        *_set("max_sentences", [*(x for x in BAD_COUNTS if x != "1e3"), "49"])], "--batch-size": BAD_COUNTS},
}  # fmt: skip
"""Options of each command, with values that must be refused."""
GOOD = {
    "train": ["--set temperature=0.1", "--set projection=false --json"], "slt-fai": [""], "count": [""],
    "repal fit": ["--set lambda_2=0"], "repal tune": ["--sentence-term-only"], "evaluate": ["--json"],
    "info": ["--json", "--ratio 0.3"], "whiten": ["--set dimensions=4", "--stock"], "sif": ["--set a=0.1"],
    "adapt": ["", "--json --any-general-loss"], "locality": ["--set words=no --set recolor=0", "--stock --json"],
    "search": ["", "--keep-index --json", "--retrieval {judged}", "--passages 4 --query-prompt find"],
    "retrieval": ["", "--json --document-prompt x --split qrels"], "calibrate": ["", "--json"],
    "top": ["--set components=2 --stock"], "labelled": ["", "--json"],
}  # fmt: skip
UNREAD = [["sif", "--stock"]]
"""Flags that must be refused, because nothing reads them."""


def _filled(argument: str, output: Path) -> str:
    """An argument with the places for {name} filled in."""
    for name, path in {**_places(), "output": str(output)}.items():
        argument = argument.replace(f"{{{name}}}", path)
    return argument


def call(arguments: list[str]) -> str:
    """Run a command as the shell would and return what it printed.

    Raises:
        UsageError: if it ended with exit code 1 or 2; the message is what it wrote to stderr, of one line but for
            typer's own usage, which has up to four.
    """
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["st-extras", *arguments]
    code: Any = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = argv
    if code in (0, None):
        return out.getvalue()
    lines = [line for line in err.getvalue().splitlines() if line.strip() and not _NOISE.search(line)]
    usage = [line for line in lines if "Usage:" in line]
    if code not in (1, 2) or "Traceback" in err.getvalue() or len(lines) > (4 if usage else 1):
        raise RuntimeError(f"exit code {code}, {len(lines)} lines: {err.getvalue()[-300:]}")
    raise UsageError(lines[-1] if lines else "")


def _case(command: str, added: list[str], expected: str, names: tuple[str, ...] = (), at: int | None = None) -> Case:
    """A command with more arguments, or with one in the place of number ``at``."""
    folder = world.new_folder()
    arguments = [*COMMANDS.get(command, []), *added]
    if at is not None:
        arguments[at] = arguments.pop()
    elif added and arguments.index(added[0]) < len(arguments) - len(added):  # replace the good value of the option
        place = arguments.index(added[0])
        del arguments[place : place + 2]
    filled = [_filled(argument, folder / "out") for argument in arguments]

    def verify(printed: str) -> str | None:
        wanted = "-o" in filled and not list(folder.rglob("*.*"))
        return "it ended with 0 and saved nothing" if wanted else None

    name = f"{command}{'' if at is None else f', argument {at}'} {' '.join(added)[:80]!r}"
    return Case(name, lambda: call(filled), expected, names, (), verify, folder)


def _positional() -> list[Case]:
    """Arguments without a name: the objective, the encoder, the text."""
    made: list[tuple[str, int, str, tuple[str, ...]]] = []
    encoders = ("nowhere", "", "{folder}", "{text}", "{table}", "{binary}")
    shared = [(command, 2) for command in ("train", "repal fit", "whiten", "count", "locality", "top", "sif")]
    shared += [("adapt", 1), ("search", 1), ("calibrate", 1)]
    for command, at in (*shared, ("evaluate", 1), ("labelled", 1), ("retrieval", 1)):
        made += [(command, at, x, ("encoder", _places().get(x.strip("{}"), x) or "encoder")) for x in encoders]
    for (command, at), wrong in itertools.product(shared, BAD_FILES):
        made.append((command, at + 1, wrong, (_places().get(wrong.strip("{}"), wrong) or "''", "text")))
    made += [("train", 1, wrong, ("objective",)) for wrong in ("", "SimCSE", "nothing", "slt_fai")]
    return [_case(command, [wrong], REFUSE, names, at) for command, at, wrong, names in made]


def _taken() -> list[Case]:
    """An output folder that holds somebody's files, with and without --overwrite and --resume."""
    made = []
    commands = ("train", "repal fit", "whiten", "repal tune", "adapt", "locality", "search", "sif")
    for command, more in [*itertools.product(commands, ([], ["--overwrite"])), ("train", ["--resume"])]:
        folder = world.new_folder()
        output = folder / "out"
        output.mkdir()
        (output / "thesis.txt").write_text("mine")
        (output / "config.json").write_text("mine too")
        filled = [_filled(argument, output) for argument in (*COMMANDS[command], *more)]
        kept = f"{command} {more} into a folder with other files"
        made.append(Case(kept, lambda f=filled: call(f), REFUSE, ("out",), (), untouched=folder))
    return made


def cases(generator: random.Random) -> list[Case]:
    """Every option of every command with its wrong values; wrong arguments; and right ones."""
    made = [*_positional(), *_taken()]
    for command, options in OPTIONS.items():
        for option, values in options.items():
            shared = ("argument", "no such option") if option == "--nothing" else ()
            for value in values:
                words = option.strip("-")
                name = value.split("=")[0] if "set" in option and value else words
                names = (words, words.replace("-", "_"), name or words, *shared, *_ALIASES.get(option, ()))
                filled = _places().get(value.strip("{}"), value) if value else ""
                names += (filled,) if filled and value in (*BAD_FILES, *_BAD_FOLDERS) else ()
                made.append(_case(command, [option, value], REFUSE, names))
            made.append(_case(command, [option], REFUSE, ("requires an argument", "no such option", "missing")))
    made += [_case(command, added.split(), ACCEPT) for command, good in GOOD.items() for added in good]
    made += [_case(command, [flag], REFUSE, (flag,)) for command, flag in UNREAD]
    words = ["train", "repal", "x", "refine", "--", "-h", "tune", "\x00", "frequencies"]
    typed = (generator.choices(words, k=3) for _ in range(10))
    return made + [Case(f"{three}", lambda three=three: call(three)) for three in typed]


_ALIASES = {
    "--lr": ("learning-rate", "learning_rate"), "--loss-lr": ("loss-learning-rate", "loss_learning_rate"),
    "--steps": ("max_steps",), "--max-length": ("max_seq_length",), "--length-buckets": ("buckets",),
    "--dev": ("sts", "source"), "--test": ("sts", "source"), "--sts": ("source",), "--ratio": ("low_frequency_ratio",),
    "--processes": ("num_processes",), "-o": ("output",), "--add": ("path", "directory"),
    "--frequencies": ("wordfreq", "language"), "--warmup-epochs": ("epochs",), "--sets": ("name",), "--limit": (),
    "--labeled": ("label",), "--queries": ("source",), "--retrieval": ("folder",), "--encoder": ("tokenizer",),
}  # fmt: skip
"""What else a message may call an option: the argument of the function behind it."""
