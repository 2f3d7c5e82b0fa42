"""Evaluators and readers of the data sets that they need."""

from st_extras.evaluation.frequency_bias import FrequencyBiasEvaluator
from st_extras.evaluation.geometry_evaluators import CosineLevelEvaluator, GeometryEvaluator
from st_extras.evaluation.redundancy import (
    eigenvalue_curve,
    lambda_surface,
    largest_eigenvalue,
    redundancy_overlap_ratio,
    trivial_word_importance,
    word_importance,
)
from st_extras.evaluation.retrieval import (
    QuestionRetrievalEvaluator,
    question_retrieval,
    read_askubuntu,
    read_question_pairs,
    reranking_evaluator,
)
from st_extras.evaluation.selection import UnlabeledSelectionEvaluator
from st_extras.evaluation.sts import SEVEN_STS, STSDataset, STSEvaluator, load_sts, sts_evaluator

__all__ = [
    "SEVEN_STS",
    "CosineLevelEvaluator",
    "FrequencyBiasEvaluator",
    "GeometryEvaluator",
    "QuestionRetrievalEvaluator",
    "STSDataset",
    "STSEvaluator",
    "UnlabeledSelectionEvaluator",
    "eigenvalue_curve",
    "lambda_surface",
    "largest_eigenvalue",
    "load_sts",
    "question_retrieval",
    "read_askubuntu",
    "read_question_pairs",
    "redundancy_overlap_ratio",
    "reranking_evaluator",
    "sts_evaluator",
    "trivial_word_importance",
    "word_importance",
]
