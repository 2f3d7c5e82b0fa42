"""Post-processing modules for a Sentence Transformers pipeline: no training, no labels."""

from st_extras.modules.lambda_search import TuningResult, search_lambdas
from st_extras.modules.load import load
from st_extras.modules.partial_mask import PartialMaskTransformer
from st_extras.modules.repal import RepALPostProcessor
from st_extras.modules.whitening import WhiteningPostProcessor

__all__ = [
    "PartialMaskTransformer",
    "RepALPostProcessor",
    "TuningResult",
    "WhiteningPostProcessor",
    "load",
    "search_lambdas",
]
