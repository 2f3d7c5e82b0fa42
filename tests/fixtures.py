"""Everything the tests need is made here: no model hub, no downloads."""

import functools
import gc
import io
import os
import pickle
import types
from pathlib import Path
from typing import Any

import accelerate.utils.memory
import jinja2
import pytest
import sentence_transformers.util.environment
import torch
import typer
import yaml
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizer

from st_extras.samples import graded_pairs
from st_extras.text.frequency import FrequencyTable

torch.set_num_threads(1)
# Every training ends with a full garbage collection, every saved model compiles the template of its card anew, each
# run of the command line builds all commands: a sixth of the time of tests that train, half of that of the others.
accelerate.utils.memory.gc = types.SimpleNamespace(collect=lambda: 0)  # type: ignore[attr-defined]
jinja2.Environment.compile = functools.lru_cache(maxsize=32)(jinja2.Environment.compile)  # type: ignore[method-assign]
typer.main.get_command = functools.cache(typer.main.get_command)
# Every encoder that is loaded or saved asks for the metadata of installed packages, every one that is loaded starts
# threads for its few weights, every card is written and read by a slow parser, every file waits for the disk.
looked_up = sentence_transformers.util.environment
looked_up.check_package_availability = functools.cache(looked_up.check_package_availability)
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # type: ignore[misc]
os.fsync = lambda descriptor: None


def pytest_collection_finish() -> None:
    """Keep the imported modules out of garbage collection."""
    gc.collect()
    gc.freeze()


SENTENCES = [
    "a cat sat on the mat",
    "the dog ran in the park",
    "two birds sing near a river",
    "the old man read a red book",
    "a woman walks slowly to the market",
    "children play football in the rain",
    "the train leaves early every morning",
    "he cooks soup with fresh carrots",
]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_PIECES = ["##s", "##ing", "##ed", "##er", "##ly", ",", ".", "!", "'", "-"]


def vocabulary() -> list[str]:
    """Special tokens, the words of SENTENCES, letters and a few word pieces: 5 + words + pieces."""
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    pieces = [f"##{letter}" for letter in letters] + _PIECES
    return list(dict.fromkeys(_SPECIAL + words + letters + pieces))


def build_encoder(
    folder: Path,
    *,
    hidden_size: int = 16,
    layers: int = 2,
    dropout: float = 0.1,
    pooling: str = "mean",
    max_seq_length: int = 16,
    seed: int = 0,
    with_head: bool = False,
    characters: str = "",
) -> SentenceTransformer:
    """A tiny random BERT with its own tokenizer, saved to ``folder`` and loaded as a SentenceTransformer."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = [*vocabulary(), *sorted(set(characters))]
    (folder / "vocab.txt").write_text("\n".join(vocab), encoding="utf8")
    tokenizer = BertTokenizer(vocab={token: i for i, token in enumerate(vocab)}, model_max_length=max_seq_length)
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        (BertForMaskedLM(config) if with_head else BertModel(config)).save_pretrained(folder)
    transformer = Transformer(str(folder), max_seq_length=max_seq_length)
    pool = Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)
    return SentenceTransformer(modules=[transformer, pool], device="cpu")


@pytest.fixture(autouse=True)
def one_environment():
    """Keep ``os.environ``: datasets puts a copy in its place when it maps in processes, and rich reads the first."""
    kept = os.environ
    yield
    os.environ = kept  # noqa: B003


@pytest.fixture
def sentences():
    return list(SENTENCES)


class _Packed(pickle.Pickler):
    """A model that is copied a tenth of the time of ``copy.deepcopy``: its tensors stay beside the pickle."""

    def __init__(self, model: SentenceTransformer) -> None:
        self.file = io.BytesIO()
        super().__init__(self.file)
        self.tensors: dict[int, Tensor] = {}
        self.dump(model)

    def persistent_id(self, value: object) -> int | None:
        if not isinstance(value, Tensor):
            return None
        self.tensors[id(value)] = value
        return id(value)

    def copy(self) -> SentenceTransformer:
        copies = {
            key: nn.Parameter(value.detach().clone(), value.requires_grad)
            if isinstance(value, nn.Parameter)
            else value.clone()
            for key, value in self.tensors.items()
        }
        reader = pickle.Unpickler(io.BytesIO(self.file.getvalue()))
        reader.persistent_load = copies.__getitem__  # type: ignore[method-assign]
        found: SentenceTransformer = reader.load()
        return found


@pytest.fixture(scope="session")
def make_encoder(tmp_path_factory):
    """``make_encoder(dropout=0.0, hidden_size=8, ...)``: a tiny encoder of its own at each call."""

    @functools.cache
    def packed(**options: Any) -> _Packed:
        return _Packed(build_encoder(tmp_path_factory.mktemp("encoder") / "model", **options))

    return lambda **options: packed(**options).copy()


@pytest.fixture
def encoder(make_encoder):
    return make_encoder()


@pytest.fixture
def still_encoder(make_encoder):
    """Without dropout: two passes over the same sentence agree."""
    return make_encoder(dropout=0.0)


@pytest.fixture
def frequency_table(encoder, sentences):
    """Counts of the test sentences: 40 types, of which the 20 rarest are low-frequency at a ratio of 0.5."""
    return FrequencyTable.count(sentences, encoder.tokenizer)


@pytest.fixture
def few_general_pairs(monkeypatch):
    """Let adapt encode a tenth of the pairs of general English, which is most of the text that it encodes here."""
    few = tuple(column[::10] for column in graded_pairs())
    monkeypatch.setattr("st_extras.adaptation.domain.graded_pairs", lambda: few)


@pytest.fixture(scope="session")
def data_folder():
    """The real data sets, where ST_EXTRAS_DATA names their folder."""
    folder = os.environ.get("ST_EXTRAS_DATA")
    if not folder:
        pytest.skip("ST_EXTRAS_DATA is not set: it names the folder with the STS sets and unlabeled text")
    return Path(folder)
