"""``st-extras statistics``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import st_extras
from st_extras.modules import CorpusStatistics
from tests.cli.conftest import Run
from tests.conftest import SENTENCES, build_encoder


def test_shards_merged_are_one_pass(run: Run) -> None:
    for i in range(4):
        words = ("-o", f"{i}.safetensors", "--shard", f"{i}/4", "--batch-size", 1)
        code, out, err = run("statistics", "compute", "ENC", "TEXT", *words)
        assert (code, out) == (0, f"Statistics of 2 sentences, saved to {i}.safetensors\n"), err
    files = [f"{i}.safetensors" for i in range(4)]
    code, out, err = run("statistics", "merge", *files, "-o", "all.safetensors", "--json")
    assert code == 0, err
    assert json.loads(out) == {"sentences": 8, "dimensions": 16, "output": "all.safetensors"}
    assert run("statistics", "compute", "ENC", "TEXT", "-o", "whole.safetensors", "--batch-size", 1)[0] == 0
    merged, whole = (CorpusStatistics.load(f"{name}.safetensors") for name in ("all", "whole"))
    assert (merged.mean - whole.mean).abs().max() < 1e-9
    assert (merged.scatter - whole.scatter).abs().max() < 1e-9
    assert run("whiten", "fit", "ENC", "--statistics", "all.safetensors", "-o", "a", "--dimensions", 4)[0] == 0
    assert run("whiten", "fit", "ENC", "TEXT", "-o", "b", "--dimensions", 4, "--batch-size", 1)[0] == 0
    one, two = (st_extras.load(name).encode(SENTENCES) for name in ("a", "b"))
    assert np.abs(np.abs(one) - np.abs(two)).max() < 1e-3


def test_a_prompt(run: Run) -> None:
    assert run("statistics", "compute", "ENC", "TEXT", "-o", "p.safetensors", "--prompt", "the dog ")[0] == 0
    assert run("statistics", "compute", "ENC", "TEXT", "-o", "plain.safetensors")[0] == 0
    code, _, err = run("statistics", "merge", "p.safetensors", "plain.safetensors", "-o", "all.safetensors")
    assert code == 2
    assert "plain.safetensors does not fit p.safetensors: " in err
    assert "got the prompt 'the dog ' here and '' there" in err
    assert not Path("all.safetensors").exists()


def test_statistics_of_another_encoder(run: Run, tmp_path: Path) -> None:
    build_encoder(tmp_path / "other", seed=1)
    assert run("statistics", "compute", tmp_path / "other", "TEXT", "-o", "s.safetensors")[0] == 0
    code, _, err = run("whiten", "fit", "ENC", "--statistics", "s.safetensors", "-o", "out")
    assert code == 2
    assert "statistics must come from the encoder that they are used for" in err
    assert not Path("out").exists()


def test_statistics_of_another_prompt(run: Run) -> None:
    assert run("statistics", "compute", "ENC", "TEXT", "-o", "s.safetensors", "--prompt", "the dog ")[0] == 0
    fit = ("whiten", "fit", "ENC", "--statistics", "s.safetensors", "-o", "out")
    code, _, err = run(*fit)
    assert code == 2
    assert "got the prompt 'the dog ' here and '' there: give encode_options={'prompt': 'the dog '} (--prompt)" in err
    assert not Path("out").exists()
    assert run(*fit, "--prompt", "the dog ")[0] == 0


def test_an_existing_file_stays(run: Run) -> None:
    Path("s.safetensors").write_text("mine")
    for words in (("compute", "ENC", "TEXT"), ("merge", "s.safetensors")):
        code, _, err = run("statistics", *words, "-o", "s.safetensors")
        assert code == 2
        assert "--output must be a new file" in err
        assert Path("s.safetensors").read_text() == "mine"
    assert run("statistics", "compute", "ENC", "TEXT", "-o", "s.safetensors", "--overwrite")[0] == 0
    assert CorpusStatistics.load("s.safetensors").count == 8


def test_an_interruption_leaves_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CorpusStatistics, "update", interrupt)
    code, _, err = run("statistics", "compute", "ENC", "TEXT", "-o", "s.safetensors")
    assert code == 130
    assert "Interrupted" in err
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compute", "ENC", "TEXT", "-o", "no/out"), "--output must be a file in an existing folder, got 'no/out'"),
        (("compute", "ENC", "TEXT", "-o", "FOLDER"), "--output must be a file in an existing folder"),
        (("compute", "ENC", "EMPTY", "-o", "out"), r"empty\.txt' holds no sentences"),
        (("compute", "ENC", "LATIN", "-o", "out"), r"latin\.txt, line 3"),
        (("compute", "ENC", "none.txt", "-o", "out"), r"none\.txt"),
        (("compute", "ENC", "TEXT", "-o", "out", "--shard", "4/4"), "shard.* between 0 and 3, got 4"),
        (("compute", "ENC", "TEXT", "-o", "out", "--shard", "one"), "shard must be INDEX/COUNT"),
        (("compute", "ENC", "TEXT", "-o", "out", "--shard", "9/20"), "at least one text, got none"),
        (("compute", "none", "TEXT", "-o", "out"), "'none' could not be loaded"),
        (("merge", "none", "-o", "out"), "path must be an existing file, got 'none'"),
        (("merge", "TEXT", "-o", "out"), r"text\.txt: not a complete safetensors file"),
        (("merge", "TEXT", "TEXT", "-o", "out"), "files must each be given once, got 2 names of 1 files"),
    ],
)
def test_mistakes(assert_refused, arguments: tuple[str, ...], message: str) -> None:
    assert_refused(("statistics", *arguments), message)
