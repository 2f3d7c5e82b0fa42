"""Unsupervised objectives: one paper a file, each a drop-in loss of Sentence Transformers."""

from st_extras.losses.adcse import AdCSELoss
from st_extras.losses.dclr import DCLRLoss
from st_extras.losses.simcse import SimCSELoss

__all__ = ["AdCSELoss", "DCLRLoss", "SimCSELoss"]
