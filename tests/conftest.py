"""Everything the tests need is made here: no model hub, no downloads."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizer

from st_extras.text.frequency import FrequencyTable
from tests.cli_fixtures import inputs, run  # noqa: F401  (fixtures)

torch.set_num_threads(1)

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
) -> SentenceTransformer:
    """A tiny random BERT with its own tokenizer, saved to ``folder`` and loaded as a SentenceTransformer."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = vocabulary()
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


@pytest.fixture
def sentences() -> list[str]:
    return list(SENTENCES)


@pytest.fixture
def make_encoder(tmp_path: Path) -> Callable[..., SentenceTransformer]:
    """``make_encoder(dropout=0.0, hidden_size=8, ...)``: a fresh tiny encoder at each call."""
    count = iter(range(10_000))

    def make(**options: object) -> SentenceTransformer:
        return build_encoder(tmp_path / f"encoder{next(count)}", **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def encoder(make_encoder: Callable[..., SentenceTransformer]) -> SentenceTransformer:
    return make_encoder()


@pytest.fixture
def still_encoder(make_encoder: Callable[..., SentenceTransformer]) -> SentenceTransformer:
    """Without dropout: two passes over the same sentence agree."""
    return make_encoder(dropout=0.0)


@pytest.fixture
def frequency_table(encoder: SentenceTransformer, sentences: list[str]) -> FrequencyTable:
    """Counts of the test sentences: 40 types, of which the 20 rarest are low-frequency at a ratio of 0.5."""
    return FrequencyTable.count(sentences, encoder.tokenizer)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The real data sets, where ST_EXTRAS_DATA names their folder."""
    folder = os.environ.get("ST_EXTRAS_DATA")
    if not folder:
        pytest.skip("ST_EXTRAS_DATA is not set: it names the folder with the STS sets and unlabeled text")
    return Path(folder)
