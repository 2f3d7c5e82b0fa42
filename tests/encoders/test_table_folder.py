"""EmbeddingTable in a folder: resumed, merged, mapped."""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_extras.encoders import EmbeddingTable, table_computing
from st_extras.encoders import table_folder as module
from st_extras.encoders.table_folder import TableFolder, hash_keys
from st_extras.losses import DCLRLoss
from st_extras.losses.parts.guide import make_guide

Maker = Callable[..., SentenceTransformer]
QUIET: dict[str, Any] = {"show_progress_bar": False, "batch_size": 4}
WORDS = ("cat", "dog", "mat", "park", "river", "man", "book", "woman", "market", "rain", "train", "soup")


def corpus(count: int) -> list[str]:
    """Distinct sentences, with repeated ones among them: every fifth is an earlier one."""
    made = [f"the {a} sat near a {b} in the {c}" for a in WORDS for b in WORDS for c in WORDS][:count]
    return [made[i // 2] if i % 5 == 4 else sentence for i, sentence in enumerate(made)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_computing, "CHUNK", 16)


@pytest.fixture
def pair(make_encoder: Maker) -> tuple[SentenceTransformer, SentenceTransformer]:
    return make_encoder(), make_encoder(seed=1, hidden_size=8)


Pair = tuple[SentenceTransformer, SentenceTransformer]


def lookup(table: EmbeddingTable, model: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    return table(model.preprocess(texts))


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("float16", 1e-3)])
def test_a_folder_equals_the_table_in_memory(pair: Pair, tmp_path: Path, dtype: Any, error: float) -> None:
    texts = [*corpus(70), "", "☃", "a cat " * 20]
    memory = EmbeddingTable.compute(*pair, texts, **QUIET)
    folder = EmbeddingTable.compute(*pair, iter(texts), folder=tmp_path / "table", dtype=dtype, **QUIET)
    assert len(folder) == len(memory)
    files = sorted(file.name for file in (tmp_path / "table").iterdir())
    assert files == [*(f"chunk-0000{i}.safetensors" for i in range(5)), "index.bin", "settings.json", "table.json"]
    for table in (
        folder,
        EmbeddingTable.load(tmp_path / "table"),
        copy.deepcopy(folder),
        pickle.loads(pickle.dumps(folder)),
    ):
        for batch in (texts[:9], texts[::-7], texts[-3:]):
            found = lookup(table, pair[0], batch)
            assert found.dtype == torch.float32
            torch.testing.assert_close(found, lookup(memory, pair[0], batch), atol=error, rtol=0)
    assert folder.name == f"EmbeddingTable table of {len(memory)} sentences, 8 dimensions"


def test_a_loss_with_a_folder(pair: Pair, tmp_path: Path) -> None:
    texts = corpus(20)
    table = EmbeddingTable.compute(*pair, texts, folder=tmp_path / "table", **QUIET)
    loss = DCLRLoss(pair[0], complementary_table=table, threshold=0.5)
    features = [pair[0].preprocess(texts[:8])]
    loss(features).backward()
    by_model: Any = make_guide(pair[0], pair[1], None)
    torch.testing.assert_close(loss.instance_weights.guide([features]), by_model([features]))
    assert loss.to(torch.float64) is loss
    with pytest.raises(ValueError, match=r"no embedding for '.*a red cat"):
        loss([pair[0].preprocess([texts[0], "a red cat"])])


def interrupted(texts: list[str], at: int) -> Iterator[str]:
    yield from texts[:at]
    raise KeyboardInterrupt


@pytest.mark.parametrize("at", [0, 10, 40, 64])
def test_an_interrupted_computation_goes_on(pair: Pair, tmp_path: Path, at: int) -> None:
    texts = corpus(70)
    whole = EmbeddingTable.compute(*pair, texts, folder=tmp_path / "whole", **QUIET)
    path = tmp_path / "table"
    with pytest.raises(KeyboardInterrupt):
        EmbeddingTable.compute(*pair, interrupted(texts, at), folder=path, **QUIET)
    done = sorted(file.name for file in path.glob("chunk*"))
    assert len(done) == at // 16
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} is not a complete folder.*goes on.*\.$"):
        EmbeddingTable.load(path)
    (path / f".chunk-{len(done):05d}.safetensors.1.partial").write_bytes(b"half a chunk")
    before = {name: (path / name).stat().st_mtime_ns for name in done}
    table = EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
    assert before == {name: (path / name).stat().st_mtime_ns for name in done}  # not written again
    assert len(table) == len(whole)
    assert torch.equal(lookup(table, pair[0], texts), lookup(whole, pair[0], texts))
    for name in ("index.bin", "chunk-00002.safetensors"):
        assert (path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(path.glob("*.partial"))


KILLED = """
import sys
from tests.encoders.test_table_folder import SentenceTransformer, compute_slowly
compute_slowly(*(SentenceTransformer(path, device="cpu") for path in sys.argv[1:3]), sys.argv[3])
"""


def compute_slowly(model: SentenceTransformer, guide: SentenceTransformer, folder: str) -> None:
    """Run in a process that is to be killed: small chunks, and a line on stdout when one is begun."""
    table_computing.CHUNK = 16  # type: ignore[misc]

    def texts() -> Iterator[str]:
        for number, text in enumerate(corpus(400)):
            if number % 16 == 0:
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()
                time.sleep(0.05)
            yield text

    EmbeddingTable.compute(model, guide, texts(), folder=folder, **QUIET)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.0, 0.02, 0.04])
