"""Evaluators and readers of the data sets that they need."""

from st_extras.evaluation.sts import SEVEN_STS, STSDataset, STSEvaluator, load_sts, sts_evaluator

__all__ = ["SEVEN_STS", "STSDataset", "STSEvaluator", "load_sts", "sts_evaluator"]
