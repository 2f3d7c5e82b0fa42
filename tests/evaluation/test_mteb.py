"""MTEB's tasks: the same score as our own evaluator, and one line for what cannot be run."""

import importlib.util
import sys
from typing import Any

import pytest
from datasets import Dataset

from st_extras.evaluation import STSDataset, STSEvaluator
from st_extras.evaluation.mteb import mteb_scores, mteb_tasks
from st_extras.modules import RepALPostProcessor
from tests.fixtures import SENTENCES

NEEDS_MTEB = pytest.mark.skipif(
    importlib.util.find_spec("mteb") is None, reason='mteb is not installed: pip install "st-extras[mteb]"'
)
PAIRS = (SENTENCES[:-1], SENTENCES[1:], [0.0, 4.0, 1.0, 3.0, 2.0, 5.0, 2.5])


def pairs_task() -> Any:
    """An STS task on PAIRS, which needs no hub."""
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class Pairs(AbsTaskSTS):
        metadata = TaskMetadata(
            name="Pairs", description="Graded pairs.", reference=None, type="STS", category="t2t",
            dataset={"path": "none/none", "revision": "1"}, modalities=["text"], eval_splits=["test"], date=None,
            eval_langs=["eng-Latn"], main_score="cosine_spearman", domains=[], task_subtypes=[], license=None,
            annotations_creators=None, dialect=[], sample_creation=None, bibtex_citation=None,
        )  # fmt: skip

        def load_data(self, *args: Any, **kwargs: Any) -> None:
            rows = Dataset.from_dict(dict(zip(("sentence1", "sentence2", "score"), PAIRS, strict=True)))
            self.dataset, self.data_loaded = {"default": {"test": rows}}, True

    return Pairs()


@NEEDS_MTEB
@pytest.mark.slow
def test_the_score_of_a_task_is_that_of_our_evaluator(encoder):
    model = RepALPostProcessor.attach(encoder, lambda_1=0.4, lambda_2=0.6, keywords="rake", corpus=SENTENCES)
    own = STSEvaluator([STSDataset("own", *PAIRS, ["all"] * 7)])
    assert mteb_scores(model, [pairs_task()]) == {"Pairs": pytest.approx(own(model)["own_spearman_cosine"])}
    with pytest.raises(ValueError, match=r"^names must .* Did you mean: 'STS"):
        mteb_tasks("STS122")
    with pytest.raises(ValueError, match=r"^tasks must"):
        mteb_scores(model, ["STS12"])
    with pytest.raises(OSError, match="data of the MTEB task STS12 could not be loaded"):  # the hub is out of reach
        mteb_scores(model, mteb_tasks("STS12"))


def test_without_mteb_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(ImportError, match=r'pip install "st-extras\[mteb\]"'):
        mteb_tasks("STS12")
