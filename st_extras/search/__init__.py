"""What a search index needs beyond an encoder."""

from st_extras.search.refinement import refine_documents, refine_queries

__all__ = ["refine_documents", "refine_queries"]
