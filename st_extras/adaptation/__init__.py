"""A good encoder made better on text of one's own, without labels: encode, propose, judge, choose, save."""

from st_extras.adaptation.adapt import adapt, check_adaptation_output
from st_extras.adaptation.candidates import CANDIDATES, TRAININGS, LinearTransform, ShortTraining
from st_extras.adaptation.demo import demonstrate
from st_extras.adaptation.judge import Row
from st_extras.adaptation.report import Adapted

__all__ = [
    "CANDIDATES",
    "TRAININGS",
    "Adapted",
    "LinearTransform",
    "Row",
    "ShortTraining",
    "adapt",
    "check_adaptation_output",
    "demonstrate",
]