def test_a_killed_computation_goes_on(pair: Pair, tmp_path: Path, moment: float) -> None:
    """SIGKILL, twice, while a chunk is read, embedded or written: then the table is that of one undisturbed call."""
    for name, model in zip(("model", "guide"), pair, strict=True):
        model.save(str(tmp_path / name))
    path, root = tmp_path / "table", Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", KILLED, tmp_path / "model", tmp_path / "guide", path]
    done = 0
    for chunks in (4, 9):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=dict(os.environ)) as process:
            for line in process.stdout or ():
                if int(line) >= 16 * chunks:
                    break
            time.sleep(moment)
            process.kill()
        assert process.returncode == -signal.SIGKILL
        before, done = done, len(list(path.glob("chunk-*.safetensors")))
        assert before < chunks - 1 <= done < 25
    kept = {file.name: file.stat().st_mtime_ns for file in path.glob("chunk-*.safetensors")}
    pair = tuple(SentenceTransformer(str(tmp_path / name), device="cpu") for name in ("model", "guide"))
    table = EmbeddingTable.compute(*pair, corpus(400), folder=path, **QUIET)
    whole = EmbeddingTable.compute(*pair, corpus(400), folder=tmp_path / "whole", **QUIET)
    assert kept.items() <= {file.name: file.stat().st_mtime_ns for file in path.iterdir()}.items()
    for file in (tmp_path / "whole").glob("chunk-*"):
        theirs, ours = (module.safe_open(str(f), "np") for f in (file, path / file.name))
        assert (theirs.get_tensor("keys") == ours.get_tensor("keys")).all()
    assert (path / "index.bin").read_bytes() == (tmp_path / "whole" / "index.bin").read_bytes()
    found = lookup(table, pair[0], corpus(400))
    torch.testing.assert_close(found, lookup(whole, pair[0], corpus(400)), atol=1e-6, rtol=0)
    assert not list(path.glob("*.partial"))


def test_a_finished_folder_takes_more_sentences_but_no_others(pair: Pair, tmp_path: Path) -> None:
    texts = corpus(60)
    EmbeddingTable.compute(*pair, texts[:40], folder=tmp_path / "table", **QUIET)
    table = EmbeddingTable.compute(*pair, texts, folder=tmp_path / "table", **QUIET)
    memory = EmbeddingTable.compute(*pair, texts, **QUIET)
    assert len(table) == len(memory)
    torch.testing.assert_close(lookup(table, pair[0], texts), lookup(memory, pair[0], texts))
    for others in (texts[::-1], texts[:5], []):
        with pytest.raises(ValueError, match=r"^sentences must begin with those that .*\.$"):
            EmbeddingTable.compute(*pair, others, folder=tmp_path / "table", **QUIET)


