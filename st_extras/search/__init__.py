"""Search by an encoder and BM25 together, in memory, with one Parquet file that keeps it."""

from st_extras.search.hybrid import Hit, HybridSearch, UpdateCounts
from st_extras.text.term_weights import bm25_weight

__all__ = ["Hit", "HybridSearch", "UpdateCounts", "bm25_weight"]
