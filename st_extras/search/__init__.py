"""Search by an encoder and BM25 together, in memory and a file, or in Qdrant."""

from st_extras.search.hits import Hit, UpdateCounts
from st_extras.search.hybrid import HybridSearch
from st_extras.search.qdrant import QdrantSearch
from st_extras.text.term_weights import bm25_weight

__all__ = ["Hit", "HybridSearch", "QdrantSearch", "UpdateCounts", "bm25_weight"]
