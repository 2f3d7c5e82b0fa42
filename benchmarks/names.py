"""Names that several studies share."""

from __future__ import annotations

from pathlib import Path

KEPT = "adapt, keep_index"
"""What ``adapt`` chooses for a search if stored documents stay as they are."""

MNRL = "mnrl, two columns"
"""The measured step that all others are compared with: MultipleNegativesRankingLoss."""

FITTED = {
    "whitened 256": "whitened on the text",
    "whitened 256 + sentence term pooled": "whitened on the text, sentence term pooled",
}
"""Variants of RepAL's grid, and their names when whitening is fitted on the training text."""

UNSEEN = {
    "whitened 256": "whitened on the text without the test sentences",
    "whitened 256 + sentence term pooled": "whitened on the text without the test sentences, sentence term pooled",
}
"""The same variants, and their names when the training text is fitted on without the sentences of the test sets."""

PRETRAINED = {"own": "runs/own_encoder/encoder", "better": "runs/own_encoder_better/encoder"}
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
