"""Search by an encoder and BM25 together, in an index to which documents are added and from which they are removed."""

from st_extras.search.hybrid import Hit, HybridSearch, UpdateCounts
from st_extras.text.term_weights import bm25_weight

__all__ = ["Hit", "HybridSearch", "UpdateCounts", "bm25_weight"]
