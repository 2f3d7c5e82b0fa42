"""Unsupervised sentence-embedding objectives as drop-in parts of Sentence Transformers.

Importing this package is cheap: losses, modules and evaluators live in ``st_extras.losses``,
``st_extras.modules`` and ``st_extras.evaluation``.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
