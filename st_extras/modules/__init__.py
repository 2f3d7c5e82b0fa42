"""Post-processing modules for a Sentence Transformers pipeline: no training, no labels."""

from st_extras.modules.all_but_the_top import AllButTheTopPostProcessor
from st_extras.modules.corpus_statistics import CorpusStatistics
from st_extras.modules.lambda_search import TuningResult, search_lambdas
from st_extras.modules.locality_preserving import LocalityPreservingPostProcessor
from st_extras.modules.partial_mask import PartialMaskTransformer
from st_extras.modules.repal import RepALPostProcessor
from st_extras.modules.saved_models import load, to_stock
from st_extras.modules.sif import SIFPooling
from st_extras.modules.whitening import WhiteningPostProcessor

__all__ = [
    "AllButTheTopPostProcessor",
    "CorpusStatistics",
    "LocalityPreservingPostProcessor",
    "PartialMaskTransformer",
    "RepALPostProcessor",
    "SIFPooling",
    "TuningResult",
    "WhiteningPostProcessor",
    "load",
    "search_lambdas",
    "to_stock",
]
