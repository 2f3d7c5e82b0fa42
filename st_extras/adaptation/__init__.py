"""A good encoder adapted to your text or search without labels: sample, encode, propose, score, choose, save."""

from st_extras.adaptation.corpus import TextSummary
from st_extras.adaptation.demo import demonstrate
from st_extras.adaptation.domain import adapt
from st_extras.adaptation.language_model import adapt_language_model
from st_extras.adaptation.report import (
    Adaptation,
    CandidateResult,
    DomainDetails,
    LanguageModelDetails,
    SearchDetails,
)
from st_extras.adaptation.run import check_adaptation_output
from st_extras.adaptation.search import adapt_search
from st_extras.adaptation.trainings import TRAININGS, ShortTraining
from st_extras.adaptation.transforms import CANDIDATES, LinearTransform

__all__ = [
    "CANDIDATES",
    "TRAININGS",
    "Adaptation",
    "CandidateResult",
    "DomainDetails",
    "LanguageModelDetails",
    "LinearTransform",
    "SearchDetails",
    "ShortTraining",
    "TextSummary",
    "adapt",
    "adapt_language_model",
    "adapt_search",
    "check_adaptation_output",
    "demonstrate",
]
