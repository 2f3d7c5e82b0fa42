"""The commands of the single methods: slt-fai, consert, adcse, paser, frequencies, repal, whiten."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import st_extras
from st_extras import load
from st_extras.evaluation import UnlabeledSelectionEvaluator, sts_evaluator
from st_extras.text.frequency import FrequencyTable
from tests.cli_fixtures import Run
from tests.conftest import SENTENCES

SMALL = ("--batch-size", 4, "--quiet", "--json")


@pytest.fixture
def frequencies(run: Run) -> str:
    assert run("frequencies", "count", "ENC", "TEXT", "-o", "table.json", "--quiet")[0] == 0
    return "table.json"


class TestFrequencies:
    def test_count_equals_python(self, run: Run, inputs: Path, frequencies: str) -> None:
        tokenizer = SentenceTransformer(str(inputs / "encoder")).tokenizer
        counted = FrequencyTable.load(frequencies, tokenizer)
        assert counted.counts.equal(FrequencyTable.count(SENTENCES, tokenizer).counts)

    def test_add_tsv_and_info(self, run: Run, frequencies: str) -> None:
        twice = ("frequencies", "count", "ENC", "TEXT", "-o", "twice.tsv", "--add", frequencies, "--json")
        code, out, _ = run(*twice)
        assert code == 0
        report = json.loads(out)
        code, out, _ = run("frequencies", "info", frequencies, "--encoder", "ENC", "--json")
        assert code == 0
        assert report["tokens"] == 2 * json.loads(out)["tokens"] > 0
        code, out, _ = run("frequencies", "info", "twice.tsv")
        assert code == 0
        assert "types seen" in out

    def test_mistakes(self, run: Run, tmp_path: Path) -> None:
        Path("other.tsv").write_text("token\tcount\nfoo\t3\n")
        for arguments, reason in (
            (("frequencies", "info", "none.json"), "none.json"),
            (("frequencies", "info", "other.tsv", "--encoder", "ENC"), "foo"),
            (("frequencies", "count", str(tmp_path), "TEXT", "-o", "t.json"), "no tokenizer"),
            (("frequencies", "count", "ENC", "none.txt", "-o", "t.json"), "none.txt"),
        ):
            code, _, err = run(*arguments)
            assert (code, reason in err, err.count("\n")) == (2, True, 1)
        assert not Path("t.json").exists()

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--add", "none.json", "-o", "t.json"), "none.json"),
            (("-o", "no/t.json"), "--output 'no/t.json' must be a file in a folder that is there"),
            (("-o", "."), "--output '.' must be a file"),
            (("wordfreq:en", "-o", "t.json"), "wordfreq stands alone"),
        ],
    )
    def test_mistakes_show_before_anything_is_counted(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], reason: str
    ) -> None:
        monkeypatch.setattr(FrequencyTable, "count", lambda *a, **k: pytest.fail("counted"))
        code, _, err = run("frequencies", "count", "ENC", "TEXT", *arguments)
        assert (code, reason in err) == (2, True)

    def test_a_table_without_rare_types(self, run: Run) -> None:
        Path("one.json").write_text('{"cat": 3}')
        code, out, _ = run("frequencies", "info", "one.json", "--json")
        assert (code, json.loads(out)["highest low-frequency count"]) == (0, 0)

    @pytest.mark.parametrize("moment", ["counting", "writing"])
    def test_killed_half_way_it_leaves_the_old_table(self, inputs: Path, tmp_path: Path, moment: str) -> None:
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
        command = [sys.executable, "-c", code, "frequencies", "count", inputs / "encoder", text, "-o", table]
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


class TestObjectives:
    @pytest.mark.parametrize("base", ["simcse", "consert", "dclr", "adcse"])
    def test_slt_fai_over_every_base(self, run: Run, frequencies: str, base: str) -> None:
        code, _, err = run(
            "train", "slt-fai", "ENC", "TEXT", "-o", "out", "--frequencies", frequencies, "--base", base, *SMALL
        )
        assert code == 0, err
        card = Path("out/README.md").read_text()
        assert "loss:SLTFAILoss" in card

    def test_slt_fai_warm_up_and_options_of_the_base(self, run: Run, frequencies: str) -> None:
        options = ("--warmup-epochs", 1.5, "--base-set", "temperature=0.3", "--set", "mask_ratio=0.4")
        code, _, err = run(
            "train", "slt-fai", "ENC", "TEXT", "-o", "out", "--frequencies", frequencies, *options, *SMALL
        )
        assert code == 0, err
        card = Path("out/README.md").read_text().replace(" ", "")
        assert '"warmup_steps":3' in card
        assert '"temperature":0.3' in card
        assert '"mask_ratio":0.4' in card

    @pytest.mark.parametrize("objective", ["consert", "adcse", "paser"])
    def test_other_objectives(self, run: Run, objective: str) -> None:
        extra = ("--set", "num_decoder_layers=1", "--loss-lr", "1e-3") if objective == "paser" else ()
        code, out, err = run("train", objective, "ENC", "TEXT", "-o", "out", *extra, *SMALL)
        assert code == 0, err
        assert json.loads(out)["steps"] >= 2
        assert np.isfinite(SentenceTransformer("out", device="cpu").encode(SENTENCES)).all()

    def test_weights_chosen_without_labels(self, run: Run) -> None:
        text = [f"{one} and {other}" for one in SENTENCES for other in SENTENCES]
        Path("more.txt").write_text("\n".join(text))
        options = ("--steps", 6, "--eval-steps", 2, "--lr", 1e-2, "--length-buckets", 2)
        code, out, err = run("train", "simcse", "ENC", "more.txt", "-o", "out", "--dev", "unlabeled", *options, *SMALL)
        assert code == 0, err
        report = json.loads(out)
        assert [step for step, _ in report["curve"]] == [0, 2, 4, 6]
        trained = dict(report["curve"][1:])
        assert report["best_step"] == max(trained, key=trained.__getitem__)
        evaluator = UnlabeledSelectionEvaluator(text)
        kept = evaluator(SentenceTransformer("out", device="cpu"))[str(evaluator.primary_metric)]
        assert kept == pytest.approx(max(trained.values()), abs=1e-5)

    def test_paser_masks_as_asked(self, run: Run) -> None:
        rows = {}
        for top_k in (1, 3):
            options = ("--top-k", top_k, "--augment", "rd+rs", "--set", "num_decoder_layers=1", "--set", "mlm_weight=0")
            code, _, err = run("train", "paser", "ENC", "TEXT", "-o", f"out{top_k}", *options, *SMALL)
            assert code == 0, err
            rows[top_k] = int(err.split(" phrases;")[0].split()[-1])
        assert rows[1] == len(SENTENCES) < rows[3]

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("slt-fai",), "--frequencies"),
            (("slt-fai", "--frequencies", "none.json"), "none.json"),
            (("slt-fai", "--frequencies", "t", "--base", "mnrl"), "--base must be one of"),
            (("consert", "--base", "simcse"), "--base belongs to slt-fai"),
            (("simcse", "--top-k", "2"), "--top-k belongs to paser"),
            (("adcse", "--complementary", "self"), "--complementary belongs to dclr"),
            (("adcse", "--set", "num_adversaries=-1"), "num_adversaries"),
            (("paser", "--phrases", "xp"), "--phrases must be"),
            (("paser", "--augment", "xx"), "--augment must join"),
            (("paser", "--top-k", "0"), "top_k"),
            (("simcse", "--loss-lr", "1e-3"), "SimCSELoss has no parameters of its own"),
            (("simcse", "--dev", "unlabeled"), "at least 10 distinct"),
            (("simcse", "--length-buckets", "0"), "buckets must be >= 1"),
        ],
    )
    def test_mistakes(self, run: Run, arguments: tuple[str, ...], reason: str) -> None:
        code, _, err = run("train", arguments[0], "ENC", "TEXT", "-o", "out", "--quiet", *arguments[1:])
        assert (code, reason in err) == (2, True), err
        assert not Path("out").exists()


class TestPostProcessing:
    def test_fit_tune_evaluate(self, run: Run, inputs: Path) -> None:
        assert run("repal", "fit", "ENC", "TEXT", "-o", "fitted", "--lambda-1", 0.3, "--lambda-2", 0.2)[0] == 0
        code, out, err = run("repal", "tune", "fitted", "--sts", "STS", "-o", "tuned", "--json")
        assert code == 0, err
        found = json.loads(out)
        assert found["settings"] >= 2000
        assert found["spearman"] >= found["plain"]
        code, out, _ = run("repal", "evaluate", "tuned", "--sts", "STS", "--sets", "stsb_dev", "--json")
        assert code == 0
        columns = json.loads(out)
        assert columns["RepAL"]["stsb_dev"] == pytest.approx(found["spearman"], abs=1.0)
        model = st_extras.load("tuned")
        again = sts_evaluator("stsb_dev", inputs)(model)["stsb_dev_spearman_cosine"]
        assert columns["RepAL"]["stsb_dev"] == pytest.approx(100 * again)
        code, out, _ = run("evaluate", "tuned", "--sts", "STS", "--sets", "stsb_dev", "--json")
        assert json.loads(out)["stsb_dev"] == pytest.approx(columns["RepAL"]["stsb_dev"])

    def test_tuning_the_sentence_term_alone(self, run: Run) -> None:
        assert run("repal", "fit", "ENC", "TEXT", "-o", "fitted", "--lambda-2", 0.2)[0] == 0
        code, out, err = run("repal", "tune", "fitted", "--sts", "STS", "-o", "tuned", "--sentence-term-only", "--json")
        assert code == 0, err
        found = json.loads(out)
        assert found["lambda_2"] == 0
        assert found["settings"] < 100
        assert all(getattr(module, "lambda_2", 0) == 0 for module in st_extras.load("tuned"))

    def test_tuning_by_subset(self, run: Run) -> None:
        assert run("repal", "fit", "ENC", "TEXT", "-o", "fitted")[0] == 0
        found = {}
        for name, flags in (("all", ()), ("subset", ("--by-subset",))):
            code, out, err = run("repal", "tune", "fitted", "--sts", "STS", "-o", name, "--json", *flags)
            assert code == 0, err
            found[name] = json.loads(out)
        assert found["subset"]["plain"] != found["all"]["plain"]

    def test_whitening(self, run: Run) -> None:
        assert run("whiten", "fit", "ENC", "TEXT", "-o", "white", "--dimensions", 4)[0] == 0
        assert run("whiten", "fit", "ENC", "TEXT", "-o", "stock", "--dimensions", 4, "--stock")[0] == 0
        ours = st_extras.load("white").encode(SENTENCES)
        stock = SentenceTransformer("stock", device="cpu").encode(SENTENCES)
        assert ours.shape == (len(SENTENCES), 4)
        np.testing.assert_allclose(ours, stock, atol=1e-4)

    def test_stock_whitening_keeps_prompts_and_similarity(self, run: Run, inputs: Path) -> None:
        model = SentenceTransformer(str(inputs / "encoder"), prompts={"query": "the dog "}, similarity_fn_name="dot")
        model.default_prompt_name = "query"
        model.save("prompted")
        for name, options in (("white", ()), ("stock", ("--stock",))):
            assert run("whiten", "fit", "prompted", "TEXT", "-o", name, *options)[0] == 0
        stock = SentenceTransformer("stock", device="cpu")
        assert (stock.prompts["query"], stock.default_prompt_name, stock.similarity_fn_name) == (
            "the dog ", "query", "dot",
        )  # fmt: skip
        np.testing.assert_allclose(stock.encode(SENTENCES), st_extras.load("white").encode(SENTENCES), atol=1e-4)

    def test_a_refined_encoder_of_the_hub(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        assert run("repal", "fit", "ENC", "TEXT", "-o", "refined")[0] == 0
        monkeypatch.setattr("sentence_transformers.util.load_file_path", lambda name, file: f"refined/{file}")
        monkeypatch.setattr("st_extras.modules.load", lambda name: load("refined") if name == "me/refined" else None)
        code, out, _ = run("repal", "evaluate", "me/refined", "--sts", "STS", "--sets", "sts12", "--json")
        assert (code, set(json.loads(out))) == (0, {"plain", "RepAL"})

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("repal", "fit", "ENC", "none.txt", "-o", "out"), "none.txt"),
            (("repal", "fit", "ENC", "TEXT", "-o", "out", "--lambda-2", "nan"), "lambda_2"),
            (("repal", "fit", "ENC", "TEXT", "-o", "out", "--keywords", "yake"), "--keywords"),
            (("repal", "tune", "ENC", "--sts", "STS", "-o", "out"), "has no RepAL attached"),
            (("repal", "evaluate", "ENC", "--sts", "STS"), "has no RepAL attached"),
            (("whiten", "fit", "ENC", "TEXT", "-o", "out", "--dimensions", "99"), "99"),
        ],
    )
    def test_mistakes(self, run: Run, arguments: tuple[str, ...], reason: str) -> None:
        code, _, err = run(*arguments)
        assert (code, reason in err) == (2, True), err
        assert not Path("out").exists()
