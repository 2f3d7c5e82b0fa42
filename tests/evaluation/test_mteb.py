"""MTEB's tasks: the same score as our own evaluator, and one line for what cannot be run."""

import importlib.util
import sys
from typing import Any

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_extras.cli import app as cli
from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.evaluation.mteb import mteb_scores, mteb_tasks
from st_extras.modules import RepALPostProcessor
from st_extras.samples import graded_pairs, sample_sentences
from st_extras.samples.encoder import raw_encoder

NEEDS_MTEB = pytest.mark.skipif(
    importlib.util.find_spec("mteb") is None, reason='mteb is not installed: pip install "st-extras[mteb]"'
)
SLOW = pytest.mark.slow  # importing mteb takes seconds


def sample_task() -> Any:
    """An STS task on the sample pairs, which needs no hub."""
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class SamplePairs(AbsTaskSTS):
        metadata = TaskMetadata(
            name="SamplePairs", description="Graded pairs.", reference=None, type="STS", category="t2t",
            dataset={"path": "none/none", "revision": "1"}, modalities=["text"], eval_splits=["test"], date=None,
            eval_langs=["eng-Latn"], main_score="cosine_spearman", domains=[], task_subtypes=[], license=None,
            annotations_creators=None, dialect=[], sample_creation=None, bibtex_citation=None,
        )  # fmt: skip

        def load_data(self, *args: Any, **kwargs: Any) -> None:
            first, second, scores = graded_pairs()
            rows = Dataset.from_dict({"sentence1": first, "sentence2": second, "score": scores})
            self.dataset, self.data_loaded = {"default": {"test": rows}}, True

    return SamplePairs()


def repal() -> SentenceTransformer:
    corpus = sample_sentences()[:100]
    return RepALPostProcessor.attach(raw_encoder(), lambda_1=0.4, lambda_2=0.6, keywords="rake", corpus=corpus)


@NEEDS_MTEB
@SLOW
def test_the_score_of_a_task_is_that_of_our_evaluator():
    model = repal()
    first, second, scores = graded_pairs()
    own = STSEvaluator([STSDataset("sample", first, second, scores, ["sample"] * len(scores))], write_csv=False)
    found = mteb_scores(model, [sample_task()])
    # both round their cosines, so that a few ranks may change places
    assert found == {"SamplePairs": pytest.approx(own(model)["sample_spearman_cosine"], abs=2e-4)}


@NEEDS_MTEB
@SLOW
class TestRefusals:
    def test_data_out_of_reach_is_one_line_and_code_1(self, monkeypatch, capsys, tmp_path):
        raw_encoder().save_pretrained(str(tmp_path / "model"), create_model_card=False)
        monkeypatch.setattr(sys, "argv", ["st-extras", "evaluate", str(tmp_path / "model"), "--mteb", "STS12"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr().err.strip().splitlines()
        assert ended.value.code == 1
        assert shown[-1].startswith("Error: The data of the MTEB task STS12 could not be loaded: ")
        assert sum(line.startswith("Error") for line in shown) == 1

    @pytest.mark.parametrize(
        ("name", "hint"), [("STS122", r"Did you mean: 'STS\d+'\?"), ("q" * 9, "no similar keys were found.")]
    )
    def test_an_unknown_task(self, name, hint):
        with pytest.raises(ValueError, match=rf"^names must be names of MTEB tasks: '{name}' not found.* {hint}$"):
            mteb_tasks(name)

    def test_not_tasks(self):
        with pytest.raises(ValueError, match=r"^tasks must hold MTEB tasks, .* got 'STS12'\.$"):
            mteb_scores(raw_encoder(), ["STS12"])  # type: ignore[list-item]


def test_without_mteb_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(
        ImportError, match=r'^The tasks of MTEB need the package mteb: pip install "st-extras\[mteb\]"\.$'
    ):
        mteb_tasks("STS12")
