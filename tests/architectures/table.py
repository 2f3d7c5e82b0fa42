"""The table "which encoder, which method" of docs/encoders.md: written from the outcomes, and read again."""

from collections.abc import Mapping
from pathlib import Path

from tests.architectures.methods import METHODS
from tests.architectures.outcomes import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "encoders.md"
Outcomes = Mapping[str, Outcome]

_TOP = """# Which encoder, which method

Find your encoder's architecture: most take every method, and those with the same results share a row.

* **warns**: the architecture has no dropout, so both views of a sentence are equal. Load the encoder with
  `load_encoder(..., dropout=0.1)` (`--dropout 0.1`; the next column), or use cutoff views.
* **delete**: there is no mask token. Pass `on_missing_mask="delete"`, which deletes words instead of masking them.
* **no**: refused. Without a mask token, use PaSeR with `mlm_weight=0`. Where cutoffs are refused, shuffle:
  `ConSERTLoss(model, augmentations=("shuffle", "dropout"))`. `StaticEmbedding` and `WordEmbeddings` have no layers to
  make views with: give pairs in two columns.

`cutoffs` and `shuffle` are views of SimCSE, DCLR and ConSERT; AT and ISF are the two terms of SLT-FAI.

"""
_END = """
Written by `python -m tests.architectures`: each method trained a tiny random encoder of the architecture for three
steps, or refined its embeddings, and the result was compared with a computation by hand. Padding on both sides,
prompts, saving and loading were tested too.
"""


def cell(outcome: Outcome) -> str:
    words = {"yes": [], "warned": ["warns"], "no": ["no"], "fault": ["FAULT"]}[outcome.kind]
    return ", ".join([outcome.option] * bool(outcome.option) + words) or "yes"


def render(found: Mapping[str, Outcomes]) -> str:
    """The page, from the outcomes of each encoder."""
    lines = ["| encoder | " + " | ".join(METHODS) + " |", "|---" * (len(METHODS) + 1) + "|"]
    alike: dict[str, list[str]] = {}
    for name, outcomes in found.items():
        alike.setdefault(" | ".join(cell(outcomes[method]) for method in METHODS), []).append(name)
    lines += [f"| {', '.join(names)} | {cells} |" for cells, names in alike.items()]
    return _TOP + "\n".join(lines) + "\n" + _END


def read() -> dict[str, dict[str, str]]:
    """The cells of the page, by encoder and method."""
    if not PAGE.is_file():
        return {}
    rows = [line.strip("|").split("|") for line in PAGE.read_text(encoding="utf8").splitlines() if line[:1] == "|"]
    cells = [[text.strip() for text in row] for row in rows]
    return {name: dict(zip(cells[0][1:], row[1:], strict=True)) for row in cells[2:] for name in row[0].split(", ")}
