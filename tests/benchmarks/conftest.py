"""What the tests of the benchmarks share: their marker, records made by hand, and what makes a command short."""

import sys
from pathlib import Path

import pytest
import torch

from st_extras.evaluation import SEVEN_STS
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.samples.encoder import raw_encoder
from st_extras.text.frequency import FrequencyTable
from tests.fixtures import build_encoder

HERE = Path(__file__).resolve().parent
if sys.version_info < (3, 11):
    collect_ignore_glob = ["*"]  # the benchmarks read their configurations with tomllib


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing for the fast suite, which leaves all of these out."""
    return True if "not benchmarks" in config.option.markexpr else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("benchmarks")


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder in place of benchmarks/results."""
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr("benchmarks.records.RESULTS", folder)
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "encoder"
    model = build_encoder(folder, layers=3, hidden_size=128, max_seq_length=32)
    with torch.no_grad():
        model.transformers_model.get_input_embeddings().weight.mul_(10)  # so that its words are not all alike
    model.transformers_model.save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_minilm(tiny_folder, monkeypatch):
    """A tiny random encoder in place of the packaged MiniLM."""
    modules = ("st_extras.samples.encoder", "benchmarks.building", "benchmarks.scale", "benchmarks.speed_bench")
    for module in modules:
        monkeypatch.setattr(f"{module}.packaged_minilm", lambda: tiny_folder)
    return tiny_folder


def write_data(folder: Path) -> None:
    """Write sentences, their token counts, some graded pairs as STS-B dev, and a seventh of them as each test set."""
    sentences = sample_sentences()[::8]
    (folder / "sentences.txt").write_text("\n".join(sentences), encoding="utf8")
    table = FrequencyTable.count(sentences, raw_encoder("cpu").tokenizer)
    rows = zip(table.tokens, table.counts.tolist(), strict=True)
    (folder / "frequencies.tsv").write_text("".join(f"{token}\t{count}\n" for token, count in rows))
    pairs = list(zip(*graded_pairs(), strict=True))[::4]
    sets = {"stsb_dev": pairs} | {name: pairs[i :: len(SEVEN_STS)] for i, name in enumerate(SEVEN_STS)}
    for name, rows in sets.items():
        lines = [f"sample\t{score}\t{first}\t{second}" for first, second, score in rows]
        (folder / f"{name}.tsv").write_text("\n".join(["subset\tscore\tsentence1\tsentence2", *lines]), encoding="utf8")
