"""Unsupervised objectives, one per file, each a drop-in loss of Sentence Transformers."""

from st_extras.losses.adcse import AdCSELoss
from st_extras.losses.consert import ConSERTLoss
from st_extras.losses.dclr import DCLRLoss
from st_extras.losses.frequency_adversarial import FrequencyAdversarialLoss
from st_extras.losses.incomplete_sentence import IncompleteSentenceFilteringLoss
from st_extras.losses.paser import PaSeRLoss
from st_extras.losses.simcse import SimCSELoss
from st_extras.losses.slt_fai import SLTFAILoss, epochs_to_steps

__all__ = [
    "AdCSELoss",
    "ConSERTLoss",
    "DCLRLoss",
    "FrequencyAdversarialLoss",
    "IncompleteSentenceFilteringLoss",
    "PaSeRLoss",
    "SLTFAILoss",
    "SimCSELoss",
    "epochs_to_steps",
]
