"""Hybrid search: an encoder and BM25 together, with one weight."""

from st_extras.search.hybrid import HybridSearch
from st_extras.text.term_weights import bm25_weight

__all__ = ["HybridSearch", "bm25_weight"]
