"""Post-processing of a finished encoder: linear layers by functions, RepAL and SIF pooling as modules. No labels."""

from st_extras.modules.corpus_statistics import CorpusStatistics
from st_extras.modules.lambda_search import TuningResult, search_lambdas
from st_extras.modules.linear import all_but_the_top, embed_filter, locality_preserving, whitening
from st_extras.modules.partial_mask import PartialMaskTransformer
from st_extras.modules.repal import RepALPostProcessor
from st_extras.modules.saved_models import load
from st_extras.modules.sif import SIFPooling

__all__ = [
    "CorpusStatistics",
    "PartialMaskTransformer",
    "RepALPostProcessor",
    "SIFPooling",
    "TuningResult",
    "all_but_the_top",
    "embed_filter",
    "load",
    "locality_preserving",
    "search_lambdas",
    "whitening",
]
