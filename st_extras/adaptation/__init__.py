"""A good encoder adapted to your text or search without labels: sample, encode, propose, score, choose, save."""

from st_extras.adaptation.domain import CANDIDATES, LinearTransform, adapt
from st_extras.adaptation.report import Adaptation, CandidateResult, DomainDetails, SearchDetails, TextSummary
from st_extras.adaptation.run import AdaptationOptions
from st_extras.adaptation.search import adapt_search

__all__ = [
    "CANDIDATES",
    "Adaptation",
    "AdaptationOptions",
    "CandidateResult",
    "DomainDetails",
    "LinearTransform",
    "SearchDetails",
    "TextSummary",
    "adapt",
    "adapt_search",
]
