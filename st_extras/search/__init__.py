"""What a search index needs beyond an encoder: BM25 beside it, and documents refined against hubs."""

from st_extras.search.hybrid import HybridSearch
from st_extras.search.refinement import refine_documents, refine_queries
from st_extras.text.term_weights import bm25_weight

__all__ = ["HybridSearch", "bm25_weight", "refine_documents", "refine_queries"]
