"""Ways to run an encoder: loading, guides and their tables, momentum copies, rows and heads."""

from st_extras.encoders.embedding_table import EmbeddingTable
from st_extras.encoders.frozen import FrozenEncoder
from st_extras.encoders.loading import load_encoder
from st_extras.encoders.momentum import MomentumEncoder

__all__ = ["EmbeddingTable", "FrozenEncoder", "MomentumEncoder", "load_encoder"]
