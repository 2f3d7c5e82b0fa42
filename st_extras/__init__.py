"""Better sentence embeddings without labels, for Sentence Transformers.

Importing this package is cheap: losses, modules and evaluators live in ``st_extras.losses``,
``st_extras.modules`` and ``st_extras.evaluation``.
"""

__version__ = "0.1.0"
