"""``st-extras recipe``; tests/training/test_recipe.py tests what it calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from st_extras.training.recipe import UNTUNED_LAMBDA_1
from tests.cli.conftest import Run
from tests.conftest import SENTENCES

MORE = [*SENTENCES, *(" ".join(reversed(sentence.split())) for sentence in SENTENCES)]
SHORT = ("--steps", 4, "--eval-steps", 2, "--batch-size", 4)


def test_stages(run: Run) -> None:
    Path("more.txt").write_text("\n".join(MORE), "utf8")
    code, out, err = run("recipe", "ENC", "more.txt", "-o", "made", "--dev", "STS", "--test", "STS", "--json", *SHORT)
    assert code == 0, err
    found = json.loads(out)
    assert list(found) == ["before", "trained", "refined", "best_step", "whitened", "lambda_1", "output"]
    assert found["refined"]["stsb_dev"] >= found["trained"]["stsb_dev"]
    code, out, err = run("evaluate", "made/refined", "--sts", "STS", "--sets", "sts12", "--json")
    assert json.loads(out)["sts12"] == pytest.approx(found["refined"]["sts12"], abs=0.01)
    code, out, err = run("evaluate", "made/encoder", "--sts", "STS", "--sets", "sts12", "--json")
    assert json.loads(out)["sts12"] == pytest.approx(found["trained"]["sts12"], abs=0.01)
    assert run("recipe", "ENC", "more.txt", "-o", "made", *SHORT)[0] == 2
    views = ("--augmentations", "dropout+shuffle")
    code, out, err = run("recipe", "ENC", "more.txt", "-o", "made", "--overwrite", "--quiet", *views, *SHORT)
    assert code == 0, err
    assert f", not whitened, lambda_1 {UNTUNED_LAMBDA_1:g}" in out
    assert "Spearman" not in out
    code, out, err = run("recipe", "ENC", "more.txt", "-o", "made", "--overwrite", "--json", "--whiten", *SHORT)
    assert json.loads(out)["whitened"], err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("TEXT",), "at least 10"),
        (("none.txt",), r"none\.txt"),
        (("TEXT", "--dev", "nowhere"), "nowhere"),
        (("MORE", "--steps", "0"), "--steps, unless it is -1, must be"),
        (("MORE", "--augmentations", "dropout"), "augmentations must be two"),
    ],
)
def test_mistakes(assert_refused, arguments: tuple[str, ...], message: str) -> None:
    assert_refused(("recipe", "ENC", arguments[0], "-o", "out", *arguments[1:]), message)
