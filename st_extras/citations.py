"""The papers of the methods: the entries of ``citations.bib``, by their keys."""

from __future__ import annotations

import re
from pathlib import Path

_ENTRIES = Path(__file__).with_name("citations.bib").read_text(encoding="utf8")
CITATIONS = {match[2]: match[1] for match in re.finditer(r"^(@\w+\{(\S+),$.*?^\})$", _ENTRIES, re.M | re.S)}
"""BibTeX of each paper."""
