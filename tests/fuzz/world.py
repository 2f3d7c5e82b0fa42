"""What the cases are tried on: a tiny encoder, its table, a folder for files; made once."""

import atexit
import functools
import itertools
import random
import shutil
import tempfile
from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_extras.text.frequency import FrequencyTable
from tests.fixtures import SENTENCES, build_encoder

_numbers = itertools.count()


@functools.cache
def root() -> Path:
    """A folder that goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="st-extras-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def new_folder() -> Path:
    """A new empty folder."""
    folder = root() / f"case{next(_numbers)}"
    folder.mkdir()
    return folder


@functools.cache
def encoder() -> SentenceTransformer:
    return build_encoder(root() / "encoder-parts")


@functools.cache
def encoder_folder() -> Path:
    """The encoder as a saved SentenceTransformer."""
    folder = root() / "encoder"
    encoder().save(str(folder))
    return folder


@functools.cache
def table() -> FrequencyTable:
    return FrequencyTable.count(SENTENCES, encoder().tokenizer)


@functools.cache
def corpus() -> list[str]:
    """560 different sentences of the words of SENTENCES: enough to fit a step on that looks for neighbours."""
    generator = random.Random(0)
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    drawn = (" ".join(generator.choices(words, k=generator.randint(4, 7))) for _ in range(600))
    return list(dict.fromkeys(drawn))[:560]


def search_folder(folder: Path, judgement: str = "0\t1") -> Path:
    """A search collection of eight documents and as many queries, with one judgement of the first query."""
    folder.mkdir()
    for name, texts in (("corpus", SENTENCES), ("queries", [text[2:] for text in SENTENCES])):
        (folder / f"{name}.tsv").write_text("_id\ttext\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(texts)), "utf8")
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n0\t{judgement}\n0\t1\t0\n", "utf8")
    return folder
