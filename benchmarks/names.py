"""Names that several studies share."""

from __future__ import annotations

from pathlib import Path

KEPT = "adapt, keep_index"
"""What ``adapt`` chooses for a search if stored documents stay as they are."""

MNRL = "mnrl, two columns"
"""The measured step that all others are compared with: MultipleNegativesRankingLoss."""

PRETRAINED = {
    "own": "runs/own_encoder/encoder",
    "own2": "runs/own_encoder_2/encoder",
    "better": "runs/own_encoder_better/encoder",
}
"""Where the study ``pretraining`` leaves its encoders."""

NAMED = ("minilm", "layers3", "own")
"""The encoders of the domain study and of RepAL's analyses; ``benchmarks.domains.encoder`` loads them by name."""

TRANSFORMS = {
    "slight neighbour transform": "neighbours, slight",
    "gentle neighbour transform": "neighbours, gentle",
    "medium neighbour transform": "neighbours, medium",
    "whitening neighbour transform": "neighbours, white",
}
"""What the records call the transforms that ``adapt`` tries."""

BASELINE_TEXTS = {"wiki": "wiki_sentences.txt.gz", "sts": "sts_unlabeled.txt.gz"}
"""The texts that the baselines are fitted on: files of the data folder by their names in the records."""


def is_there(name: str) -> bool:
    """Whether the encoder of this name is there; a line is printed for one of PRETRAINED that was not made yet."""
    path = PRETRAINED.get(name)
    if path is None or Path(path).is_dir():
        return True
    print(f"{name}: left out, there is no {path}: python -m benchmarks run pretraining makes it.", flush=True)
    return False
