"""Evaluators, and readers of the data sets that they need."""

from st_extras.evaluation.change import ChangeJudge, Verdict
from st_extras.evaluation.frequency_bias import FrequencyBiasEvaluator
from st_extras.evaluation.geometry_evaluators import CosineLevelEvaluator, GeometryEvaluator
from st_extras.evaluation.label_scores import label_scores
from st_extras.evaluation.labeled_data import LabeledTexts, load_labeled_texts
from st_extras.evaluation.labeled_texts import LabeledTextEvaluator
from st_extras.evaluation.lambda_curves import eigenvalue_curve, lambda_surface, largest_eigenvalue
from st_extras.evaluation.redundancy import redundancy_overlap_ratio, trivial_word_importance, word_importance
from st_extras.evaluation.reranking import read_askubuntu, reranking_evaluator
from st_extras.evaluation.retrieval import QuestionRetrievalEvaluator, question_retrieval, read_question_pairs
from st_extras.evaluation.selection import UnlabeledSelectionEvaluator
from st_extras.evaluation.sts import STSEvaluator, sts_evaluator
from st_extras.evaluation.sts_data import SEVEN_STS, STSDataset, development_and_test, load_sts

__all__ = [
    "SEVEN_STS",
    "ChangeJudge",
    "CosineLevelEvaluator",
    "FrequencyBiasEvaluator",
    "GeometryEvaluator",
    "LabeledTextEvaluator",
    "LabeledTexts",
    "QuestionRetrievalEvaluator",
    "STSDataset",
    "STSEvaluator",
    "UnlabeledSelectionEvaluator",
    "Verdict",
    "development_and_test",
    "eigenvalue_curve",
    "label_scores",
    "lambda_surface",
    "largest_eigenvalue",
    "load_labeled_texts",
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