@pytest.mark.slow
@pytest.mark.parametrize("in_folder", [False, True])
def test_two_devices_get_one_pool(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_folder: bool) -> None:
    texts, started = [*corpus(40), "a cat sings, " * 20], []
    start = SentenceTransformer.start_multi_process_pool
    monkeypatch.setattr(
        SentenceTransformer, "start_multi_process_pool", lambda *a, **k: started.append(1) or start(*a, **k)
    )
    alone = EmbeddingTable.compute(*pair, texts, **QUIET)
    options: dict[str, Any] = {"encode_options": {"device": ["cpu", "cpu"], "chunk_size": 8}}
    options |= {"folder": tmp_path / "table"} if in_folder else {}
    table = EmbeddingTable.compute(*pair, texts, **options, **QUIET)
    assert started == [1]  # not one a chunk
    torch.testing.assert_close(lookup(table, pair[0], texts), lookup(alone, pair[0], texts), atol=1e-6, rtol=0)


@pytest.mark.parametrize("wrong", [{"prompt": "a"}, {"device": "cpu", "normalize_embeddings": True}, ["cpu"]])
def test_other_options_of_encode_are_refused(pair: Pair, wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^encode_options must be a dictionary of device, pool .*\.$"):
        EmbeddingTable.compute(*pair, corpus(4), encode_options=wrong, **QUIET)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_merged_shards_equal_one_pass(pair: Pair, tmp_path: Path, count: int) -> None:
    texts = corpus(90)
    whole = EmbeddingTable.compute(*pair, texts, folder=tmp_path / "whole", **QUIET)
    for shard in range(count):
        EmbeddingTable.compute(*pair, texts[shard::count], folder=tmp_path / f"{shard}", **QUIET)
    merged = EmbeddingTable.merge([tmp_path / f"{shard}" for shard in range(count)], tmp_path / "merged")
    assert len(merged) == len(whole)
    torch.testing.assert_close(lookup(merged, pair[0], texts), lookup(whole, pair[0], texts), atol=1e-6, rtol=0)
    for shard in range(count):
        for file in (tmp_path / f"{shard}").iterdir():
            file.unlink()  # the merged table does not need them
    torch.testing.assert_close(
        lookup(EmbeddingTable.load(tmp_path / "merged"), pair[0], texts), lookup(merged, pair[0], texts)
    )
    with pytest.raises(
        ValueError,
        match=r"^folder must have been begun with the same settings, got .* another merged: take a new folder\.$",
    ):
        EmbeddingTable.compute(*pair, texts, folder=tmp_path / "merged", **QUIET)


def test_what_a_folder_refuses(pair: Pair, make_encoder: Maker, tmp_path: Path) -> None:
    texts, path = corpus(20), tmp_path / "table"
    table = EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
    for options, name in (({"prompt": "the "}, "prompt"), ({"dtype": "float16"}, "dtype")):
        with pytest.raises(ValueError, match=rf"^folder must have been begun .* another {name}: take a new folder\.$"):
            EmbeddingTable.compute(*pair, texts, folder=path, **options, **QUIET)
    with pytest.raises(ValueError, match="another max_seq_length"):
        EmbeddingTable.compute(make_encoder(max_seq_length=9), pair[1], texts, folder=path, **QUIET)
    EmbeddingTable.compute(*pair, texts, folder=tmp_path / "other", prompt="the ", **QUIET)
    with pytest.raises(ValueError, match=r"^tables must have the same settings, got .*\.$"):
        EmbeddingTable.merge([path, tmp_path / "other"], tmp_path / "new")
    with pytest.raises(ValueError, match=r"^folder must be new or empty, got .*\.$"):
        EmbeddingTable.merge([path], tmp_path / "other")
    with pytest.raises(ValueError, match=r"^tables must be a list of at least one folder, got "):
        EmbeddingTable.merge([], tmp_path / "new")
    with pytest.raises(ValueError, match=r"^folder must be new, empty or one of an earlier compute, got .*\.$"):
        EmbeddingTable.compute(*pair, texts, folder=tmp_path, **QUIET)
    with pytest.raises(ValueError, match=r"^folder must be in an existing folder"):
        EmbeddingTable.compute(*pair, texts, folder=tmp_path / "no" / "table", **QUIET)
    with pytest.raises(ValueError, match=r"^sentences must hold at least one sentence, got none\.$"):
        EmbeddingTable.compute(*pair, [], folder=tmp_path / "empty", **QUIET)
    with pytest.raises(ValueError, match=r'^dtype must be "float32" without a folder'):
        EmbeddingTable.compute(*pair, texts, dtype="float16", **QUIET)
    with pytest.raises(ValueError, match="save is for tables in memory"):
        table.save(tmp_path / "file")
    with pytest.raises(ValueError, match="embeddings must fit into memory"):
        table.embeddings.size()
    with pytest.raises(ValueError, match="is not a complete folder"):
        EmbeddingTable.load(tmp_path)


@pytest.mark.parametrize("file", ["chunk-00000.safetensors", "index.bin", "table.json", "settings.json"])
def test_a_damaged_folder_is_refused_by_name(pair: Pair, tmp_path: Path, file: str) -> None:
    texts, path = corpus(20), tmp_path / "table"
    EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
    (path / file).write_bytes((path / file).read_bytes()[:-9])
    said = rf"{re.escape(str(path / file))}|{re.escape(str(path))} is not"
    if file != "settings.json":
        with pytest.raises(ValueError, match=said):
            EmbeddingTable.load(path)
    if file.startswith(("chunk", "settings")):
        with pytest.raises(ValueError, match=said):
            EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
    else:  # both are made again
        table = EmbeddingTable.compute(*pair, texts, folder=path, **QUIET)
        assert lookup(table, pair[0], texts).isfinite().all()


def test_keys_with_zero_bytes_are_found(tmp_path: Path) -> None:
    """Numpy's byte strings drop trailing zeros where they are shown, and must not where they are compared."""
    rows = [[number] for number in range(3000)]  # about a dozen hashes end in a zero byte
    keys = hash_keys(rows)
    assert any(len(key) < 16 for key in keys.tolist())
    table_folder = tmp_path / "table"
    module.begin(table_folder, {"vocabulary": None})
    angles = np.arange(3000) / 3000
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    module.write_chunk(table_folder, 0, keys, vectors, 3000, "")
    table = module.finish(table_folder)
    found = table.find(rows)
    assert found == list(range(3000))
    np.testing.assert_array_equal(table.fetch([row for row in found if row is not None]).numpy(), vectors)
    assert table.find([[5000], [1], []]) == [None, 1, None]
    assert isinstance(table, TableFolder)


SETTINGS: dict[str, Any] = {"vocabulary": None, "dtype": "float32"}


def written(path: Path, chunks: list[list[int]], dimension: int = 4) -> TableFolder:
    """A folder with these keys, one row of token ids each; row i is the unit vector i % D."""
    module.begin(path, SETTINGS)
    row = 0
    for number, numbers in enumerate(chunks):
        vectors = np.eye(dimension, dtype=np.float32)[[(row + i) % dimension for i in range(len(numbers))]]
        module.write_chunk(path, number, hash_keys([[key] for key in numbers]), vectors, len(numbers), "")
        row += len(numbers)
    return module.finish(path)


@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_of_equal_keys_the_first_counts_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    first, second = list(range(200)), [5000 + i for i in range(100)] + list(range(100))[::-1]
    folder = written(tmp_path / "table", [first, second])
    assert folder.count == 300
    assert folder.find([[key] for key in range(200)]) == list(range(200))  # not row 300 and on


def test_keys_before_and_behind_all_others_are_not_found(tmp_path: Path) -> None:
    folder = written(tmp_path / "table", [[0, 1], [2]])
    assert folder.find([[key] for key in range(50)]) == [0, 1, 2, *[None] * 47]


def test_tables_of_other_dimensions_are_not_merged(tmp_path: Path) -> None:
    written(tmp_path / "a", [[0, 1]])
    written(tmp_path / "b", [[2, 3]], dimension=3)
    with pytest.raises(ValueError, match=r"^tables must have the same settings, got .*b with others than .*a\.$"):
        EmbeddingTable.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both")


def test_a_sentence_of_an_earlier_chunk_is_not_embedded_again(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = corpus(20)
    embedded: list[str] = []
    embed = table_computing.SentenceEmbedder.embed
    monkeypatch.setattr(
        table_computing.SentenceEmbedder,
        "embed",
        lambda self, batch, *args, **more: (embedded.extend(batch), embed(self, batch, *args, **more))[1],
    )
    EmbeddingTable.compute(*pair, texts * 3, folder=tmp_path / "table", **QUIET)
    assert len(embedded) == len(set(texts))


def test_the_digest_tells_where_sentences_end() -> None:
    assert table_computing._chain("", ["ab", "c"]) != table_computing._chain("", ["a", "bc"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3.0])
def test_damaged_vectors_are_refused_when_they_are_looked_up(tmp_path: Path, value: float) -> None:
    path = tmp_path / "table"
    written(path, [[0, 1, 2]])
    vectors = np.eye(4, dtype=np.float32)[:3]
    vectors[1, 1] = value
    module.write_chunk(path, 0, hash_keys([[0], [1], [2]]), vectors, 3, "")
    folder = TableFolder(path)
    assert folder.fetch([0, 2]).shape == (2, 4)
    with pytest.raises(ValueError, match=r"table: embeddings must be finite and of norm 1, got others"):
        folder.fetch([1])


@pytest.mark.parametrize(
    "change",
    [{"count": 4}, {"count": True}, {"count": None}, {"dimension": 0}, {"dimension": "4"}, {"chunks": []},
     {"chunks": [["../chunk", 3, 1]]}, {"chunks": [["chunk-00000.safetensors", 3]]}, {"settings": {}},
     {"version": True}, {"chunks": None}],
)  # fmt: skip
def test_a_damaged_description_is_refused_by_name(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "table"
    written(path, [[0, 1, 2]])
    module._write_json(path / "table.json", module._read_json(path / "table.json") | change)
    with pytest.raises(ValueError, match=r"table\.json must be as EmbeddingTable\.compute wrote it, got a damaged"):
        TableFolder(path)


def test_an_index_of_other_rows_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "table", [[0, 1, 2]])
    with pytest.raises(ValueError, match=r"index\.bin must name rows of the chunks, got others"):
        folder.fetch([0, 3])


@pytest.mark.parametrize("wrong", [3, b"x", ["a"], True])
def test_folders_that_are_no_paths_are_refused(pair: Pair, tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^folder must be the path of a folder, got "):
        EmbeddingTable.compute(*pair, corpus(3), folder=wrong, **QUIET)
    with pytest.raises(ValueError, match=r"^folder must be the path of a folder, got "):
        EmbeddingTable.merge([tmp_path], wrong)
    with pytest.raises(ValueError, match=r"^tables"):
        EmbeddingTable.merge(wrong if isinstance(wrong, bytes) else [wrong], tmp_path / "new")
    for tables in ("text", 3, None, [], {"a"}):
        with pytest.raises(ValueError, match=r"^tables must be a list of at least one folder, got "):
            EmbeddingTable.merge(tables, tmp_path / "new")  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", [0, 3, "\ud800", ["a"]])
def test_a_prompt_that_is_no_text_is_refused(pair: Pair, prompt: Any) -> None:
    with pytest.raises(ValueError, match=r"^prompt: "):
        EmbeddingTable.compute(*pair, corpus(3), prompt=prompt, **QUIET)
