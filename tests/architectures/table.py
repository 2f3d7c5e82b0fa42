"""The table "which encoder, which method" of docs/encoders.md: written from the outcomes, and read again."""

import re
from collections.abc import Mapping
from pathlib import Path

from tests.architectures.methods import METHODS
from tests.architectures.outcomes import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "encoders.md"
Outcomes = Mapping[str, Outcome]

_TOP = """# Which encoder, which method

Made by `python -m tests.architectures`, and compared by `tests/encoders/test_architectures.py`: do not edit by hand.
Each row is a tiny random encoder of that architecture with the tokenizer, the padding side and the pooling that its
kind has. In each cell, the method trained it for three steps, or refined its embeddings, and the result was compared
with a computation by hand.

* **yes**: works.
* **delete**: the tokenizer has no mask token; works with `on_missing_mask="delete"`, which deletes instead of masking.
* **warns**: the architecture has no dropout, so both views of a sentence are equal. The loss says so; load the encoder
  with `load_encoder(..., dropout=0.1)` (`--dropout 0.1`), the next column, or use cutoff views.
* **no**: refused when the loss or module is built (or with the first batch), in one sentence that says what to do
  instead: see below the table.

`cutoffs` and `shuffle` are the views of SimCSE, DCLR and ConSERT; AT and ISF are the two terms of SLT-FAI
(`FrequencyAdversarialLoss`, `IncompleteSentenceFilteringLoss`). Right and left padding, prompts, and saving and loading
are tested for every row.

"""


def cell(outcome: Outcome) -> str:
    words = {"yes": [], "warned": ["warns"], "no": ["no"], "fault": ["FAULT"]}[outcome.kind]
    return ", ".join([outcome.option] * bool(outcome.option) + words) or "yes"


def refusal(message: str) -> str:
    """A refusal without what differs between encoders: the names of their classes."""
    text = re.sub(r"\bgot (?:<|\w*Tokenizer\().*?\.\.\.", "got ...", message)
    classes = r"\b(?:TokenizersBackend|[A-Z]\w*(?:Model|Embeddings?|Tokenizer))\b(?! has)"
    return re.sub(classes, "...", text)


def render(found: Mapping[str, Outcomes]) -> str:
    """The page, from the outcomes of each encoder."""
    lines = ["| encoder | " + " | ".join(METHODS) + " |", "|---" * (len(METHODS) + 1) + "|"]
    for name, outcomes in found.items():
        lines.append(f"| {name} | " + " | ".join(cell(outcomes[method]) for method in METHODS) + " |")
    refused: dict[str, dict[str, list[str]]] = {}
    for name, outcomes in found.items():
        for method in METHODS:
            if outcomes[method].kind == "no":
                refused.setdefault(refusal(outcomes[method].note), {}).setdefault(method, []).append(name)
    lines += ["", "## What a refusal says", ""]
    for message, methods in refused.items():
        names = list(dict.fromkeys(name for encoders in methods.values() for name in encoders))
        lines.append(f"* {', '.join(methods)} on {', '.join(names)}:")
        lines.append(f"  {message}")
    return _TOP + "\n".join(lines) + "\n"


def read() -> dict[str, dict[str, str]]:
    """The cells of the page, by encoder and method."""
    if not PAGE.is_file():
        return {}
    rows = [line.strip("|").split("|") for line in PAGE.read_text(encoding="utf8").splitlines() if line[:1] == "|"]
    cells = [[text.strip() for text in row] for row in rows]
    return {row[0]: dict(zip(cells[0][1:], row[1:], strict=True)) for row in cells[2:]}
