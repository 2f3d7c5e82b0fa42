"""Evaluators, and readers of the data sets that they need."""

from st_extras.evaluation.geometry import GeometryEvaluator
from st_extras.evaluation.label_free import LabelFreeComparison, LabelFreeScore
from st_extras.evaluation.label_scores import label_scores
from st_extras.evaluation.labeled_texts import LabeledTextEvaluator, LabeledTexts, load_labeled_texts, without_labeled
from st_extras.evaluation.retrieval import (
    QuestionRetrievalEvaluator,
    RetrievalComparison,
    RetrievalEvaluator,
    compare_retrieval,
)
from st_extras.evaluation.retrieval_data import RetrievalTask, load_judged, load_retrieval, question_retrieval
from st_extras.evaluation.sts import STSEvaluator, sts_evaluator
from st_extras.evaluation.sts_data import SEVEN_STS, STSDataset, development_and_test, load_sts

__all__ = [
    "SEVEN_STS",
    "GeometryEvaluator",
    "LabelFreeComparison",
    "LabelFreeScore",
    "LabeledTextEvaluator",
    "LabeledTexts",
    "QuestionRetrievalEvaluator",
    "RetrievalComparison",
    "RetrievalEvaluator",
    "RetrievalTask",
    "STSDataset",
    "STSEvaluator",
    "compare_retrieval",
    "development_and_test",
    "label_scores",
    "load_judged",
    "load_labeled_texts",
    "load_retrieval",
    "load_sts",
    "question_retrieval",
    "sts_evaluator",
    "without_labeled",
]
