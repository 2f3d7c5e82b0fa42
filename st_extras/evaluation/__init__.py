"""Evaluators, and readers of the data sets that they need.

A name is imported when it is first used: the readers do without torch, so that the command line refuses a wrong file at
once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from st_extras.evaluation.geometry import GeometryEvaluator
    from st_extras.evaluation.label_free import LabelFreeComparison, LabelFreeScore
    from st_extras.evaluation.label_metrics import label_scores
    from st_extras.evaluation.labeled_data import LabeledTexts, load_labeled_texts, without_labeled
    from st_extras.evaluation.labeled_texts import LabeledTextEvaluator
    from st_extras.evaluation.retrieval import (
        RetrievalComparison,
        RetrievalEvaluator,
        compare_retrieval,
    )
    from st_extras.evaluation.retrieval_data import RetrievalTask, load_judged, load_retrieval
    from st_extras.evaluation.sts import STSEvaluator, sts_evaluator
    from st_extras.evaluation.sts_data import SEVEN_STS, STSDataset, development_and_test, load_sts
    from st_extras.evaluation.unrelated_pairs import TextComparison, compare_texts

__all__ = [
    "SEVEN_STS",
    "GeometryEvaluator",
    "LabelFreeComparison",
    "LabelFreeScore",
    "LabeledTextEvaluator",
    "LabeledTexts",
    "RetrievalComparison",
    "RetrievalEvaluator",
    "RetrievalTask",
    "STSDataset",
    "STSEvaluator",
    "TextComparison",
    "compare_retrieval",
    "compare_texts",
    "development_and_test",
    "label_scores",
    "load_judged",
    "load_labeled_texts",
    "load_retrieval",
    "load_sts",
    "sts_evaluator",
    "without_labeled",
]

_READERS = ("labeled_data", "retrieval_data", "sts_data")
_OTHERS = ("geometry", "label_free", "label_metrics", "labeled_texts", "retrieval", "sts", "unrelated_pairs")


def __getattr__(name: str) -> Any:
    """Return a public name from the first module that has it."""
    if name in __all__:
        for module in (*_READERS, *_OTHERS):
            if hasattr(found := import_module(f"{__name__}.{module}"), name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
