"""``st-extras frequencies``: counting, adding, describing, and what is left when it is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_extras.text.frequency import FrequencyTable
from tests.cli.conftest import Run
from tests.conftest import SENTENCES


@pytest.fixture
def table(run: Run) -> str:
    assert run("frequencies", "count", "ENC", "TEXT", "-o", "table.json", "--quiet")[0] == 0
    return "table.json"


def test_count_equals_python(table: str, inputs: Path) -> None:
    tokenizer = SentenceTransformer(str(inputs / "encoder")).tokenizer
    counted = FrequencyTable.load(table, tokenizer)
    assert counted.counts.equal(FrequencyTable.count(SENTENCES, tokenizer).counts)


def test_add_tsv_and_info(run: Run, table: str) -> None:
    twice = ("frequencies", "count", "ENC", "TEXT", "-o", "twice.tsv", "--add", table, "--json")
    code, out, _ = run(*twice)
    assert code == 0
    report = json.loads(out)
    code, out, _ = run("frequencies", "info", table, "--encoder", "ENC", "--json")
    assert code == 0
    assert report["tokens"] == 2 * json.loads(out)["tokens"] > 0
    code, out, _ = run("frequencies", "info", "twice.tsv")
    assert code == 0
    assert "types seen" in out


def test_shards_of_a_folder_add_up(run: Run, table: str) -> None:
    Dataset.from_dict({"sentence": SENTENCES[:5]}).to_parquet("parts/a.parquet")
    Dataset.from_dict({"sentence": SENTENCES[5:]}).to_parquet("parts/b.parquet")
    for shard in range(3):
        added = () if shard == 0 else ("--add", f"{shard - 1}.json")
        count = ("frequencies", "count", "ENC", "parts", "--shard", f"{shard}/3", "-o", f"{shard}.json", "--quiet")
        assert run(*count, *added)[0] == 0
    assert Path("2.json").read_bytes() == Path(table).read_bytes()


def test_a_table_is_replaced_if_asked(run: Run, table: str) -> None:
    count = ("frequencies", "count", "ENC", "TEXT", "-o", table, "--add", table, "--json")
    before = Path(table).read_bytes()
    assert run(*count)[0] == 2
    assert Path(table).read_bytes() == before
    assert run(*count, "--overwrite")[0] == 0
    assert Path(table).read_bytes() != before


def test_a_table_without_rare_types(run: Run) -> None:
    Path("one.json").write_text('{"cat": 3}')
    code, out, _ = run("frequencies", "info", "one.json", "--json")
    assert (code, json.loads(out)["highest low-frequency count"]) == (0, 0)


def test_mistakes(run: Run, tmp_path: Path) -> None:
    Path("other.tsv").write_text("token\tcount\nfoo\t3\n")
    for arguments, reason in (
        (("frequencies", "info", "none.json"), "none.json"),
        (("frequencies", "info", "other.tsv", "--encoder", "ENC"), "foo"),
        (("frequencies", "count", str(tmp_path), "TEXT", "-o", "t.json"), "encoder must have a tokenizer"),
        (("frequencies", "count", "ENC", "none.txt", "-o", "t.json"), "none.txt"),
        (("frequencies", "count", "ENC", "TEXT", "-o", "t.json", "--shard", "3"), "shard must be INDEX/COUNT"),
        (("frequencies", "count", "ENC", "wordfreq:en", "-o", "t.json", "--shard", "0/2"), "--shard needs text"),
    ):
        code, _, err = run(*arguments)
        assert (code, reason in err, err.count("\n")) == (2, True, 1)
    assert not Path("t.json").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--add", "none.json", "-o", "t.json"), "none.json"),
        (("-o", "no/t.json"), "--output must be a file in an existing folder, got 'no/t.json'"),
        (
            ("-o", "there.json"),
            "--output must be a new file, got 'there.json': choose another name, or add",
        ),
        (("-o", "."), "--output must be a file in an existing folder, got '.'"),
        (("wordfreq:en", "-o", "t.json"), "wordfreq must be the only text"),
    ],
)
def test_mistakes_show_before_anything_is_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], reason: str
) -> None:
    monkeypatch.setattr(FrequencyTable, "count", lambda *a, **k: pytest.fail("counted"))
    Path("there.json").write_text("mine")
    code, _, err = run("frequencies", "count", "ENC", "TEXT", *arguments)
    assert (code, reason in err) == (2, True)
    assert Path("there.json").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["counting", "writing"])
def test_killed_half_way_it_leaves_the_old_table(inputs: Path, tmp_path: Path, moment: str) -> None:
    text, table = tmp_path / "text.txt", tmp_path / "table.json"
    text.write_text("\n".join(SENTENCES * 50_000) if moment == "counting" else SENTENCES[0])
    table.write_text("as it was")
    code = "from st_extras.cli import main; main()"
    if moment == "writing":  # half of the file is on the disk when the process dies
        code = (
            "import os, signal; from st_extras.text import frequency\n"
            "def die(handle):\n"
            "    os.truncate(handle, os.fstat(handle).st_size // 2)\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            f"frequency.os.fsync = die\n{code}"
        )
    command = [sys.executable, "-c", code, "frequencies", "count", inputs / "encoder", text, "-o", table, "--overwrite"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        shown = b""
        while moment == "counting" and not re.search(rb"Counting tokens: [1-9]", shown):
            more = os.read(process.stderr.fileno(), 1000)  # type: ignore[union-attr]
            assert more, shown
            shown += more
        if moment == "counting":
            process.kill()
        _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err
    assert table.read_text() == "as it was"
    left = {path.name for path in tmp_path.iterdir()} - {text.name, table.name}
    assert all(name.startswith(".table.json.") for name in left)
    assert len(left) == (moment == "writing")
